// Requests through the processes of a cluster, here as several actor systems of one process over loopback: the bytes
// are those of one engine, whichever worker computes them and whichever is lost.
#include "actors/cluster_access.hpp"
#include "actors/coordinator_process.hpp"
#include "actors/worker_process.hpp"
#include "cluster/incarnation.hpp"
#include "tests/support/embedded_options.hpp"
#include "tests/support/sanitizers.hpp"
#include <boost/test/unit_test.hpp>
#include <condition_variable>
#include <map>

using namespace troupe;

namespace {

struct small_cluster {
  cluster_identity identity;
  std::unique_ptr<coordinator_process> coordinator;
  std::map<std::uint32_t, std::unique_ptr<worker_process>> workers;

  // Of `count` workers, ranks 0, 1, ...
  explicit small_cluster(std::uint32_t count) {
    using std::chrono::milliseconds; // nobody is to be held for dead because the machine is slow
    identity = {"test", "digest", {}, milliseconds(500), milliseconds(60000), {}};
    coordinator_setup c;
    c.suspect = milliseconds(30000);
    c.dead = milliseconds(60000);
    c.cluster = identity;
    c.at = {"127.0.0.1", 0};
    coordinator = std::make_unique<coordinator_process>(c);
    identity.coordinators = {{"127.0.0.1", coordinator->port()}};
    for (std::uint32_t rank = 0; rank < count; ++rank)
      start(rank);
  }
  void start(std::uint32_t rank, const engine_options& options = embedded_options()) {
    worker_setup w;
    w.process = {
        .cluster = identity, .name = "decode." + std::to_string(rank), .node = "n0", .incarnation = mint_incarnation()};
    w.rank = rank;
    w.engine = options;
    workers[rank] = std::make_unique<worker_process>(w);
  }
  cluster_access access(const std::string& name = "batch.1") const {
    cluster_access a;
    a.identity = identity;
    a.name = name;
    a.model = embedded_options().model;
    return a;
  }
};

struct asked {
  generation_request request;
  sampling_params params;
};

// Of every kind: greedy, sampled, branches, log-probabilities of the prompt, stop strings, a constraint.
std::vector<asked> mixed_requests(int count) {
  std::vector<asked> all;
  for (int i = 0; i < count; ++i) {
    asked a;
    a.request.id = "r" + std::to_string(i);
    a.request.prompt =
        std::string(static_cast<std::size_t>(20 + 37 * (i % 5)), static_cast<char>('a' + i % 20)) + " the";
    a.params.max_tokens = 12 + 5 * (i % 7);
    a.params.temperature = i % 3 == 0 ? 0 : 0.8f;
    a.params.ignore_eos = i % 2 == 0;
    a.params.top_logprobs = i % 4;
    a.params.prompt_logprobs = i % 5 == 0;
    a.params.n = i % 6 == 3 ? 3 : 1;
    a.params.seq_seed = 77u + static_cast<unsigned>(i);
    if (i % 7 == 2)
      a.params.stop = {"e"};
    if (i % 8 == 4)
      a.params.so_args = structured_output_args{.schema_type = "regex", .schema = "[a-d]{3,20}"};
    all.push_back(a);
  }
  return all;
}

// What must be equal in every run.
std::string bytes_of(const generation_result& r) {
  generation_result copy = r;
  copy.usage = {};
  copy.cached_tokens = 0;
  return result_line(copy);
}

std::map<std::string, std::string> run(LLM& llm, const std::vector<asked>& all,
                                       const std::function<void(std::size_t)>& after = {}) {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> bytes;
  std::size_t left = 0, texts = 0;
  for (const asked& a : all)
    left += static_cast<std::size_t>(a.params.n);
  for (const asked& a : all) {
    const auto id = llm.submit(a.request, a.params, [&](const generation_event& e) {
      const std::lock_guard lock(mutex);
      ++texts;
      if (e.result) {
        bytes[e.id + "/" + std::to_string(e.index)] = bytes_of(*e.result);
        --left;
      }
      changed.notify_all();
    });
    BOOST_REQUIRE(id);
  }
  std::unique_lock lock(mutex);
  for (std::size_t step = 0; after && left > 0; ++step) {
    const std::size_t seen = texts;
    changed.wait(lock, [&] { return left == 0 || texts > seen + 10; });
    lock.unlock();
    after(step);
    lock.lock();
  }
  changed.wait(lock, [&] { return left == 0; });
  return bytes;
}

// The bytes of one process.
std::map<std::string, std::string> alone(const std::vector<asked>& all) {
  LLM llm(embedded_options());
  return run(llm, all);
}

void check_equal(const std::map<std::string, std::string>& got, const std::map<std::string, std::string>& expected) {
  BOOST_TEST(got.size() == expected.size());
  for (const auto& [id, line] : expected)
    BOOST_CHECK_MESSAGE(got.at(id) == line, id << ": " << got.at(id).substr(0, 300) << "\n  is not\n"
                                               << line.substr(0, 300));
}

} // namespace

BOOST_AUTO_TEST_SUITE(clusters)

BOOST_AUTO_TEST_CASE(requests_of_every_kind_give_the_bytes_of_one_process) {
  const auto all = mixed_requests(test::by_build(16, 8, 5));
  const auto expected = alone(all);
  small_cluster c(2);
  LLM llm(c.access());
  check_equal(run(llm, all), expected);
}

BOOST_AUTO_TEST_CASE(workers_stop_and_start_while_requests_run_and_no_byte_changes) {
  const auto all = mixed_requests(test::by_build(24, 12, 6));
  const auto expected = alone(all);
  small_cluster c(2);
  LLM llm(c.access());
  std::size_t restarts = 0;
  check_equal(run(llm, all,
                  [&](std::size_t step) {
                    if (step >= 4)
                      return;
                    const auto rank = static_cast<std::uint32_t>(step % 2);
                    c.workers.erase(rank);
                    c.start(rank);
                    ++restarts;
                  }),
              expected);
  BOOST_TEST(restarts >= test::by_build(2u, 2u, 1u));
}

// Each numbers its requests and sequences for itself, and their engines serve both.
BOOST_AUTO_TEST_CASE(gateways_do_not_disturb_each_other) {
  const auto all = mixed_requests(test::by_build(16, 8, 5));
  const auto expected = alone(all);
  small_cluster c(1);
  LLM first(c.access("batch.1")), second(c.access("batch.2"));
  std::map<std::string, std::string> got;
  std::thread asking([&] { got = run(first, all); });
  const auto others = run(second, all);
  asking.join();
  check_equal(got, expected);
  check_equal(others, expected);
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
