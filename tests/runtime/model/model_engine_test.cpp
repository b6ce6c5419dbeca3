// What a plan asks of the logits, and that pieces of logit rows change nothing.
#include "runtime/model/model_engine.hpp"
#include "tests/support/tiny_model.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::test;

namespace {

std::shared_ptr<sequence_spec> spec_of(std::uint64_t id, std::int32_t prompt) {
  auto s = std::make_shared<sequence_spec>();
  s->id = sequence_id{id};
  s->prompt_tokens = prompt;
  s->seq_seed = 42 + id;
  return s;
}

planned_sequence planned(const std::shared_ptr<const sequence_spec>& spec, std::int32_t start, std::int32_t rows,
                         std::int32_t first, bool sample, std::int32_t next) {
  planned_sequence p;
  p.spec = spec;
  p.slot = slot_id{1};
  p.start = start;
  p.rows = rows;
  p.first_token = first;
  p.blocks = 1;
  p.sample = sample;
  p.next = next;
  return p;
}

} // namespace

BOOST_AUTO_TEST_SUITE(model_engine_jobs)

BOOST_AUTO_TEST_CASE(rows_that_need_logits) {
  auto a = spec_of(1, 10); // a chunk in the middle of its prompt
  a->params.prompt_logprobs = true;
  auto b = spec_of(2, 3); // its whole prompt
  b->logit_rows = {0, 2};
  auto c = spec_of(3, 9); // a chunk that needs nothing
  step_plan plan;
  plan.tokens = {11, 12, 13, 21, 22, 23, 31, 32};
  plan.sequences = {planned(a, 4, 3, 0, false, 14), planned(b, 0, 3, 3, true, -1), planned(c, 0, 2, 6, false, 33)};
  const auto jobs = logit_jobs(plan);
  BOOST_REQUIRE(jobs.size() == 5u);
  BOOST_TEST(jobs[0].prompt_token == 12);
  BOOST_TEST(jobs[0].position == 4);
  BOOST_TEST(jobs[2].prompt_token == 14); // of the next chunk
  BOOST_TEST(jobs[2].row == 2);
  BOOST_TEST(!jobs[2].sample);
  BOOST_TEST(jobs[3].row == 3);
  BOOST_TEST(jobs[3].logits);
  BOOST_TEST(!jobs[3].sample);
  BOOST_TEST(jobs[4].row == 5);
  BOOST_TEST(jobs[4].logits);
  BOOST_TEST(jobs[4].sample);
  BOOST_TEST(jobs[4].prompt_token == -1);
  BOOST_TEST(jobs[4].sequence == 1);
  a->prompt_tokens = 7; // the same rows end the prompt: the last one has no prompt token to score
  plan.sequences[0].next = -1;
  BOOST_TEST(logit_jobs(plan).size() == 4u);
}

BOOST_AUTO_TEST_CASE(ids_that_are_suppressed_until_min_tokens) {
  auto s = spec_of(1, 3);
  s->eos_ids = {1};
  s->params.stop_token_ids = {7, 8};
  std::vector<std::int32_t> ids;
  append_suppressed(*s, ids);
  BOOST_TEST(ids == (std::vector<std::int32_t>{1, 7, 8}), boost::test_tools::per_element());
  ids.clear();
  s->params.ignore_eos = true;
  append_suppressed(*s, ids);
  BOOST_TEST(ids == (std::vector<std::int32_t>{7, 8}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(model_engine_steps)

namespace {

// One prompt in two chunks, then forced and free tokens, with every kind of output.
std::vector<sequence_result> run(int max_logit_rows) {
  std::shared_ptr<device> dev = make_device("cpu", {.threads = 1, .cores = {}});
  const auto weights = load_weights(tiny_checkpoint(), *dev, {.experts = true, .max_positions = 512}, tiny_token_map());
  runner_options o;
  o.max_rows = 64;
  o.max_sequences = 4;
  o.kv_blocks = 4;
  o.state_slots = 4;
  o.max_model_len = 256;
  o.max_logit_rows = max_logit_rows;
  model_engine engine(weights, dev, o);
  auto s = spec_of(1, 20);
  s->params.prompt_logprobs = true;
  s->params.top_logprobs = 3;
  s->params.golden_token_ids = {500, 501};
  s->logit_rows = {0, 1, 2, 11, 19};
  std::vector<std::int32_t> tokens{0};
  for (std::int32_t i = 1; i < 20; ++i)
    tokens.push_back(300 + 17 * i);
  std::vector<sequence_result> all;
  for (const auto& [start, rows] :
       std::vector<std::pair<std::int32_t, std::int32_t>>{{0, 12}, {12, 8}, {20, 1}, {21, 1}}) {
    step_plan plan;
    plan.tokens.assign(tokens.begin() + start, tokens.begin() + start + rows);
    plan.blocks = {1};
    for (std::int32_t h = start - 3; h < start; ++h)
      plan.history.push_back(h < 0 ? -1 : tokens[static_cast<std::size_t>(h)]);
    const bool sample = start + rows == static_cast<std::int32_t>(tokens.size());
    plan.sequences = {planned(s, start, rows, 0, sample, sample ? -1 : tokens[static_cast<std::size_t>(start + rows)])};
    step_result r;
    engine.launch(plan);
    engine.collect(r);
    BOOST_REQUIRE(r.sequences.size() == 1u);
    BOOST_TEST(r.sequences[0].failure == "");
    BOOST_TEST(r.sequences[0].tokens.size() == sample);
    std::uint64_t routed = 0;
    for (const auto c : r.expert_counts)
      routed += c;
    const auto& c = tiny_checkpoint()->config();
    BOOST_TEST(routed == static_cast<std::uint64_t>(rows * c.num_hidden_layers * c.num_experts_per_tok));
    if (sample)
      tokens.push_back(r.sequences[0].tokens[0].id);
    all.push_back(std::move(r.sequences[0]));
  }
  return all;
}

} // namespace

BOOST_AUTO_TEST_CASE(pieces_of_logit_rows_change_nothing) {
  const auto whole = run(64), pieces = run(1);
  BOOST_REQUIRE(whole.size() == 4u);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    BOOST_REQUIRE(whole[i].tokens.size() == pieces[i].tokens.size());
    if (i > 0) {
      BOOST_TEST(whole[i].tokens[0].id == pieces[i].tokens[0].id);
      BOOST_TEST(whole[i].tokens[0].logprob == pieces[i].tokens[0].logprob);
      BOOST_TEST((whole[i].tokens[0].top == pieces[i].tokens[0].top));
    }
    BOOST_TEST(whole[i].prompt_logprobs == pieces[i].prompt_logprobs, boost::test_tools::per_element());
    BOOST_TEST(whole[i].logits == pieces[i].logits, boost::test_tools::per_element());
  }
  BOOST_TEST(whole[0].prompt_logprobs.size() == 12u);
  BOOST_TEST(whole[1].prompt_logprobs.size() == 7u);
  BOOST_TEST(whole[0].logits.size() == 4u * 8192);
  BOOST_TEST(whole[1].logits.size() == 8192u);
  BOOST_TEST(whole[1].tokens[0].id == 500); // forced at the prompt's end and after it
  BOOST_TEST(whole[2].tokens[0].id == 501);
  BOOST_TEST(whole[3].tokens[0].top.size() == 3u);
  BOOST_TEST(whole[3].tokens[0].top[0].second >= whole[3].tokens[0].top[1].second);
}

BOOST_AUTO_TEST_SUITE_END()
