// Step plans written by hand: sequences whose rows a test adds to plans as it likes, tokens in flight included.
#pragma once
#include "runtime/kv/block_pool.hpp"
#include "runtime/scheduler/plan.hpp"
#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <numeric>

namespace troupe::test {

struct hand_run {
  std::shared_ptr<sequence_spec> spec = std::make_shared<sequence_spec>();
  std::vector<std::int32_t> tokens; // known ones: prompt, then output
  slot_id slot;
  std::vector<std::int32_t> blocks;
  std::int32_t computed = 0; // positions whose rows were planned
  std::int32_t flying = 0;   // tokens that planned steps draw and nobody knows yet
  // What came back.
  std::vector<float> logprobs, prompt_logprobs;
  std::vector<std::vector<token_logprob>> top;

  hand_run(std::uint64_t id, std::vector<std::int32_t> prompt, const sampling_params& params)
      : tokens(std::move(prompt)) {
    spec->id = sequence_id{id};
    spec->request_id = std::to_string(id);
    spec->params = params;
    spec->seq_seed = 1000 + id;
    spec->prompt_tokens = static_cast<std::int32_t>(tokens.size());
  }
  // A state slot and blocks of its own for `length` positions.
  void place(std::int32_t slot_number, std::int32_t first_block, std::int32_t length) {
    slot = slot_id{slot_number};
    blocks.resize(static_cast<std::size_t>(blocks_for(length)));
    std::iota(blocks.begin(), blocks.end(), first_block);
  }

  std::int32_t length() const { return static_cast<std::int32_t>(tokens.size()) + flying; }
  std::int32_t prompt_left() const { return spec->prompt_tokens - computed; }
  bool can_decode() const { return prompt_left() <= 0 && computed < length() && !planned_out(); }
  // All of its tokens are known or being drawn.
  bool planned_out() const { return length() - spec->prompt_tokens >= spec->params.max_tokens; }
  std::vector<std::int32_t> output() const { return {tokens.begin() + spec->prompt_tokens, tokens.end()}; }

  // Everything of its results, for comparisons bit by bit.
  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> out(tokens.begin(), tokens.end());
    const auto add = [&](float x) { out.push_back(std::bit_cast<std::uint32_t>(x)); };
    std::for_each(logprobs.begin(), logprobs.end(), add);
    std::for_each(prompt_logprobs.begin(), prompt_logprobs.end(), add);
    for (const auto& list : top)
      for (const auto& [id, logprob] : list)
        out.push_back(static_cast<std::uint32_t>(id)), add(logprob);
    return out;
  }
};

// The sequence's next `rows` rows; they draw a token if they reach its end.
inline void add_rows(step_plan& plan, hand_run& s, std::int32_t rows) {
  planned_sequence p;
  p.spec = s.spec;
  p.slot = s.slot;
  p.start = s.computed;
  p.rows = rows;
  p.first_token = static_cast<std::int32_t>(plan.tokens.size());
  p.first_block = static_cast<std::int32_t>(plan.blocks.size());
  p.blocks = blocks_for(p.start + rows);
  p.history = static_cast<std::int32_t>(plan.history.size());
  p.sample = p.start + rows == s.length();
  const auto known = static_cast<std::int32_t>(s.tokens.size());
  if (p.start + rows < s.spec->prompt_tokens)
    p.next = s.tokens[static_cast<std::size_t>(p.start + rows)];
  plan.blocks.insert(plan.blocks.end(), s.blocks.begin(), s.blocks.begin() + p.blocks);
  for (std::int32_t at = p.start - 3; at < p.start; ++at) {
    BOOST_REQUIRE(at < known);
    plan.history.push_back(at < 0 ? -1 : s.tokens[static_cast<std::size_t>(at)]);
  }
  for (std::int32_t at = p.start; at < p.start + rows; ++at)
    plan.tokens.push_back(at < known ? s.tokens[static_cast<std::size_t>(at)] : token_in_flight);
  plan.sequences.push_back(p);
  s.computed += rows;
  s.flying += p.sample;
}

// One sequence's part of a result.
inline void take(hand_run& s, const sequence_result& r) {
  BOOST_REQUIRE_MESSAGE(r.failure.empty(), r.failure);
  s.prompt_logprobs.insert(s.prompt_logprobs.end(), r.prompt_logprobs.begin(), r.prompt_logprobs.end());
  if (r.tokens.empty())
    return;
  s.tokens.push_back(r.tokens[0].id);
  s.logprobs.push_back(r.tokens[0].logprob);
  s.top.push_back(r.tokens[0].top);
  --s.flying;
}

} // namespace troupe::test
