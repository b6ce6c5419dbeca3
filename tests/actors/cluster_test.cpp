// Requests through the processes of a cluster, here as several actor systems of one process over loopback: the bytes
// are those of one engine, whichever worker computes them and whichever is lost.
#include "tests/support/sanitizers.hpp"
#include "tests/support/small_cluster.hpp"
#include <boost/test/unit_test.hpp>
#include <thread>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(clusters)

BOOST_AUTO_TEST_CASE(requests_of_every_kind_give_the_bytes_of_one_process) {
  const auto all = mixed_requests(test::by_build(16, 8, 5));
  const auto expected = alone(all);
  small_cluster c(2);
  LLM llm(c.access());
  check_equal(run(llm, all), expected);
}

BOOST_AUTO_TEST_CASE(workers_stop_and_start_while_requests_run_and_no_byte_changes) {
  small_cluster c(2);
  check_through_restarts(c, mixed_requests(test::by_build(24, 12, 6)), 4);
}

// Each numbers its requests and sequences for itself, and their engines serve both.
BOOST_AUTO_TEST_CASE(gateways_do_not_disturb_each_other) {
  small_cluster c(1);
  LLM first(c.access("batch.1")), second(c.access("batch.2"));
  check_both(first, second, mixed_requests(test::by_build(16, 8, 5)));
}

BOOST_AUTO_TEST_CASE(requests_wait_while_no_worker_is_there) {
  const auto all = mixed_requests(6);
  const auto expected = alone(all);
  small_cluster c(1);
  LLM llm(c.access());
  c.workers.clear();
  std::map<std::string, std::string> got;
  std::thread asking([&] { got = run(llm, all); });
  c.start(1);
  asking.join();
  check_equal(got, expected);
}

BOOST_AUTO_TEST_CASE(another_configuration_is_refused_and_silence_has_a_limit) {
  small_cluster c(1);
  cluster_access other = c.access();
  other.ready_ms = 2000;
  other.identity.configuration = "another";
  BOOST_CHECK_EXCEPTION(LLM{other}, config_error, [](const config_error& e) {
    return std::string(e.what()).find("start it with the cluster's file") != std::string::npos;
  });
  other = c.access();
  other.ready_ms = 700;
  other.identity.coordinators = {{"127.0.0.1", 1}};
  BOOST_CHECK_EXCEPTION(LLM{other}, config_error, [](const config_error& e) {
    return std::string(e.what()).find("no coordinator answered within 700 ms") != std::string::npos;
  });
}

BOOST_AUTO_TEST_SUITE_END()
