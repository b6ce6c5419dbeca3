// Engines in several processes that share their experts (here actor systems of one process over loopback): the bytes
// are those of one process that holds them all, whatever moves and whoever is lost.
#include "tests/support/other_model.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/small_cluster.hpp"

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(expert_groups)

BOOST_AUTO_TEST_CASE(one_request_over_two_ranks_gives_the_bytes_of_one_process) {
  const auto all = mixed_requests(1);
  const auto expected = alone(all);
  small_cluster c(2, 2);
  LLM llm(c.access());
  check_equal(run(llm, all), expected);
}

BOOST_AUTO_TEST_CASE(requests_of_every_kind_over_two_ranks) {
  const auto all = mixed_requests(test::by_build(16, 6, 4));
  const auto expected = alone(all);
  small_cluster c(2, 2);
  LLM llm(c.access());
  check_equal(run(llm, all), expected);
}

BOOST_AUTO_TEST_CASE(requests_of_every_kind_over_four_ranks) {
  const auto all = mixed_requests(test::by_build(16, 6, 4));
  const auto expected = alone(all);
  small_cluster c(4, 4);
  LLM llm(c.access());
  check_equal(run(llm, all), expected);
}

// As between hosts: rows and moving experts travel over ZeroMQ.
BOOST_AUTO_TEST_CASE(requests_of_every_kind_without_shared_memory) {
  const auto all = mixed_requests(test::by_build(16, 6, 4));
  const auto expected = alone(all);
  small_cluster c(2, 2, 4, false);
  LLM llm(c.access());
  group_client client(c);
  bool moved = false;
  check_equal(run(llm, all,
                  [&](std::size_t) {
                    if (!std::exchange(moved, true)) {
                      const ack a = client.move(2, 5, 1);
                      BOOST_TEST((a.code == ack_code::ok), a.note);
                    }
                  }),
              expected);
  BOOST_TEST(moved);
}

BOOST_AUTO_TEST_CASE(two_groups_of_two_ranks_share_requests) {
  const auto all = mixed_requests(test::by_build(16, 6, 4));
  const auto expected = alone(all);
  small_cluster c(4, 2);
  LLM llm(c.access());
  check_equal(run(llm, all), expected);
}

// Requests that run for a while.
std::vector<asked> long_requests(int count, int tokens) {
  auto all = mixed_requests(count);
  for (asked& a : all) {
    a.params.max_tokens = tokens;
    a.params.ignore_eos = true;
    a.params.stop.clear();
  }
  return all;
}

BOOST_AUTO_TEST_CASE(c20_experts_move_while_requests_run_and_no_byte_changes) {
  const auto all = long_requests(test::by_build(16, 6, 4), test::by_build(160, 60, 40));
  const auto expected = alone(all);
  small_cluster c(2, 2);
  LLM llm(c.access());
  group_client client(c);
  const std::uint64_t before = client.table(0).pver;
  std::uint64_t moved = 0;
  std::int32_t n = 0;
  check_equal(run(llm, all,
                  [&](std::size_t) {
                    if (moved == 8)
                      return;
                    const ack a = client.move(n % 8, 5 * n % 24, static_cast<std::uint32_t>(n % 2));
                    ++n;
                    BOOST_TEST((a.code == ack_code::ok || a.code == ack_code::wrong_state), a.note);
                    moved += a.code == ack_code::ok;
                  }),
              expected);
  BOOST_TEST(moved >= test::by_build(6u, 2u, 1u));
  const slot_table t = client.table(0);
  BOOST_TEST(t.pver >= before + moved);
  const expert_placement p{t.pver, t.ranks, t.layers, t.experts, t.slots_per_rank, t.expert_of};
  BOOST_TEST(fault_of(p) == "");
  check_equal(run(llm, all), expected); // under the placement as it is now
}

// How long a step may take while experts move, in steps: as long as without. A copy that never ends (a byte a second)
// holds up none of them, and a request takes as many; the slot that is written is in no placement.
BOOST_AUTO_TEST_CASE(c20_no_step_waits_for_an_expert_that_moves) {
  const auto all = long_requests(test::by_build(8, 4, 3), test::by_build(60, 30, 20));
  const auto expected = alone(all);
  small_cluster c(2, 2);
  c.copy_bytes_per_s = 1;
  c.workers.erase(1);
  c.start(1);
  LLM llm(c.access());
  group_client client(c);
  asked forced; // without drafts, whose number depends on the time of steps
  forced.request.id = "forced";
  forced.request.prompt = "The quick brown fox";
  forced.params.max_tokens = 30;
  forced.params.seq_seed = 1;
  for (int i = 0; i < 30; ++i)
    forced.params.golden_token_ids.push_back(500 + i);
  const auto compute = [&] { return llm.generate({forced.request}, forced.params).at(0); };
  const auto being_written = [&](const slot_table& t) {
    return std::ranges::count(t.expert_of.begin() + 2 * t.ranks * t.slots_per_rank,
                              t.expert_of.begin() + 3 * t.ranks * t.slots_per_rank, -1);
  };
  const generation_result before = compute();
  client.begin_move(2, 5, 1);
  slot_table moving = client.table(0);
  for (int i = 0; i < 6000 && being_written(moving) == 0; ++i, moving = client.table(0))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  check_equal(run(llm, all), expected);
  const generation_result meanwhile = compute();
  const slot_table after = client.table(0);
  BOOST_TEST(being_written(after) == 1);
  BOOST_TEST(after.pver == moving.pver);
  BOOST_TEST(bytes_of(meanwhile) == bytes_of(before));
  BOOST_TEST(before.usage.steps == 30); // one for the prompt, which draws the first token
  BOOST_TEST(meanwhile.usage.steps == 30);
}

BOOST_AUTO_TEST_CASE(an_expert_moves_no_faster_than_the_rank_that_gets_it_may_copy) {
  small_cluster c(2, 2);
  c.copy_bytes_per_s = 100e3;
  c.workers.erase(1);
  c.start(1);
  LLM llm(c.access()); // the group is complete
  group_client client(c);
  const auto began = std::chrono::steady_clock::now();
  const ack a = client.move(2, 5, 1);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  BOOST_TEST((a.code == ack_code::ok), a.note);
  constexpr double bytes = 3 * 384 * 128 / 2; // of three matrices of the embedded model, 4 bits a weight; scales beside
  BOOST_TEST(took.count() >= bytes / c.copy_bytes_per_s);
}

BOOST_AUTO_TEST_CASE(a_move_that_cannot_be_made_is_refused_with_its_reason) {
  small_cluster c(2, 2);
  LLM llm(c.access()); // the group is complete
  group_client client(c);
  const auto refused = [&](const ack& a, ack_code code, const std::string& part) {
    BOOST_TEST((a.code == code));
    BOOST_TEST(a.note.find(part) != std::string::npos, a.note);
  };
  // 24 experts in 2 x 14 slots: 24 to 27 hold experts 0 to 3 again.
  refused(client.move(8, 0, 0), ack_code::unknown, "layer 8: there are 8 layers");
  refused(client.move(0, 24, 0), ack_code::unknown, "expert 24: a layer has 24 experts");
  refused(client.move(0, 5, 0, 14), ack_code::unknown, "slot 14: a rank has 14 slots");
  refused(client.move(0, 5, 1, 0), ack_code::wrong_state, "slot 0 of rank 1 holds the last copy of expert 14");
  refused(client.move(0, 5, 0), ack_code::wrong_state, "rank 0 holds expert 5 in slot 5 already");
  BOOST_TEST((client.move(0, 5, 1, 10).code == ack_code::ok)); // over the second copy of expert 0
  refused(client.move(0, 0, 1, 10), ack_code::ok, "expert 0 of layer 0 is in slot 10 of rank 1");
  BOOST_TEST(client.table(0).expert_of[24] == 0);
  BOOST_TEST(client.table(0).expert_of[5] == 5);
}

BOOST_AUTO_TEST_CASE(without_redundant_slots_nothing_moves) {
  small_cluster c(2, 2, 0);
  LLM llm(c.access());
  group_client client(c);
  const ack a = client.move(3, 2, 1);
  BOOST_TEST((a.code == ack_code::no_space));
  BOOST_TEST(a.note.find("rank 1 has no redundant slot in layer 3") != std::string::npos, a.note);
}

BOOST_AUTO_TEST_CASE(ranks_stop_and_start_while_requests_run_and_no_byte_changes) {
  small_cluster c(2, 2);
  check_through_restarts(c, mixed_requests(test::by_build(24, 8, 5)), 3);
}

// With slots for all experts on the ranks that are left, what only the lost one held comes from the checkpoint.
BOOST_AUTO_TEST_CASE(a_group_with_room_goes_on_without_a_rank) {
  const auto all = mixed_requests(test::by_build(16, 6, 4));
  const auto expected = alone(all);
  small_cluster c(4, 4, 8); // 32 slots, 24 without a rank
  LLM llm(c.access());
  group_client client(c);
  bool lost = false;
  check_equal(run(llm, all,
                  [&](std::size_t) {
                    if (!std::exchange(lost, true))
                      c.workers.erase(2);
                  }),
              expected);
  BOOST_TEST(lost);
  const slot_table t = client.table(0);
  for (std::int32_t layer = 0; layer < t.layers; ++layer)
    for (std::int32_t slot = 2 * t.slots_per_rank; slot < 3 * t.slots_per_rank; ++slot)
      BOOST_TEST(t.expert_of[static_cast<std::size_t>(layer * 4 * t.slots_per_rank + slot)] == -1);
  check_equal(run(llm, all), expected);
}

// What a join compares is a sample of the bytes; the coordinator of the experts knows them all.
BOOST_AUTO_TEST_CASE(a_rank_whose_experts_are_others_is_refused) {
  const auto all = mixed_requests(4);
  const auto expected = alone(all);
  const test_support::temporary_folder folder;
  test_support::write_other_model(folder / "rotten", 100);
  small_cluster c(2, 2);
  LLM llm(c.access());
  c.workers.erase(1);
  engine_options o = embedded_options();
  o.model = folder / "rotten";
  c.start(1, o);
  while (!c.workers.at(1)->expelled())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const std::string why = *c.workers.at(1)->expelled();
  BOOST_TEST(why.find("on the ranks before it: give all hosts the same model folder") != why.npos, why);
  c.workers.erase(1);
  c.start(1);
  check_equal(run(llm, all), expected);
}

// Somebody who reaches the verifiers of the workers from another actor system.
class verifier_client {
public:
  explicit verifier_client(const small_cluster& c) : config_(c.identity, 1), cluster_(c) {}

  spec_verifier_actor of(std::uint32_t rank) {
    const auto root = connect<worker_root_actor>(system_, {"127.0.0.1", cluster_.workers.at(rank)->port()});
    BOOST_REQUIRE(root);
    return answer<engine_info>(*root, engine_query{}).verifier;
  }
  spec_report report(std::uint32_t rank) { return answer<spec_report>(of(rank), spec_query{}); }
  // The first plan for two loads, one behind the other: another rank may be waited for once.
  spec_plan plan(std::uint32_t rank, spec_load l) {
    caf::scoped_actor self{system_};
    const spec_verifier_actor verifier = of(rank);
    tell(self.ptr(), verifier, l);
    ++l.round;
    tell(self.ptr(), verifier, l);
    spec_plan out;
    self->receive([&](const spec_plan& p) { out = p; },
                  caf::after(std::chrono::seconds(30)) >> [] { BOOST_ERROR("no plan"); });
    return out;
  }

private:
  template <class Answer, class Handle, class Query> Answer answer(const Handle& whom, const Query& query) {
    caf::scoped_actor self{system_};
    Answer out{};
    troupe::ask(self.ptr(), whom, std::chrono::seconds(60), query)
        .receive([&](const Answer& a) { out = a; }, [](const caf::error&) { BOOST_ERROR("no answer"); });
    return out;
  }

  cluster_system_config config_;
  bounded_system system_{config_};
  const small_cluster& cluster_;
};

// Runs the requests until one decision of the verifier in rank `which` gave rows to all ranks of `those`.
void run_until_decided(LLM& llm, const std::vector<asked>& all, const std::map<std::string, std::string>& expected,
                       verifier_client& verifiers, std::uint32_t which, const std::vector<std::size_t>& those) {
  bool decided = false;
  const auto look = [&](std::size_t) {
    const spec_report r = verifiers.report(which);
    decided = decided ||
              (r.drafts > 0 && std::ranges::all_of(those, [&](std::size_t rank) { return r.ranks[rank].total_q > 0; }));
  };
  for (int times = 0; times < 20 && !decided; ++times)
    check_equal(run(llm, all, look), expected);
  BOOST_TEST(decided);
}

// The loads of both go to the verifier of rank 0, and its plans come back over the process border.
BOOST_AUTO_TEST_CASE(one_verifier_decides_for_ranks_of_two_processes) {
  const auto all = long_requests(test::by_build(12, 6, 4), 40);
  const auto expected = alone(all);
  small_cluster c(2, 2);
  LLM llm(c.access());
  verifier_client verifiers(c);
  run_until_decided(llm, all, expected, verifiers, 0, {0, 1});
  const spec_report before = verifiers.report(0), own_before = verifiers.report(1);
  check_equal(run(llm, all), expected);
  const spec_report after = verifiers.report(0), own_after = verifiers.report(1);
  BOOST_TEST(after.decisions > before.decisions);
  for (const std::size_t rank : {0u, 1u})
    BOOST_TEST(after.ranks[rank].round > before.ranks[rank].round);
  BOOST_TEST(own_after.decisions == own_before.decisions);

  // What a rank of another process reports is answered with one decision for both.
  spec_load l;
  l.rank = 1;
  l.round = after.ranks[1].round + 1;
  l.sequences = 2;
  l.survivals = pack_f32({0.9f, 0.8f, 0.7f});
  const spec_plan p = verifiers.plan(0, l);
  BOOST_TEST((p.round >= l.round && p.round <= l.round + 1 && p.sequences == 2));
  BOOST_REQUIRE(p.total_q.size() == 2u);
  BOOST_TEST((p.total_q[1] >= 2 && p.total_q[1] <= 5));
}

// The next rank's verifier decides for those that are left; when the process is there again, it does.
BOOST_AUTO_TEST_CASE(another_verifier_decides_when_the_process_of_the_first_is_lost) {
  const auto all = long_requests(test::by_build(12, 6, 4), 40);
  const auto expected = alone(all);
  small_cluster c(4, 4, 8); // experts have slots without a rank
  LLM llm(c.access());
  verifier_client verifiers(c);
  run_until_decided(llm, all, expected, verifiers, 0, {0, 1, 2, 3});
  bool lost = false;
  check_equal(run(llm, all,
                  [&](std::size_t) {
                    if (!std::exchange(lost, true))
                      c.workers.erase(0);
                  }),
              expected);
  BOOST_TEST(lost);
  run_until_decided(llm, all, expected, verifiers, 1, {1, 2, 3});
  c.start(0);
  run_until_decided(llm, all, expected, verifiers, 0, {0, 1, 2, 3});
}

BOOST_AUTO_TEST_SUITE_END()
