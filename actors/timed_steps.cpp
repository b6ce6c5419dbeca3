#include "actors/timed_steps.hpp"
#include "runtime/model/step_input.hpp"
#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <random>

namespace troupe {

namespace {

std::int32_t most_rows(const scheduler_limits& l) {
  return std::min(l.max_num_seqs * (1 + l.nextn), l.max_num_batched_tokens);
}

// Greedy sequences of `each` rows, the last one with what is left. Each has a state slot of its own; they share the
// first KV block. Tokens are any, the same at every start: rows of one token would share their experts.
step_plan plan_of(const scheduler_limits& l, std::int32_t vocabulary, std::int32_t rows, std::int32_t each,
                  bool propose) {
  std::mt19937 random(1);
  step_plan p;
  p.kind = step_kind::decode;
  while (rows > 0) {
    auto spec = std::make_shared<sequence_spec>();
    spec->id = sequence_id(p.sequences.size() + 1);
    spec->params.temperature = 0;
    planned_sequence s;
    s.spec = spec;
    s.slot = slot_id(static_cast<std::int32_t>(p.sequences.size()) + 1);
    s.rows = std::min(rows, each);
    s.drafts = s.rows - 1;
    s.first_token = static_cast<std::int32_t>(p.tokens.size());
    s.first_block = static_cast<std::int32_t>(p.blocks.size());
    s.blocks = 1;
    s.history = static_cast<std::int32_t>(p.history.size());
    s.sample = true;
    s.propose = propose;
    for (std::int32_t row = 0; row < s.rows; ++row)
      p.tokens.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(vocabulary)));
    p.blocks.push_back(1);
    p.history.insert(p.history.end(), static_cast<std::size_t>(l.history), -1);
    rows -= s.rows;
    p.sequences.push_back(std::move(s));
  }
  return p;
}

double ms_of(step_engine& engine, const step_plan& plan) {
  try {
    step_result result;
    const auto start = std::chrono::steady_clock::now();
    engine.launch(plan);
    engine.collect(result);
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  } catch (const std::exception&) {
    return 0; // the first real step says what is wrong
  }
}

} // namespace

double time_decode_step(step_engine& engine, const scheduler_limits& limits, std::int32_t vocabulary,
                        std::int32_t rows) {
  return ms_of(engine, plan_of(limits, vocabulary, rows, 1 + limits.nextn, false));
}

drafting_time time_drafting(step_engine& engine, const scheduler_limits& limits, std::int32_t vocabulary,
                            double most_ms) {
  const std::int32_t most = std::min({4, limits.max_num_seqs, limits.max_num_batched_tokens});
  // The quicker of two: one alone would be the first of its kind. 0: the time was over before.
  const auto quicker = [&](std::int32_t sequences, bool propose) {
    double quickest = std::numeric_limits<double>::infinity();
    for (int n = 0; n < 2; ++n) {
      if (most_ms <= 0)
        return 0.0;
      const double ms = ms_of(engine, plan_of(limits, vocabulary, sequences, 1, propose));
      most_ms -= ms;
      quickest = std::min(quickest, ms);
    }
    return quickest;
  };
  const auto extra = [&](std::int32_t sequences) {
    const double with = quicker(sequences, true), without = quicker(sequences, false);
    return without > 0 ? std::max(0.0, with - without) : 0;
  };
  drafting_time t{extra(1), 0};
  if (most > 1)
    t.further = std::max(0.0, (extra(most) - t.first) / (most - 1));
  return t;
}

std::vector<std::int32_t> decode_sizes(const scheduler_limits& limits, bool filled) {
  const std::int32_t most = most_rows(limits);
  std::vector<std::int32_t> sizes;
  for (std::int32_t rows = 1; rows <= most; ++rows)
    if (!filled || filled_size(rows, most) == rows)
      sizes.push_back(rows);
  return sizes;
}

} // namespace troupe
