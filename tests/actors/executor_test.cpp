// The executor over an engine whose steps end when the test says so: what is launched when, and the order of the
// answers.
#include "actors/executor.hpp"
#include "tests/support/by_hand.hpp"
#include <boost/test/unit_test.hpp>
#include <stdexcept>

using namespace troupe;

namespace {

class slow_engine final : public step_engine {
public:
  void launch(const step_plan& plan) override {
    if (plan.number == refused)
      throw std::runtime_error("refused");
    launched.push_back(plan.number);
  }
  bool finished() override { return launched[collected] <= over; }
  void collect(step_result& out) override {
    const std::uint64_t number = launched[collected++];
    if (number == broken)
      throw std::runtime_error("broken");
    out.sequences.resize(1);
    out.sequences[0].tokens = {{static_cast<std::int32_t>(number), 0, {}}};
    out.expert_counts = {1};
  }
  std::vector<std::uint64_t> launched;
  std::size_t collected = 0;
  std::uint64_t over = 0, refused = 0, broken = 0; // steps up to `over` have ended
};

struct bench : by_hand {
  std::shared_ptr<slow_engine> engine = std::make_shared<slow_engine>();
  placement_actor nowhere = sys.spawn([](placement_actor::pointer me) -> placement_actor::behavior_type {
    return {[](const load&) {}, [](const load_reader&) {}, [](const slots&) { return slot_table{}; },
            [=](const stop&) { me->quit(); }};
  });
  executor_actor device = sys.spawn(executor, 0u, std::static_pointer_cast<step_engine>(engine), nowhere, -1);
  std::vector<std::shared_ptr<step_result>> results;

  void send(std::uint64_t number) {
    auto plan = std::make_shared<step_plan>();
    plan->number = number;
    results.push_back(std::make_shared<step_result>());
    tell(&*self, device, step{number, plan, results.back()});
  }
  void turns(int n) {
    for (int i = 0; i < n; ++i)
      sched.try_run_once();
  }
  // Numbers answered since the last call.
  std::vector<std::uint64_t> answers() {
    std::vector<std::uint64_t> got;
    while (!self->mailbox().empty())
      self->receive([&](const step_done& d) { got.push_back(d.number); });
    return got;
  }
  ~bench() {
    engine->over = ~0ull;
    tell_from_outside(device, stop{});
    tell_from_outside(nowhere, stop{});
    sched.run();
  }
};

using numbers = std::vector<std::uint64_t>;

} // namespace

BOOST_FIXTURE_TEST_SUITE(executor_steps, bench)

BOOST_AUTO_TEST_CASE(a_step_is_launched_while_another_runs) {
  send(1);
  turns(20);
  BOOST_TEST(engine->launched == numbers{1}, boost::test_tools::per_element());
  BOOST_TEST(answers().empty());
  send(2); // between two looks at the device
  turns(20);
  BOOST_TEST(engine->launched == (numbers{1, 2}), boost::test_tools::per_element());
  BOOST_TEST(answers().empty());
  engine->over = 1;
  turns(5);
  BOOST_TEST(answers() == numbers{1}, boost::test_tools::per_element());
  BOOST_TEST(results[0]->sequences.at(0).tokens.at(0).id == 1);
  BOOST_TEST(results[0]->number == 1u);
  BOOST_TEST(results[1]->sequences.empty());
  engine->over = 2;
  turns(5);
  BOOST_TEST(answers() == numbers{2}, boost::test_tools::per_element());
  BOOST_TEST(results[1]->sequences.at(0).tokens.at(0).id == 2);
  BOOST_TEST(!sched.try_run_once()); // nothing is out: the device is not looked at any more
}

BOOST_AUTO_TEST_CASE(steps_that_end_together_are_answered_in_order) {
  send(1);
  send(2);
  turns(20);
  engine->over = 2;
  turns(5);
  BOOST_TEST(answers() == (numbers{1, 2}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_failed_launch_waits_for_its_turn) {
  engine->refused = 2;
  send(1);
  send(2);
  turns(20);
  BOOST_TEST(answers().empty());
  BOOST_TEST(results[1]->failure == "refused");
  engine->over = 1;
  turns(5);
  BOOST_TEST(answers() == (numbers{1, 2}), boost::test_tools::per_element());
  BOOST_TEST(results[0]->failure == "");
  send(3); // the device goes on
  engine->over = 3;
  turns(5);
  BOOST_TEST(answers() == numbers{3}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_failed_step_voids_itself_only) {
  engine->broken = 1;
  send(1);
  send(2);
  turns(20);
  engine->over = 2;
  turns(5);
  BOOST_TEST(answers() == (numbers{1, 2}), boost::test_tools::per_element());
  BOOST_TEST(results[0]->failure == "broken");
  BOOST_TEST(results[0]->sequences.empty());
  BOOST_TEST(results[1]->failure == "");
  BOOST_TEST(results[1]->sequences.at(0).tokens.at(0).id == 2);
}

BOOST_AUTO_TEST_SUITE_END()
