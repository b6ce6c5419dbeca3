#include "cluster/inbound.hpp"
#include "cluster/basp_bytes.hpp"
#include "cluster/connect.hpp"
#include "cluster/refused_bytes.hpp"
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <netdb.h>
#include <string>
#include <sys/socket.h>
#include <utility>

namespace troupe {

namespace {

struct inbound {
  basp_bytes bytes;
  bool said = false; // that it ended inside a message
};
std::array<std::atomic<inbound*>, 1 << 16> inbounds{}; // by number

void put(int fd, inbound* connection) {
  if (fd >= 0 && static_cast<std::size_t>(fd) < inbounds.size())
    delete inbounds[static_cast<std::size_t>(fd)].exchange(connection);
  else
    delete connection;
}

inbound* noted(int fd) {
  return fd >= 0 && static_cast<std::size_t>(fd) < inbounds.size() ? inbounds[static_cast<std::size_t>(fd)].load()
                                                                   : nullptr;
}

std::string own_address_of(int fd) {
  sockaddr_storage at{};
  socklen_t size = sizeof at;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&at), size, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "a closed connection";
  return to_string(endpoint{host.data(), static_cast<std::uint16_t>(std::atoi(port.data()))});
}

} // namespace

void note_inbound(int fd) {
  put(fd, new inbound);
}

void forget_inbound(int fd) {
  put(fd, nullptr);
}

void note_inbound_role(int fd, key_role role) {
  if (inbound* const connection = noted(fd); connection != nullptr && role != key_role::node)
    connection->bytes.refuse_routed();
}

ssize_t look_at_inbound(int fd, const void* bytes, ssize_t size) {
  inbound* const connection = noted(fd);
  if (connection == nullptr || size < 0)
    return size;
  if (size == 0) {
    if (connection->bytes.inside_a_message() && !std::exchange(connection->said, true))
      refuse_inbound(fd, "it ended inside a message");
    return 0;
  }
  const char* const wrong =
      connection->bytes.take({static_cast<const std::uint8_t*>(bytes), static_cast<std::size_t>(size)});
  if (wrong == nullptr)
    return size;
  refuse_inbound(fd, wrong);
  errno = ECONNRESET;
  return -1;
}

void refuse_inbound(int fd, const char* why) {
  refuse_bytes(own_address_of(fd), why);
}

} // namespace troupe
