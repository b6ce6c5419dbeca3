#include "cluster/connect.hpp"
#include <arpa/inet.h>
#include <boost/test/unit_test.hpp>
#include <fcntl.h>
#include <netinet/in.h>
#include <set>
#include <sys/socket.h>
#include <unistd.h>

namespace {

constexpr int many = 200;

int opened() {
  return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

} // namespace

BOOST_AUTO_TEST_SUITE(connections)

BOOST_AUTO_TEST_CASE(endpoints_have_an_address_and_a_port) {
  for (const char* good : {"127.0.0.1:47000", "[::1]:1", "node-3.example:65535"}) {
    const auto e = troupe::parse_endpoint(good);
    BOOST_REQUIRE_MESSAGE(e, good);
    BOOST_TEST(troupe::to_string(*e) == good);
  }
  for (const char* bad : {"", "127.0.0.1", ":1", "h:", "h:0", "h:65536", "h:1x", "::1:1", "[]:1", "h:-1"})
    BOOST_TEST(!troupe::parse_endpoint(bad), bad);
}

// CAF names connections by these numbers, and forgets closed ones late.
BOOST_AUTO_TEST_CASE(numbers_of_closed_sockets_are_not_given_again_soon) {
  std::set<int> numbers;
  for (int i = 0; i < many; ++i) {
    const int fd = opened();
    BOOST_REQUIRE(fd >= 0);
    BOOST_TEST((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    numbers.insert(fd);
    ::close(fd);
  }
  BOOST_TEST(numbers.size() == many);
}

BOOST_AUTO_TEST_CASE(nor_are_those_of_accepted_ones) {
  const int listener = opened();
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  BOOST_REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&at), size) == 0);
  BOOST_REQUIRE(::listen(listener, 4) == 0);
  BOOST_REQUIRE(::getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size) == 0);
  std::set<int> numbers;
  for (int i = 0; i < many; ++i) {
    BOOST_REQUIRE(troupe::probe({"127.0.0.1", ntohs(at.sin_port)}, std::chrono::milliseconds(1000)));
    const int fd = ::accept(listener, nullptr, nullptr);
    BOOST_REQUIRE(fd >= 0);
    numbers.insert(fd);
    ::close(fd);
  }
  ::close(listener);
  BOOST_TEST(numbers.size() == many);
}

BOOST_AUTO_TEST_SUITE_END()
