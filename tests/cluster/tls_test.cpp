// What comes over TLS from somebody with a key of the cluster who does not speak as its processes do.
#include "cluster/certificates.hpp"
#include "cluster/connect.hpp"
#include "cluster/refused_bytes.hpp"
#include "cluster/shutdown.hpp"
#include "tests/support/process.hpp"
#include "tests/support/speaking_system.hpp"
#include <arpa/inet.h>
#include <array>
#include <boost/test/unit_test.hpp>
#include <memory>
#include <mutex>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

// A process that can be reached.
class listening_process {
public:
  explicit listening_process(const tls_files& keys) : config_(keys) {
    voter_ = system_.spawn(test_support::refusing_voter);
    const auto port = publish(system_, voter_, {"127.0.0.1", 0});
    BOOST_REQUIRE(port);
    at = {"127.0.0.1", *port};
  }
  ~listening_process() {
    tell_from_outside(voter_, stop{});
    voter_ = voter_actor();
  }
  endpoint at;

private:
  test_support::speaking_config config_;
  bounded_system system_{config_};
  voter_actor voter_;
};

// Whether it answers somebody who speaks as one does.
bool answers_to(const tls_files& keys, const endpoint& at) {
  test_support::speaking_config config(keys);
  bounded_system system(config);
  bool answered = false;
  {
    const auto found = connect<voter_actor>(system, at);
    BOOST_REQUIRE(found);
    caf::scoped_actor self{system};
    ask(self.ptr(), *found, 30000ms, lease_ask{.term = 6, .configuration = {}})
        .receive([&](const lease_answer& a) { answered = a.term == 7; }, [](const caf::error&) {});
  }
  return answered;
}

// Whether the other side closes the connection behind these bytes.
bool closes_behind(const std::string& bytes, const tls_files& keys, const endpoint& at) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  BOOST_REQUIRE(SSL_CTX_use_certificate_file(context.get(), keys.certificate.c_str(), SSL_FILETYPE_PEM) == 1);
  BOOST_REQUIRE(SSL_CTX_use_PrivateKey_file(context.get(), keys.key.c_str(), SSL_FILETYPE_PEM) == 1);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  a.sin_port = htons(at.port);
  BOOST_REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0);
  const timeval limit{30, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  bool closed = false;
  {
    const std::unique_ptr<SSL, decltype(&SSL_free)> session(SSL_new(context.get()), SSL_free);
    SSL_set_fd(session.get(), fd);
    if (SSL_connect(session.get()) == 1 && !bytes.empty())
      SSL_write(session.get(), bytes.data(), static_cast<int>(bytes.size()));
    std::array<char, 4096> greeting{}; // which the other side sends at once
    int got = 1;
    while (got > 0)
      got = SSL_read(session.get(), greeting.data(), static_cast<int>(greeting.size()));
    closed = SSL_get_error(session.get(), got) != SSL_ERROR_WANT_READ;
  }
  ::close(fd);
  return closed;
}

} // namespace

BOOST_AUTO_TEST_SUITE(tls)

BOOST_AUTO_TEST_CASE(with_a_key_too_nobody_sends_what_is_no_message) {
  const test_support::temporary_folder there;
  const std::string keys = there / "keys";
  BOOST_REQUIRE(make_cluster_keys(keys, {"n0", "observer"}));
  BOOST_REQUIRE(make_cluster_keys(there / "others", {"n0"}));
  const auto of = [](const std::string& folder, const std::string& name) {
    return tls_files{folder + "/ca.pem", folder + "/" + name + ".pem", folder + "/" + name + ".key"};
  };
  std::mutex guard;
  std::string heard;
  on_refused_bytes([&](const refused_bytes& r) {
    const std::lock_guard lock(guard);
    if (heard.empty()) // what is said of the rest of a connection comes behind it
      heard = r.why;
  });
  const auto refused = [&](const std::string& bytes, const tls_files& whose, const std::string& why) {
    const listening_process p(of(keys, "n0")); // of each port at most one is spoken of in a second
    {
      const std::lock_guard lock(guard);
      heard.clear();
    }
    BOOST_TEST(closes_behind(bytes, whose, p.at));
    const auto said = [&] {
      const std::lock_guard lock(guard);
      return heard;
    };
    for (int i = 0; i < 6000 && said().empty(); ++i) // it may be said behind the end of the connection
      std::this_thread::sleep_for(10ms);
    BOOST_TEST(said() == why);
    admit_only(key_role::observer);
    BOOST_TEST(answers_to(of(keys, "observer"), p.at));
  };
  std::string greeting(32, '\0');
  greeting[0] = 1;
  greeting.replace(4, 4, 4, '\xff'); // the length of what follows
  refused("GET / HTTP/1.1\r\nHost: troupe\r\n\r\n", of(keys, "observer"), "it does not begin with a greeting");
  refused(greeting, of(keys, "observer"), "a message that is too long");
  refused("", of(there / "others", "n0"), "it has no key of the cluster that is good for this process");
  admit_only(key_role::client);
  refused("", of(keys, "observer"), "its key is not good for this process");
  on_refused_bytes(nullptr);
}

BOOST_AUTO_TEST_SUITE_END()
