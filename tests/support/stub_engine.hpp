// A model without arithmetic: the next token is a hash of the whole prefix and the seed, so that a wrong block table, a
// lost row or a wrong position changes the text. Tokens live in the KV blocks that the plan names, as real KV would.
#pragma once
#include "runtime/kv/kv_book.hpp"
#include "runtime/scheduler/plan.hpp"
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace troupe {

inline std::int32_t stub_token(std::span<const std::int32_t> prefix, std::uint64_t seed, std::int32_t vocab) {
  std::uint64_t h = 0x9E3779B97F4A7C15ull ^ seed;
  for (const std::int32_t t : prefix) {
    h = (h ^ static_cast<std::uint64_t>(t)) * 0xBF58476D1CE4E5B9ull;
    h ^= h >> 29;
  }
  return static_cast<std::int32_t>(h % static_cast<std::uint64_t>(vocab));
}

struct stub_model {
  std::int32_t vocab = 50, history = 3;
  std::vector<std::int32_t> cache; // [blocks, 128]
  std::string complaint;           // first thing wrong with a plan

  explicit stub_model(std::int32_t blocks) : cache(static_cast<std::size_t>(blocks) * 128, -7) {}

  void complain(const std::string& what) {
    if (complaint.empty())
      complaint = what;
  }

  // The token at a position, as the block table of the sequence finds it.
  std::int32_t& at(const step_plan& p, const planned_sequence& s, std::int32_t position) {
    const auto block = p.blocks[static_cast<std::size_t>(s.first_block + position / 128)];
    if (block <= 0 || static_cast<std::size_t>(block) * 128 >= cache.size())
      complain("block 0 or outside the pool");
    return cache[static_cast<std::size_t>(block) * 128 + static_cast<std::size_t>(position % 128)];
  }

  void run(const step_plan& p, step_result& r) {
    r.number = p.number;
    r.failure.clear();
    r.sequences.clear();
    for (const planned_sequence& s : p.sequences) {
      if (s.slot.value <= 0 || s.rows <= 0 || s.blocks != blocks_for(s.start + s.rows))
        complain("slot, rows or block table");
      for (std::int32_t i = 0; i < s.rows; ++i)
        at(p, s, s.start + i) = p.tokens[static_cast<std::size_t>(s.first_token + i)];
      std::vector<std::int32_t> prefix;
      for (std::int32_t i = 0; i < s.start + s.rows; ++i)
        prefix.push_back(at(p, s, i));
      for (std::int32_t h = 0; h < history; ++h) {
        const std::int32_t position = s.start - history + h;
        if (p.history[static_cast<std::size_t>(s.history + h)] !=
            (position < 0 ? -1 : prefix[static_cast<std::size_t>(position)]))
          complain("history");
      }
      sequence_result out;
      out.id = s.spec->id;
      const std::int64_t output = static_cast<std::int64_t>(prefix.size()) - s.spec->prompt_tokens;
      if (s.sample) {
        out.sampled = true;
        const auto& golden = s.spec->params.golden_token_ids;
        out.token = output < static_cast<std::int64_t>(golden.size()) ? golden[static_cast<std::size_t>(output)]
                                                                      : stub_token(prefix, s.spec->seq_seed, vocab);
        out.logprob = -static_cast<float>(out.token) / 8;
      }
      if (s.spec->params.prompt_logprobs)
        for (std::int32_t i = s.start; i < s.start + s.rows; ++i)
          if (i + 1 < s.spec->prompt_tokens)
            out.prompt_logprobs.push_back(
                static_cast<float>(i + 1 < s.start + s.rows ? prefix[static_cast<std::size_t>(i) + 1] : s.next));
      for (const std::int32_t row : s.spec->logit_rows)
        if (row >= s.start && row < s.start + s.rows)
          out.logits.push_back(static_cast<float>(prefix[static_cast<std::size_t>(row)]));
      r.sequences.push_back(std::move(out));
    }
  }
};

// What a sequence alone would give: the oracle for every schedule.
struct stub_expectation {
  std::vector<std::int32_t> output;
  bool stopped = false; // by EOS or a stop id; else by length
};
inline stub_expectation stub_alone(const sequence_spec& spec, std::vector<std::int32_t> tokens, std::int32_t vocab,
                                   std::int32_t max_model_len) {
  stub_expectation e;
  while (static_cast<std::int32_t>(tokens.size()) < max_model_len &&
         static_cast<std::int32_t>(e.output.size()) < spec.params.max_tokens) {
    const std::size_t n = e.output.size();
    const auto& golden = spec.params.golden_token_ids;
    const std::int32_t t = n < golden.size() ? golden[n] : stub_token(tokens, spec.seq_seed, vocab);
    tokens.push_back(t);
    e.output.push_back(t);
    bool ends = false;
    for (const std::int32_t id : spec.params.stop_token_ids)
      ends = ends || id == t;
    for (const std::int32_t id : spec.eos_ids)
      ends = ends || (id == t && !spec.params.ignore_eos);
    if (ends && static_cast<std::int32_t>(n) >= spec.params.min_tokens) {
      e.stopped = true;
      break;
    }
  }
  return e;
}

} // namespace troupe
