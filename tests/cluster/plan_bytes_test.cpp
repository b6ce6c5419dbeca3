// Step plans as bytes: what is read runs like what was written, and damage is refused.
#include "cluster/plan_bytes.hpp"
#include "tests/support/core_world.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/stub_constraints.hpp"
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <random>

using namespace troupe;

namespace {

std::vector<std::uint8_t> bytes_by_themselves(const step_plan& plan) {
  plan_writer w;
  const byte_span b = w.write(plan);
  return {b.begin(), b.end()};
}

// A plan with something in every field.
step_plan full_plan() {
  const auto spec = std::make_shared<sequence_spec>();
  spec->id = sequence_id{0xFEDCBA9876543210};
  spec->request_id = "r\"1";
  sampling_params& p = spec->params;
  p.temperature = 0.7f, p.top_p = 0.9f, p.top_k = 40, p.min_p = 0.01f, p.max_tokens = 99, p.min_tokens = 3;
  p.ignore_eos = true, p.stop = {"\n\n", "end"}, p.stop_token_ids = {7, 8}, p.n = 3, p.logprobs = false;
  p.top_logprobs = 5, p.prompt_logprobs = true, p.logprobs_mode = logprobs_source::processed, p.seq_seed = 17;
  p.so_args = structured_output_args{.schema_type = "regex", .schema = "a*", .bound_token_id = 4, .indent = 2};
  p.golden_token_ids = {1, 2, 3}, p.logit_bias = {{3, -1.5f}, {4, 2.5f}};
  spec->seq_seed = 0xDEADBEEFCAFEBABE, spec->prompt_tokens = 11, spec->eos_ids = {1}, spec->logit_rows = {0, 5};
  step_plan plan;
  plan.number = 1ull << 40;
  plan.kind = step_kind::decode;
  plan.share_drafts = true;
  planned_sequence s;
  s.spec = spec;
  s.slot = slot_id{6}, s.start = 200, s.slack = 2, s.rows = 3, s.drafts = 2, s.limit = 500, s.first_token = 0;
  s.first_block = 1, s.blocks = 2, s.history = 1, s.sample = true, s.propose = true, s.next = 9, s.first_mask = 1;
  plan.sequences = {s};
  plan.tokens = {token_in_flight, draft_in_flight, 5}, plan.blocks = {4, 5, 6}, plan.history = {-1, 3, 4};
  plan.restores = {{slot_id{1}, slot_id{2}}}, plan.block_copies = {{block_id{3}, block_id{4}}};
  plan.snapshots = {{slot_id{5}, slot_id{6}}};
  plan.arrivals = {{0, 1, slot_id{3}, std::make_shared<const image_bytes>(image_bytes{1, 2, 255})}};
  plan.departures = {{1, 1, slot_id{4}}}, plan.image_blocks = {8, 9};
  plan.mask_words = 2, plan.masks = {1, 2, 0xFFFFFFFF, 4}, plan.mask_rows = {-1, 0, -1, 1};
  return plan;
}

// Plans of the scheduler over the stub model, which runs what a reader has made of them.
void expect_plans_survive(unsigned seed, bool drafts) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<std::int32_t>(random() % static_cast<unsigned>(n)); };
  scheduler_limits l = small_limits(below(2) == 0);
  l.nextn = drafts ? 3 : 0;
  core_world w(l);
  std::vector<core_request> requests;
  for (std::uint64_t id = 1; id <= 12; ++id) {
    core_request r(id, made_prompt(1 + below(300), below(40)), 1 + below(30), random());
    auto spec = std::make_shared<sequence_spec>(*r.spec);
    spec->params.prompt_logprobs = below(4) == 0;
    if (below(3) == 0)
      r.ask.constraint = stub_constraints()[static_cast<std::size_t>(below(6))];
    r.spec = spec;
    requests.push_back(std::move(r));
  }
  plan_writer writer;
  plan_reader reader;
  std::size_t next = 0, plans = 0;
  for (;;) {
    while (next < requests.size() && below(3) == 0)
      BOOST_REQUIRE(w.submit(requests[next++]));
    while (w.begin_turn()) {
      if (!w.end_turn())
        continue;
      step_plan read;
      const step_plan written = std::move(w.out.back());
      const auto ok = reader.read(writer.write(written), read);
      BOOST_REQUIRE_MESSAGE(ok, (ok ? "" : ok.failure().message));
      BOOST_REQUIRE(bytes_by_themselves(read) == bytes_by_themselves(written));
      w.out.back() = std::move(read);
      ++plans;
    }
    if (!w.out.empty())
      w.finish_step();
    else if (next == requests.size())
      break;
  }
  w.settle();
  BOOST_TEST(w.healthy(), w.trouble);
  for (const core_request& r : requests) {
    BOOST_TEST(w.results[r.spec->id.value].ends == 1);
    BOOST_TEST(w.results[r.spec->id.value].tokens == alone(r, w), boost::test_tools::per_element());
  }
  BOOST_TEST(plans > 20u);
}

} // namespace

BOOST_AUTO_TEST_SUITE(plan_bytes)

BOOST_AUTO_TEST_CASE(plans_of_the_scheduler_run_as_they_were_written) {
  for (unsigned seed = 0; seed < test::by_build(60u, 10u, 5u); ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      expect_plans_survive(seed, seed % 2 == 1);
    }
}

BOOST_AUTO_TEST_CASE(every_field_travels) {
  const step_plan plan = full_plan();
  plan_writer writer;
  step_plan read;
  BOOST_REQUIRE(plan_reader().read(writer.write(plan), read));
  BOOST_TEST(read.number == plan.number);
  BOOST_TEST(read.share_drafts);
  const planned_sequence &a = read.sequences.at(0), &b = plan.sequences[0];
  BOOST_TEST((a.spec->params == b.spec->params));
  BOOST_TEST(a.spec->request_id == b.spec->request_id);
  BOOST_TEST(a.spec->seq_seed == b.spec->seq_seed);
  BOOST_TEST(a.spec->logit_rows == b.spec->logit_rows);
  BOOST_TEST(a.slot.value == 6);
  BOOST_TEST(a.next == 9);
  BOOST_TEST(a.first_mask == 1);
  BOOST_TEST(a.propose);
  BOOST_TEST(read.tokens == plan.tokens);
  BOOST_TEST(read.masks == plan.masks);
  BOOST_TEST(read.mask_rows == plan.mask_rows);
  BOOST_TEST((*read.arrivals.at(0).bytes == *plan.arrivals[0].bytes));
  BOOST_TEST(read.departures.at(0).state.value == 4);
  BOOST_TEST(read.block_copies.at(0).to.value == 4);
  BOOST_TEST((bytes_by_themselves(read) == bytes_by_themselves(plan)));
}

BOOST_AUTO_TEST_CASE(what_a_sequence_always_says_travels_once_and_anew_for_the_next_in_its_slot) {
  step_plan plan = full_plan();
  plan_writer writer;
  plan_reader reader;
  step_plan read;
  const std::size_t first = writer.write(plan).size();
  BOOST_REQUIRE(reader.read(writer.write(plan), read).failure().code == "damaged"); // it missed the one before
  plan_writer again;
  plan_reader from_first;
  BOOST_REQUIRE(from_first.read(again.write(plan), read));
  const auto spec = read.sequences[0].spec;
  const byte_span second = again.write(plan);
  BOOST_TEST(second.size() + 100 < first);
  BOOST_REQUIRE(from_first.read(second, read));
  BOOST_TEST(read.sequences[0].spec == spec);
  const auto other = std::make_shared<sequence_spec>(*plan.sequences[0].spec);
  other->seq_seed = 5;
  plan.sequences[0].spec = other;
  BOOST_REQUIRE(from_first.read(again.write(plan), read));
  BOOST_TEST(read.sequences[0].spec->seq_seed == 5u);
}

BOOST_AUTO_TEST_CASE(damage_is_refused) {
  const auto whole = bytes_by_themselves(full_plan());
  step_plan read;
  for (std::size_t cut = 0; cut < whole.size(); ++cut)
    BOOST_REQUIRE(!plan_reader().read(byte_span(whole).first(cut), read));
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    auto damaged = whole;
    damaged[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
    const auto refused = plan_reader().read(damaged, read);
    BOOST_REQUIRE(!refused);
    BOOST_REQUIRE(refused.failure().code == (bit < 32 ? "version" : "damaged"));
  }
}

BOOST_AUTO_TEST_CASE(a_plan_that_points_outside_itself_is_refused) {
  const auto refused = [](const auto& change) {
    step_plan plan = full_plan(), read;
    change(plan);
    plan_writer writer;
    const auto r = plan_reader().read(writer.write(plan), read);
    BOOST_TEST(!r);
    return !r && r.failure().code == "damaged";
  };
  BOOST_TEST(refused([](step_plan& p) { p.sequences[0].first_token = 1; }));
  BOOST_TEST(refused([](step_plan& p) { p.sequences[0].blocks = 3; }));
  BOOST_TEST(refused([](step_plan& p) { p.sequences[0].drafts = 3; }));
  BOOST_TEST(refused([](step_plan& p) { p.sequences[0].first_mask = 2; }));
  BOOST_TEST(refused([](step_plan& p) { p.mask_rows[0] = 2; }));
  BOOST_TEST(refused([](step_plan& p) { p.departures[0].blocks = 2; }));
  BOOST_TEST(refused([](step_plan& p) { p.arrivals[0].first_block = -1; }));
}

BOOST_AUTO_TEST_SUITE_END()
