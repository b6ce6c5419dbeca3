// Context-parallel ranks against one rank: equal logits and equal caches, bit for bit, whatever the steps were.
#include "actors/context_exchange.hpp"
#include "actors/context_processes.hpp"
#include "cluster/meeting_board.hpp"
#include "runtime/model/model_engine.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/hand_drafts.hpp"
#include "tests/support/queued_device.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/stub_process.hpp"
#include "tests/support/tiny_model.hpp"
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <random>
#include <thread>
#include <unistd.h>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

constexpr int kv_blocks = 40, state_slots = 8, max_rows = 1024;

// A step, and the rows whose logits are wanted.
struct hand_step {
  step_rows rows;
  std::vector<std::int32_t> wanted;
  bool prefill = false;
};

// Prompts of 1 to 700 tokens in chunks of any size, several sequences in a step; then tokens one or a few at a time.
// keep: rows at a prompt's end that consumer layers compute, 0 = all.
std::vector<hand_step> program(std::uint64_t seed, int vocab, std::vector<std::int32_t> lengths,
                               std::int32_t keep = 0) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
  std::vector<hand_sequence> sequences;
  std::vector<std::vector<std::int32_t>> prompts;
  std::int32_t block = 1;
  for (const auto n : lengths) {
    sequences.emplace_back(static_cast<std::int32_t>(sequences.size()) + 1, block, n + 24);
    block += static_cast<std::int32_t>(sequences.back().blocks.size());
    auto& prompt = prompts.emplace_back();
    for (int i = 0; i < n; ++i)
      prompt.push_back(below(vocab));
  }
  std::vector<hand_step> steps;
  const auto feed = [&](hand_step& s, std::size_t q, std::span<const std::int32_t> tokens) {
    const auto first = static_cast<std::int32_t>(s.rows.tokens.size());
    const std::int32_t from = keep > 0 ? std::max(lengths[q] - keep, 0) : 0,
                       start = static_cast<std::int32_t>(sequences[q].ids.size());
    sequences[q].feed(s.rows, tokens);
    s.rows.replay_from.push_back(from);
    for (const std::int32_t row :
         {below(static_cast<int>(tokens.size())), static_cast<std::int32_t>(tokens.size()) - 1})
      if (start + row >= from)
        s.wanted.push_back(first + row);
  };
  for (bool more = true; more;) {
    hand_step s;
    s.prefill = true;
    for (std::size_t q = 0; q < prompts.size(); ++q) {
      const auto done = sequences[q].ids.size(), left = prompts[q].size() - done;
      const auto room = static_cast<std::size_t>(max_rows) - s.rows.tokens.size();
      if (left == 0 || room == 0 || below(4) == 0)
        continue;
      const auto n = std::min({left, room, static_cast<std::size_t>(below(3) == 0 ? 700 : 1 + below(300))});
      feed(s, q, std::span(prompts[q]).subspan(done, n));
    }
    if (!s.rows.tokens.empty())
      steps.push_back(std::move(s));
    more = false;
    for (std::size_t q = 0; q < prompts.size(); ++q)
      more = more || sequences[q].ids.size() < prompts[q].size();
  }
  for (int i = 0; i < 4; ++i) {
    hand_step s;
    for (std::size_t q = 0; q < prompts.size(); ++q) {
      std::vector<std::int32_t> tokens;
      for (int j = below(5); j >= 0; --j)
        tokens.push_back(below(vocab));
      feed(s, q, tokens);
    }
    steps.push_back(std::move(s));
  }
  return steps;
}

struct outcome {
  std::vector<std::vector<float>> logits; // per step
  std::vector<std::uint64_t> counts; // rows routed to each expert in all steps; ranks > 0 only those of shared steps
  std::vector<std::byte> blocks, slots;
  std::vector<std::int32_t> drafts;
  int shared = 0;
};

runner_options options_of(roundings r, yoco_mode yoco = yoco_mode::off) {
  runner_options o;
  o.rounding = r;
  o.max_rows = max_rows;
  o.max_sequences = state_slots;
  o.kv_blocks = kv_blocks;
  o.state_slots = state_slots;
  o.max_model_len = 1024;
  o.shares_steps = true;
  o.yoco = yoco;
  return o;
}

outcome run_rank(device& dev, const std::shared_ptr<const model_weights>& weights, const runner_options& options,
                 context_group* group, const std::vector<hand_step>& steps) {
  model_runner runner(weights, dev, options, nullptr, group);
  outcome o;
  const auto v = static_cast<std::size_t>(runner.config().vocab_size);
  std::uint64_t number = 0;
  for (hand_step s : steps) {
    if (group) {
      group->meet(++number);
      s.rows.shared = s.prefill && context_split_pays(s.rows.rows, group->ranks());
    }
    o.shared += s.rows.shared;
    runner.forward(s.rows);
    auto& logits = o.logits.emplace_back(s.wanted.size() * v);
    if (!s.wanted.empty())
      runner.work().to_host(logits.data(), runner.logits(s.wanted).as<const std::byte>(),
                            logits.size() * sizeof(float));
    const auto& c = runner.config();
    std::vector<std::uint32_t> counts(static_cast<std::size_t>(c.num_hidden_layers * c.n_routed_experts));
    runner.work().to_host(counts.data(), runner.expert_counts().as<const std::byte>(), 4 * counts.size());
    runner.work().synchronise();
    o.counts.resize(counts.size());
    if (!group || group->rank() == 0 || s.rows.shared)
      for (std::size_t i = 0; i < counts.size(); ++i)
        o.counts[i] += counts[i];
  }
  std::vector<std::int32_t> golden;
  for (std::size_t q = 0; q < steps.back().rows.slot.size(); ++q)
    golden.push_back(100 + static_cast<std::int32_t>(q));
  const auto caches = runner.caches();
  o.blocks.resize(static_cast<std::size_t>(caches.sizes.block_bytes * kv_blocks));
  o.slots.resize(static_cast<std::size_t>(caches.sizes.slot_bytes * state_slots));
  runner.work().to_host(o.blocks.data(), caches.blocks, o.blocks.size());
  runner.work().to_host(o.slots.data(), caches.slots, o.slots.size());
  runner.work().synchronise();
  o.drafts = draft_greedily(runner, dev, steps.back().rows.slot, golden).tokens;
  if (group)
    group->meet(0); // others may still wait for an event of this rank
  return o;
}

// How ranks exchange rows: by pointer, as in one process, or over a board, as processes do, whose places hold less than
// the rows of a layer.
enum class carrier { pointers, board };

std::vector<std::unique_ptr<context_group>> made_groups(carrier by, int ranks) {
  std::vector<std::unique_ptr<context_group>> groups;
  const auto meeting = std::make_shared<context_meeting>(ranks);
  const std::string name = segment_name("test" + std::to_string(::getpid()), "n0", "cp", "meet").value();
  for (int rank = 0; rank < ranks; ++rank) {
    if (by == carrier::pointers) {
      groups.push_back(std::make_unique<context_exchange>(meeting, rank, 600s));
      continue;
    }
    auto board = rank == 0 ? meeting_board::create(name, {static_cast<std::size_t>(ranks), std::size_t{48} << 10, ""})
                           : meeting_board::attach(name, static_cast<std::size_t>(rank));
    BOOST_REQUIRE_MESSAGE(board, (board ? "" : board.failure().message));
    groups.push_back(std::make_unique<context_processes>(std::make_shared<meeting_board>(std::move(*board)), 600s,
                                                         [](const std::string&) {}));
  }
  return groups;
}

// One rank on each of the devices.
std::vector<outcome> run_group(const std::vector<std::string>& names, const runner_options& options,
                               const std::vector<hand_step>& steps, carrier by = carrier::pointers) {
  const auto ranks = static_cast<int>(names.size());
  const auto groups = made_groups(by, ranks);
  std::vector<std::unique_ptr<device>> devices;
  std::map<std::string, std::shared_ptr<const model_weights>> weights;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string& name = names[static_cast<std::size_t>(rank)];
    devices.push_back(open_device(name, {.threads = 1, .cores = {}}));
    auto& w = weights[name];
    if (!w)
      w = load_weights(tiny_checkpoint(), *devices.back(), {.experts = true, .max_positions = 1024 + 8},
                       tiny_token_map());
  }
  std::vector<outcome> out(static_cast<std::size_t>(ranks));
  std::vector<std::string> failures(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto r = static_cast<std::size_t>(rank);
      try {
        out[r] = run_rank(*devices[r], weights.at(names[r]), options, ranks > 1 ? groups[r].get() : nullptr, steps);
      } catch (const std::exception& e) {
        failures[r] = e.what();
        groups[r]->abandon(e.what());
      }
    });
  for (auto& t : threads)
    t.join();
  for (const auto& f : failures)
    BOOST_REQUIRE_MESSAGE(f.empty(), f);
  return out;
}

template <class T> bool same_bytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Groups of these sizes, spread over the devices, against one rank on the first.
void compare(const std::vector<std::string>& devices, roundings rounding, const std::vector<int>& sizes,
             const std::vector<hand_step>& steps, yoco_mode yoco = yoco_mode::off, carrier by = carrier::pointers) {
  const runner_options options = options_of(rounding, yoco);
  const outcome alone = run_group({devices[0]}, options, steps)[0];
  for (const int ranks : sizes) {
    std::vector<std::string> names;
    for (int rank = 0; rank < ranks; ++rank)
      names.push_back(devices[static_cast<std::size_t>(rank) % devices.size()]);
    const auto group = run_group(names, options, steps, by);
    std::vector<std::uint64_t> counts(alone.counts.size());
    for (std::size_t rank = 0; rank < group.size(); ++rank) {
      const auto& o = group[rank];
      BOOST_TEST_CONTEXT(names[rank] << ", rank " << rank << " of " << ranks) {
        BOOST_TEST(o.shared > 0);
        BOOST_REQUIRE_EQUAL(o.logits.size(), alone.logits.size());
        for (std::size_t s = 0; s < o.logits.size(); ++s)
          BOOST_TEST(same_bytes(o.logits[s], alone.logits[s]), "logits of step " << s);
        BOOST_TEST(same_bytes(o.blocks, alone.blocks));
        BOOST_TEST(same_bytes(o.slots, alone.slots));
        BOOST_TEST(o.drafts == alone.drafts, boost::test_tools::per_element());
        for (std::size_t i = 0; i < counts.size(); ++i)
          counts[i] += o.counts[i];
      }
    }
    BOOST_TEST((counts == alone.counts));
  }
}

} // namespace

BOOST_AUTO_TEST_SUITE(context_parallel)

BOOST_AUTO_TEST_CASE(ranks_give_the_bits_of_one_rank) {
  const int vocab = tiny_checkpoint()->config().vocab_size;
  if (any_sanitizer) {
    compare({"cpu"}, roundings::serving, {3}, program(2, vocab, {140, 31}));
    return;
  }
  compare({"cpu"}, roundings::serving, {2, 4}, program(1, vocab, {700, 1, 129, 64, 258}));
  compare({"cpu"}, roundings::serving, {2, 3}, program(2, vocab, {333, 131, 127}));
  compare({"cpu"}, roundings::off, {2}, program(3, vocab, {150, 301}));
  compare({"reference", "cpu"}, roundings::serving, {2}, program(4, vocab, {90}));
}

// Rows that consumer layers leave out: what stays is shared anew, or computed by every rank where it is little.
BOOST_AUTO_TEST_CASE(ranks_that_leave_out_rows_give_the_bits_of_one_rank) {
  const int vocab = tiny_checkpoint()->config().vocab_size;
  if (any_sanitizer) {
    compare({"queued cpu"}, roundings::serving, {2}, program(9, vocab, {300, 31}, 140), yoco_mode::compact);
    return;
  }
  compare({"cpu"}, roundings::serving, {2, 3}, program(8, vocab, {700, 1, 258}, 300), yoco_mode::compact);
  compare({"queued cpu"}, roundings::serving, {2}, program(9, vocab, {420, 200}, 140), yoco_mode::compact);
  compare({"cpu"}, roundings::serving, {2}, program(10, vocab, {400}, 140), yoco_mode::mask);
}

// Operations that run some time after they were called: rows are taken when they are there, and not overwritten before.
BOOST_AUTO_TEST_CASE(ranks_with_queues_give_the_bits_of_one_rank) {
  const std::vector<std::int32_t> lengths{333, 131, 127}, few{140, 31};
  compare({"queued cpu"}, roundings::serving, by_build<std::vector<int>>({2, 3}, {2}, {2}),
          program(7, tiny_checkpoint()->config().vocab_size, by_build(lengths, few, few)));
}

// As between processes.
BOOST_AUTO_TEST_CASE(ranks_that_show_rows_on_a_board_give_the_bits_of_one_rank) {
  const int vocab = tiny_checkpoint()->config().vocab_size;
  if (any_sanitizer) {
    compare({"cpu"}, roundings::serving, {2}, program(2, vocab, {140, 31}), yoco_mode::off, carrier::board);
    return;
  }
  compare({"cpu"}, roundings::serving, {2, 3}, program(8, vocab, {700, 1, 258}, 300), yoco_mode::compact,
          carrier::board);
  compare({"queued cpu"}, roundings::serving, {2}, program(7, vocab, {333, 131}), yoco_mode::off, carrier::board);
}

BOOST_AUTO_TEST_CASE(ranks_on_a_gpu_give_the_bits_of_one_rank) {
  if (gpu())
    compare({"cuda-reference"}, roundings::serving, {2, 4},
            program(5, tiny_checkpoint()->config().vocab_size, {700, 1, 129, 64, 258}));
}

BOOST_AUTO_TEST_CASE(ranks_on_two_gpus_give_the_bits_of_one_rank) {
  if (!gpu())
    return;
  try {
    (void)make_device("cuda-reference:1", {});
  } catch (const config_error& e) {
    BOOST_TEST_MESSAGE("skipped: " << e.what());
    return;
  }
  compare({"cuda-reference:0", "cuda-reference:1"}, roundings::serving, {2, 4},
          program(6, tiny_checkpoint()->config().vocab_size, {700, 1, 129, 64, 258}));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(context_meetings)

namespace {

// What a rank's calls end with; empty = all is well.
template <class F> std::string failure_of(F&& f) {
  try {
    f();
  } catch (const device_error& e) {
    return e.what();
  }
  return "";
}

} // namespace

BOOST_AUTO_TEST_CASE(rows_of_all_ranks_come_together) {
  constexpr int ranks = 4, rounds = 300;
  const auto meeting = std::make_shared<context_meeting>(ranks);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto dev = make_device("reference", {});
      const auto s = dev->make_stream();
      context_exchange group(meeting, rank, 600s);
      std::vector<std::int32_t> mine(64), all(200);
      for (int round = 0; round < rounds; ++round) {
        const std::vector<std::int32_t> rows{30 + round % 20, 1 + round % 7};
        context_split split(ranks);
        split.assign(rows);
        const auto own = split.rows_of(rank);
        for (std::size_t i = 0; i < own.size(); ++i)
          mine[i] = 1000 * round + own[i];
        group.meet(static_cast<std::uint64_t>(round));
        group.gather(*s, dev_ptr<const std::int32_t>(mine.data()).as<const std::byte>(), 4, split.runs(),
                     dev_ptr<std::int32_t>(all.data()).as<std::byte>());
        std::fill(mine.begin(), mine.end(), -1); // allowed at once
        for (std::int32_t i = 0; i < rows[0] + rows[1]; ++i)
          wrong += all[static_cast<std::size_t>(i)] != 1000 * round + i;
      }
    });
  for (auto& t : threads)
    t.join();
  BOOST_TEST(wrong.load() == 0);
}

BOOST_AUTO_TEST_CASE(a_rank_that_does_not_come_is_an_error_within_the_limit) {
  const auto meeting = std::make_shared<context_meeting>(2);
  const std::string why = failure_of([&] { context_exchange(meeting, 0, 50ms).meet(1); });
  BOOST_TEST(why.find("1 of 2 ranks") != std::string::npos, why);
  BOOST_TEST(meeting->ended());
  BOOST_TEST(failure_of([&] { context_exchange(meeting, 1, 60s).meet(1); }) != ""); // too late
}

BOOST_AUTO_TEST_CASE(a_rank_that_gives_up_frees_the_others_at_once) {
  const auto meeting = std::make_shared<context_meeting>(2);
  std::string why;
  std::thread waits([&] { why = failure_of([&] { context_exchange(meeting, 0, 600s).meet(1); }); });
  context_exchange(meeting, 1, 60s).abandon("out of memory");
  waits.join();
  BOOST_TEST(why.find("rank 1: out of memory") != std::string::npos, why);
}

BOOST_AUTO_TEST_CASE(ranks_at_different_steps_are_an_error) {
  const auto meeting = std::make_shared<context_meeting>(2);
  std::string why[2];
  std::thread other([&] { why[1] = failure_of([&] { context_exchange(meeting, 1, 60s).meet(8); }); });
  why[0] = failure_of([&] { context_exchange(meeting, 0, 60s).meet(7); });
  other.join();
  BOOST_TEST(why[0].find("different") != std::string::npos, why[0]);
  BOOST_TEST(why[1].find("different") != std::string::npos, why[1]);
}

// Expert executors that are lost in the middle of a step.
class lost_experts final : public expert_backend {
public:
  void run(stream&, int, experts_args) override { throw device_error("expert memory"); }
};

BOOST_AUTO_TEST_CASE(a_rank_whose_device_fails_ends_the_step_of_the_others) {
  const auto meeting = std::make_shared<context_meeting>(2);
  std::string why[2];
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      std::shared_ptr<device> dev = make_device("cpu", {.threads = 1, .cores = {}});
      const auto weights =
          load_weights(tiny_checkpoint(), *dev, {.experts = true, .max_positions = 1024 + 8}, tiny_token_map());
      model_engine engine(weights, dev, options_of(roundings::serving),
                          rank == 1 ? std::make_unique<lost_experts>() : nullptr,
                          std::make_unique<context_exchange>(meeting, rank, 600s));
      auto spec = std::make_shared<sequence_spec>();
      spec->prompt_tokens = 100;
      step_plan plan;
      plan.number = 1;
      plan.kind = step_kind::prefill;
      planned_sequence s;
      s.spec = spec;
      s.slot = slot_id{1};
      s.rows = 100;
      s.blocks = 1;
      plan.sequences = {s};
      plan.tokens.assign(100, 5);
      plan.blocks = {1};
      plan.history.assign(3, -1);
      why[rank] = failure_of([&] { engine.launch(plan); });
    });
  for (auto& r : ranks)
    r.join();
  BOOST_TEST(why[1] == "expert memory");
  BOOST_TEST(why[0].find("rank 1: expert memory") != std::string::npos, why[0]);
  BOOST_TEST(meeting->ended());
}

BOOST_AUTO_TEST_SUITE_END()

namespace {

// Two engines of three ranks each over the stub model.
struct stub_ranks : stub_process {
  std::vector<std::shared_ptr<stub_step_engine>> followers;
  void launch_ranks() {
    scheduler_limits l;
    l.max_num_seqs = 4;
    l.max_num_batched_tokens = 50;
    l.max_model_len = 300;
    l.kv_blocks = 13;
    for (int e = 0; e < 2; ++e) {
      context_ranks c;
      c.team = std::make_shared<context_team>();
      c.team->meeting = std::make_shared<context_meeting>(3);
      for (int rank = 1; rank < 3; ++rank) {
        followers.push_back(std::make_shared<stub_step_engine>(l.kv_blocks, test_vocabulary()->vocab_size()));
        c.engines.push_back(followers.back());
        c.cores.push_back(-1);
      }
      setup.context.push_back(std::move(c));
    }
    launch(l, 2);
  }
  void open_some() {
    sampling_params p;
    p.max_tokens = 60;
    p.ignore_eos = true;
    for (int i = 0; i < 6; ++i)
      open("r" + std::to_string(i), std::vector<std::int32_t>(static_cast<std::size_t>(20 + 30 * i), 3 + i), p);
  }
};

} // namespace

BOOST_FIXTURE_TEST_SUITE(context_ranks_in_a_process, stub_ranks)

BOOST_AUTO_TEST_CASE(every_rank_runs_every_step) {
  launch_ranks();
  open_some();
  sched.run();
  for (int i = 0; i < 6; ++i) {
    BOOST_REQUIRE(results["r" + std::to_string(i)].size() == 1u);
    BOOST_TEST(results["r" + std::to_string(i)][0].token_ids.size() == 60u);
  }
  for (std::size_t e = 0; e < 2; ++e)
    for (std::size_t f = 2 * e; f < 2 * e + 2; ++f) {
      BOOST_TEST(engines[e]->steps > 10);
      BOOST_TEST(followers[f]->steps == engines[e]->steps);
      BOOST_TEST(followers[f]->model.complaint == "");
      BOOST_TEST((followers[f]->model.cache == engines[e]->model.cache));
    }
  expect_quiet();
  finish();
  for (const auto& c : setup.context) {
    BOOST_TEST(c.team->followers.empty());
    BOOST_TEST(c.team->meeting->ended()); // so that nobody can wait for a rank that is gone
  }
}

BOOST_AUTO_TEST_CASE(a_killed_rank_ends_the_requests_of_its_engine_with_an_error) {
  launch_ranks();
  open_some();
  turn(200);
  caf::anon_send_exit(parts.engines[0].followers[1], caf::exit_reason::kill);
  sched.run();
  int lost = 0;
  for (int i = 0; i < 6; ++i) {
    const auto& r = results["r" + std::to_string(i)];
    BOOST_REQUIRE(r.size() == 1u);
    if (!r[0].failure) {
      BOOST_TEST(r[0].token_ids.size() == 60u); // of the other engine
      continue;
    }
    ++lost;
    BOOST_TEST(r[0].failure->message.find("context-parallel rank 2 ended") != std::string::npos, r[0].failure->message);
  }
  BOOST_TEST(lost > 0);
  BOOST_TEST(lost < 6);
  BOOST_TEST(setup.context[0].team->meeting->ended()); // rank 0 and rank 1 do not wait
  BOOST_TEST(!setup.context[1].team->meeting->ended());
  open("after", {1, 2, 3}, {}); // goes to the engine that is left
  sched.run();
  BOOST_REQUIRE(results["after"].size() == 1u);
  BOOST_TEST(!results["after"][0].failure.has_value());
  finish();
}

BOOST_AUTO_TEST_SUITE_END()
