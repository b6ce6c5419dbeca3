#include "cluster/connect.hpp"
#include "cluster/inbound.hpp"
#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

// CAF 0.17.6 names a connection by the number of its socket, and forgets a closed one behind the messages that it still
// has to read. The system gives that number to the next socket at once; then the new connection is forgotten in place
// of the old: it stays open, what comes in is served, and no answer finds its way back. So sockets of this process are
// given numbers that were not in use for long.
namespace {

int renumbered(int fd) {
  static std::atomic<unsigned> next{0};
  static const unsigned half = [] {
    rlimit most{};
    return ::getrlimit(RLIMIT_NOFILE, &most) == 0 ? static_cast<unsigned>(std::min<rlim_t>(most.rlim_cur, 1024)) / 2
                                                  : 0;
  }();
  if (fd < 0 || half == 0)
    return fd;
  const int flags = ::fcntl(fd, F_GETFD);
  const int fresh = ::fcntl(fd, flags & FD_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, half + next++ % half);
  if (fresh < 0)
    return fd;
  ::close(fd);
  return fresh;
}

} // namespace

// CAF alone accepts and receives by accept and recv, on one thread: ZeroMQ and step links accept by others, and TLS
// receives by another (tls.cpp).
extern "C" {

int socket(int family, int type, int protocol) noexcept {
  static auto* const of_system = reinterpret_cast<int (*)(int, int, int)>(::dlsym(RTLD_NEXT, "socket"));
  const int fd = renumbered(of_system(family, type, protocol));
  troupe::forget_inbound(fd);
  return fd;
}

int accept(int listener, sockaddr* from, socklen_t* size) {
  static auto* const of_system = reinterpret_cast<int (*)(int, sockaddr*, socklen_t*)>(::dlsym(RTLD_NEXT, "accept"));
  const int fd = renumbered(of_system(listener, from, size));
  troupe::note_inbound(fd);
  return fd;
}

int accept4(int listener, sockaddr* from, socklen_t* size, int flags) {
  static auto* const of_system =
      reinterpret_cast<int (*)(int, sockaddr*, socklen_t*, int)>(::dlsym(RTLD_NEXT, "accept4"));
  const int fd = of_system(listener, from, size, flags);
  troupe::forget_inbound(fd);
  return fd;
}

ssize_t recv(int fd, void* to, size_t size, int flags) {
  static auto* const of_system = reinterpret_cast<ssize_t (*)(int, void*, size_t, int)>(::dlsym(RTLD_NEXT, "recv"));
  const ssize_t got = of_system(fd, to, size, flags);
  return size == 0 ? got : troupe::look_at_inbound(fd, to, got);
}

} // extern "C"

namespace troupe {

namespace {

struct socket_handle {
  int fd = -1;
  ~socket_handle() {
    if (fd >= 0)
      ::close(fd);
  }
};

struct address_list {
  addrinfo* first = nullptr;
  ~address_list() {
    if (first != nullptr)
      ::freeaddrinfo(first);
  }
};

// 0, or the error that connecting ended with.
int connect_within(const addrinfo& to, std::chrono::milliseconds limit) {
  const socket_handle s{::socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (s.fd < 0)
    return errno;
  if (::connect(s.fd, to.ai_addr, to.ai_addrlen) == 0)
    return 0;
  if (errno != EINPROGRESS)
    return errno;
  pollfd p{s.fd, POLLOUT, 0};
  if (::poll(&p, 1, static_cast<int>(limit.count())) <= 0)
    return ETIMEDOUT;
  int why = 0;
  socklen_t size = sizeof why;
  ::getsockopt(s.fd, SOL_SOCKET, SO_ERROR, &why, &size);
  return why;
}

} // namespace

std::string to_string(const endpoint& e) {
  const bool v6 = e.host.find(':') != std::string::npos;
  return (v6 ? "[" + e.host + "]" : e.host) + ":" + std::to_string(e.port);
}

result<endpoint> parse_endpoint(const std::string& text) {
  const error bad{"invalid_endpoint",
                  "\"" + text + "\" is no endpoint; give an address and a port, as 127.0.0.1:47000"};
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0)
    return bad;
  endpoint e;
  e.host = text.substr(0, colon);
  if (e.host.starts_with('[') && e.host.ends_with(']'))
    e.host = e.host.substr(1, e.host.size() - 2);
  else if (e.host.find(':') != std::string::npos)
    return bad;
  const char* end = text.data() + text.size();
  const auto [rest, why] = std::from_chars(text.data() + colon + 1, end, e.port);
  if (why != std::errc{} || rest != end || e.port == 0 || e.host.empty())
    return bad;
  return e;
}

status probe(const endpoint& to, std::chrono::milliseconds limit) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV;
  address_list found;
  if (const int why = ::getaddrinfo(to.host.c_str(), std::to_string(to.port).c_str(), &wanted, &found.first); why != 0)
    return error{"unreachable", to_string(to) + " has no address: " + ::gai_strerror(why)};
  int why = ECONNREFUSED;
  for (const addrinfo* a = found.first; a != nullptr && why != 0; a = a->ai_next)
    why = connect_within(*a, limit);
  if (why != 0)
    return error{"unreachable", "nothing answers at " + to_string(to) + ": " + std::strerror(why)};
  return nothing{};
}

} // namespace troupe
