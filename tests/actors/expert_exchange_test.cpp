// Expert executors inside a process: disjoint rows, failures, losses, late answers.
#include "actors/expert_executor.hpp"
#include "cluster/actor_system.hpp"
#include "cluster/shutdown.hpp"
#include "tests/support/stub_process.hpp"
#include <thread>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

// Owns experts with expert % ranks == rank and writes their numbers into y [rows, k].
class stub_experts final : public expert_compute {
public:
  stub_experts(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  void run(int layer, const experts_args& a) override {
    if (fails.load())
      throw device_error("expert memory");
    while (stalls.load())
      std::this_thread::sleep_for(1ms);
    for (std::int64_t i = 0; i < std::int64_t{a.rows} * a.k; ++i)
      if (a.expert.raw()[i] % ranks_ == rank_)
        a.y.raw()[i] = static_cast<float>(1000 * layer + a.expert.raw()[i]);
    ++calls;
  }
  std::atomic<bool> fails{false}, stalls{false};
  std::atomic<int> calls{0};

private:
  int rank_, ranks_;
};

struct exchange_world {
  struct config : caf::actor_system_config {
    config() { prepare_local(*this, 2); }
  };
  config cfg;
  caf::actor_system sys{cfg};
  std::vector<std::shared_ptr<stub_experts>> computes;
  std::shared_ptr<expert_group> group = std::make_shared<expert_group>();
  std::unique_ptr<device> dev = make_device("reference", {});
  std::unique_ptr<stream> work = dev->make_stream();

  exchange_world() {
    for (int rank = 0; rank < 3; ++rank) {
      computes.push_back(std::make_shared<stub_experts>(rank, 3));
      group->members.push_back(
          sys.spawn<caf::detached>(expert_executor, std::shared_ptr<expert_compute>(computes.back())));
    }
  }
  ~exchange_world() {
    for (auto& c : computes)
      c->stalls.store(false);
    for (const auto& m : group->members)
      tell_from_outside(m, stop{});
    group->members.clear();
    if (wait_for_actors(sys, 10s) > 0)
      std::abort();
  }
  // Rows of `seed` through the exchange; true if every contribution is right.
  bool once(int layer, int seed, std::chrono::milliseconds limit = 10s) {
    std::vector<std::int32_t> experts;
    for (int i = 0; i < 5 * 4; ++i)
      experts.push_back((seed * 7 + i * i) % 16);
    std::vector<float> y(experts.size(), -1);
    experts_args a;
    a.expert = dev_ptr<const std::int32_t>(experts.data());
    a.rows = 5;
    a.k = 4;
    a.y = dev_ptr<float>(y.data());
    expert_exchange(group, limit).run(*work, layer, a);
    for (std::size_t i = 0; i < y.size(); ++i)
      if (y[i] != static_cast<float>(1000 * layer + experts[i]))
        return false;
    return true;
  }
  std::string failure(std::chrono::milliseconds limit = 10s) {
    try {
      once(0, 1, limit);
    } catch (const device_error& e) {
      return e.what();
    }
    return "";
  }
};

} // namespace

BOOST_FIXTURE_TEST_SUITE(expert_rows_exchange, exchange_world)

BOOST_AUTO_TEST_CASE(c20_every_contribution_comes_from_its_owner_for_all_engines_at_once) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> engines;
  for (int e = 0; e < 3; ++e)
    engines.emplace_back([&, e] {
      for (int i = 0; i < 200; ++i)
        wrong += once(i % 8, 100 * e + i) ? 0 : 1;
    });
  for (auto& t : engines)
    t.join();
  BOOST_TEST(wrong.load() == 0);
  for (const auto& c : computes)
    BOOST_TEST(c->calls.load() == 600);
}

BOOST_AUTO_TEST_CASE(a_failing_executor_is_a_device_error) {
  computes[1]->fails.store(true);
  BOOST_TEST(failure().find("expert memory") != std::string::npos);
  BOOST_TEST(group->broken.load());
  computes[1]->fails.store(false);
  BOOST_TEST(failure() != ""); // no way back: late writes cannot be told from new ones
}

BOOST_AUTO_TEST_CASE(a_late_executor_is_an_error_within_the_limit) {
  computes[2]->stalls.store(true);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::int32_t> experts(4, 0); // nothing of rank 2: it holds the call up but writes nothing
  std::vector<float> y(4);
  experts_args a;
  a.expert = dev_ptr<const std::int32_t>(experts.data());
  a.rows = 1;
  a.k = 4;
  a.y = dev_ptr<float>(y.data());
  BOOST_CHECK_THROW(expert_exchange(group, 100ms).run(*work, 0, a), device_error);
  BOOST_TEST((std::chrono::steady_clock::now() - begin < 5s));
  computes[2]->stalls.store(false);
  while (computes[2]->calls.load() == 0) // its pointers stay valid until it has answered
    std::this_thread::sleep_for(1ms);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_FIXTURE_TEST_SUITE(expert_executors_in_a_process, stub_process)

BOOST_AUTO_TEST_CASE(a_lost_expert_executor_ends_every_request) {
  setup.exchange = std::make_shared<expert_group>();
  setup.experts = {std::make_shared<stub_experts>(0, 2), std::make_shared<stub_experts>(1, 2)};
  scheduler_limits l;
  l.max_num_seqs = 2;
  l.max_model_len = 200;
  l.kv_blocks = 9;
  launch(l, 2);
  BOOST_TEST(setup.exchange->members.size() == 2u);
  const auto table = query<slot_table>(parts.placement, slots{});
  BOOST_TEST(table.ranks == 2);
  BOOST_TEST(table.slots_per_rank == 2);
  sampling_params p;
  p.max_tokens = 100;
  p.ignore_eos = true;
  for (int i = 0; i < 4; ++i)
    open("r" + std::to_string(i), {1, 2, 3}, p);
  turn(100);
  caf::anon_send_exit(parts.experts[1], caf::exit_reason::kill);
  sched.run();
  for (int i = 0; i < 4; ++i) {
    BOOST_REQUIRE(results["r" + std::to_string(i)].size() == 1u);
    BOOST_TEST(results["r" + std::to_string(i)][0].failure->message.find("expert executor 1") != std::string::npos);
  }
  BOOST_TEST(setup.exchange->broken.load());
  finish();
  BOOST_TEST(setup.exchange->members.empty());
}

BOOST_AUTO_TEST_SUITE_END()
