#include "actors/step_carriers.hpp"
#include "tests/support/answering_executor.hpp"
#include "tests/support/forked.hpp"
#include <boost/test/unit_test.hpp>
#include <thread>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(step_carriers)

// A group that has ended must not be waited for, whether its other host answers or not.
BOOST_AUTO_TEST_CASE(a_link_that_is_shut_is_so_for_good) {
  const segment_names names;
  auto board = step_board::create(names("s", "x"), {.executors = 2});
  BOOST_REQUIRE(board);
  step_link_server_options options;
  options.identity = {.cluster = "c", .incarnation = 3, .token = "t", .executors = 2};
  const auto server = step_link_server::start(options, std::move(*board));
  BOOST_REQUIRE(server);
  const endpoint at{"127.0.0.1", server->port()};

  steps_by_link steps(2);
  const byte_vector piece(10);
  BOOST_TEST(steps.post(1, piece, 1s).failure().code == "unreachable");
  BOOST_TEST(!steps.lost());
  BOOST_REQUIRE(steps.connect(at, options.identity, 10s));
  BOOST_REQUIRE(steps.post(1, piece, 1s)); // nobody is there to answer
  std::string code;
  std::thread waiting([&] { code = steps.wait(1, 1h).failure().code; });
  std::this_thread::sleep_for(20ms);
  steps.shut();
  waiting.join();
  BOOST_TEST(code == "peer_gone");
  BOOST_TEST(!steps.post(2, piece, 1s));

  auto other = step_board::create(names("s", "y"), {.executors = 2});
  BOOST_REQUIRE(other);
  const auto second = step_link_server::start(options, std::move(*other));
  BOOST_REQUIRE(second);
  steps_by_link late(2);
  late.shut();
  BOOST_TEST(late.connect({"127.0.0.1", second->port()}, options.identity, 10s).failure().code == "closed");
  BOOST_TEST(!late.connected());
}

BOOST_AUTO_TEST_SUITE_END()
