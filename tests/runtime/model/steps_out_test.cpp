// Two steps out at once: tokens that the host does not know yet, copies of states, steps filled up and recorded as
// graphs. Every way to run gives the bits of one sequence alone, one step at a time; on a device with a real queue, so
// that whatever is not waited for shows.
#include "runtime/model/step_input.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/hand_driver.hpp"
#include <random>

using namespace troupe;
using namespace troupe::test;

namespace {

std::vector<std::int32_t> text(std::uint64_t seed, std::int32_t length) {
  std::mt19937_64 random(seed);
  std::vector<std::int32_t> ids{0};
  while (static_cast<std::int32_t>(ids.size()) < length)
    ids.push_back(static_cast<std::int32_t>(300 + random() % 4000));
  return ids;
}

// Requests of every kind that the sampler knows; a function of the number.
hand_run made_run(std::uint64_t id) {
  std::mt19937_64 random(id);
  sampling_params p;
  p.max_tokens = 3 + static_cast<int>(random() % 12);
  p.temperature = id % 4 == 0 ? 0.0f : 0.8f;
  p.top_p = id % 3 == 0 ? 0.9f : 1.0f;
  p.top_k = id % 5 == 0 ? 30 : -1;
  p.top_logprobs = id % 3 == 1 ? 3 : 0;
  p.prompt_logprobs = id % 4 == 1;
  if (id % 4 == 2) // forced tokens between free ones
    p.golden_token_ids = {500, 501, 502};
  if (id % 5 == 3)
    p.logit_bias = {{600, 2.5f}, {601, -4.0f}};
  return {id, text(id, 1 + static_cast<std::int32_t>(random() % 60)), p};
}

constexpr int length = 512; // positions that a sequence has blocks for

void run_alone(step_engine& engine, hand_run& s) {
  s.place(1, 1, length);
  run_to_end(engine, s, 1, 160);
}

// All at once, in steps whose kind, members and chunks are drawn.
void run_together(step_engine& engine, std::vector<hand_run>& runs, std::size_t depth, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  step_driver d(engine, depth);
  std::int32_t place = 0;
  for (hand_run& s : runs) {
    s.place(place + 1, 1 + 4 * place, length);
    ++place;
    d.know(s);
  }
  const auto left = [](const hand_run& s) { return s.prompt_left() > 0 || !s.planned_out(); };
  while (std::any_of(runs.begin(), runs.end(), left)) {
    step_plan& plan = d.next();
    const bool prefill = random() % 3 == 0;
    plan.kind = prefill ? step_kind::prefill : step_kind::decode;
    for (hand_run& s : runs)
      if (prefill && s.prompt_left() > 0 && random() % 3 == 0 && plan.tokens.size() < 60)
        add_rows(plan, s,
                 1 + static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(std::min(s.prompt_left(), 30))));
      else if (!prefill && s.can_decode() && random() % 4 != 0)
        add_rows(plan, s, 1);
    plan.sequences.empty() ? d.drop() : d.launch();
  }
}

void expect_equal(const hand_run& have, const hand_run& want, const std::string& what) {
  BOOST_TEST(have.tokens == want.tokens, boost::test_tools::per_element());
  BOOST_TEST((have.bits() == want.bits()), what << ": sequence " << want.spec->id.value << " differs");
}

} // namespace

BOOST_AUTO_TEST_SUITE(steps_out)

BOOST_AUTO_TEST_CASE(sizes_that_decode_steps_are_filled_up_to) {
  const auto sizes = [](int most) {
    std::vector<int> all;
    for (int rows = 1; rows <= most; ++rows)
      if (const int size = filled_size(rows, most); all.empty() || all.back() != size)
        all.push_back(size);
    return all;
  };
  BOOST_TEST(sizes(24) == (std::vector<int>{1, 2, 4, 8, 16, 24}), boost::test_tools::per_element());
  BOOST_TEST(sizes(20) == (std::vector<int>{1, 2, 4, 8, 16, 20}), boost::test_tools::per_element());
  BOOST_TEST(sizes(6) == (std::vector<int>{1, 2, 4, 6}), boost::test_tools::per_element());
  BOOST_TEST(sizes(1536).size() == 195u);
}

BOOST_AUTO_TEST_CASE(every_way_to_run_gives_the_bits_of_one_alone) {
  constexpr std::uint64_t count = 8;
  std::vector<hand_run> alone;
  {
    const auto engine = tiny_device("cpu").engine();
    for (std::uint64_t id = 1; id <= count; ++id) {
      alone.push_back(made_run(id));
      run_alone(*engine, alone.back());
      BOOST_TEST(alone.back().output().size() == static_cast<std::size_t>(alone.back().spec->params.max_tokens));
    }
  }
  BOOST_TEST(alone[1].output()[1] == 501); // forced
  std::uint64_t seed = 1;
  for (const std::string& name : with_gpu({"cpu", "queued cpu"})) {
    const tiny_device device(name);
    for (const decode_form form : {decode_form::automatic, decode_form::eager, decode_form::padded})
      for (const std::size_t depth : {1, 2}) {
        const int logit_rows = form == decode_form::padded ? 3 : 64; // with 3 logits come in pieces
        const auto engine = device.engine(form, logit_rows);
        std::vector<hand_run> runs;
        for (std::uint64_t id = 1; id <= count; ++id)
          runs.push_back(made_run(id));
        run_together(*engine, runs, depth, seed++);
        for (std::size_t i = 0; i < runs.size(); ++i)
          expect_equal(runs[i], alone[i],
                       name + ", form " + std::to_string(static_cast<int>(form)) + ", depth " + std::to_string(depth));
      }
  }
}

// A snapshot of the state at position 128 and the block before it start a second sequence of the same prefix; a copy of
// a running sequence, its partly filled block included, starts a branch. Both continue as if they had been computed
// alone.
BOOST_AUTO_TEST_CASE(copies_of_states_continue_with_equal_bits) {
  const tiny_device cpu("cpu");
  sampling_params p;
  p.max_tokens = 12;
  std::vector<std::int32_t> first = text(1, 150), second = text(2, 150);
  std::copy_n(first.begin(), 128, second.begin()); // a common prefix of one block
  hand_run a_alone(1, first, p), b_alone(2, second, p);
  {
    const auto engine = cpu.engine();
    run_alone(*engine, a_alone);
    run_alone(*engine, b_alone);
  }
  // the branch: what a had at position 153, three tokens of output included, as a prompt of its own
  std::vector<std::int32_t> branch(a_alone.tokens.begin(), a_alone.tokens.begin() + 154);
  hand_run c_alone(3, branch, p);
  {
    const auto engine = cpu.engine();
    run_alone(*engine, c_alone);
  }
  for (const std::string& name : with_gpu({"cpu", "queued cpu"})) {
    const tiny_device device(name);
    const auto engine = device.engine(decode_form::automatic);
    step_driver d(*engine, 2);
    hand_run a(1, first, p), b(2, second, p), c(3, branch, p);
    a.place(1, 1, length);
    b.place(2, 11, length);
    c.place(3, 21, length);
    d.know(a), d.know(b), d.know(c);
    const slot_id kept{9};
    step_plan* plan = &d.next();
    add_rows(*plan, a, 90);
    d.launch();
    plan = &d.next();
    add_rows(*plan, a, 38);
    plan->snapshots.push_back({a.slot, kept});
    d.launch();
    plan = &d.next();
    add_rows(*plan, a, a.prompt_left());
    d.launch();
    plan = &d.next(); // b while a decodes: the snapshot is older than a's state
    b.computed = 128;
    b.blocks[0] = a.blocks[0];
    plan->restores.push_back({kept, b.slot});
    add_rows(*plan, a, 1);
    add_rows(*plan, b, b.prompt_left());
    d.launch();
    for (int i = 0; i < 2; ++i) {
      plan = &d.next();
      add_rows(*plan, a, 1);
      add_rows(*plan, b, 1);
      d.launch();
    }
    d.finish();
    BOOST_REQUIRE(a.computed == 153);
    plan = &d.next(); // c in the very step in which a goes on
    c.computed = 153;
    c.blocks[0] = a.blocks[0];
    plan->restores.push_back({a.slot, c.slot});
    plan->block_copies.push_back({block_id{a.blocks[1]}, block_id{c.blocks[1]}});
    add_rows(*plan, a, 1);
    add_rows(*plan, c, 1);
    d.launch();
    while (a.can_decode() || b.can_decode() || c.can_decode()) {
      plan = &d.next();
      for (hand_run* s : {&a, &b, &c})
        if (s->can_decode())
          add_rows(*plan, *s, 1);
      d.launch();
    }
    d.finish();
    expect_equal(a, a_alone, name);
    expect_equal(b, b_alone, name);
    expect_equal(c, c_alone, name);
  }
}

// A row that cannot be drawn from ends its sequence only; the token that its next step takes is an id all the same.
BOOST_AUTO_TEST_CASE(an_unusable_row_with_a_step_behind_it) {
  for (const std::string& name : with_gpu({"cpu", "queued cpu"})) {
    const tiny_device device(name);
    const auto engine = device.engine(decode_form::automatic);
    sampling_params p;
    p.max_tokens = 5;
    p.logit_bias = {{700, std::numeric_limits<float>::infinity()}};
    hand_run bad(1, text(1, 10), p);
    hand_run good = made_run(4), alone = made_run(4);
    bad.place(2, 9, length);
    good.place(3, 17, length);
    step_plan plans[2];
    step_result results[2];
    add_rows(plans[0], bad, 10);
    add_rows(plans[0], good, good.prompt_left());
    add_rows(plans[1], bad, 1); // its token is in flight
    add_rows(plans[1], good, 1);
    for (const step_plan& plan : plans)
      engine->launch(plan);
    for (step_result& r : results)
      engine->collect(r);
    BOOST_TEST(!results[0].sequences[0].failure.empty());
    BOOST_TEST(results[0].sequences[0].tokens.empty());
    for (const step_result& r : results)
      take(good, r.sequences[1]);
    run_alone(*tiny_device("cpu").engine(), alone);
    BOOST_TEST(good.tokens[good.tokens.size() - 2] == alone.output()[0]);
    BOOST_TEST(good.tokens.back() == alone.output()[1]);
  }
}

BOOST_AUTO_TEST_SUITE_END()
