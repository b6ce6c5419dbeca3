// A draft round by hand, behind the last forward of a runner.
#pragma once
#include "runtime/model/runner.hpp"
#include <algorithm>
#include <vector>

namespace troupe::test {

struct hand_drafts {
  std::vector<std::int32_t> tokens; // [sequences, block]
  std::vector<float> confidence;    // [sequences, block]
  std::vector<float> logits;        // [sequences, block, vocab] if the runner keeps them
};

// Greedy drafts behind token golden[q] of every sequence q of the last forward, each of whose rows has drawn one.
inline hand_drafts draft_greedily(model_runner& r, device& d, const std::vector<std::int32_t>& slots,
                                  const std::vector<std::int32_t>& golden) {
  stream& s = r.work();
  const std::size_t n = slots.size(), block = static_cast<std::size_t>(r.draft_block()),
                    vocab = static_cast<std::size_t>(r.config().vocab_size);
  std::vector<std::int32_t> place(n);
  for (std::size_t q = 0; q < n; ++q)
    place[q] = static_cast<std::int32_t>(q);
  const auto put = [&](const std::vector<std::int32_t>& v) {
    buffer b = d.allocate(v.size() * sizeof v[0], "a test");
    s.to_device(b.as<std::byte>(), v.data(), v.size() * sizeof v[0]);
    return b;
  };
  const buffer token = put(golden), status = put(std::vector<std::int32_t>(n, 0)), first = put(place),
               outcome = put(std::vector<std::int32_t>(4 * n)), drafts = put(std::vector<std::int32_t>(n * block)),
               confidence = put(std::vector<std::int32_t>(n * block));
  r.verify(token.as<const std::int32_t>(), status.as<const std::int32_t>(), first.as<const std::int32_t>(),
           outcome.as<std::int32_t>());
  sample_row_params greedy;
  greedy.temperature = 0;
  r.draft(slots, std::vector<sample_row_params>(n, greedy), drafts.as<std::int32_t>(), confidence.as<float>());
  hand_drafts o;
  o.tokens.resize(n * block);
  o.confidence.resize(n * block);
  s.to_host(o.tokens.data(), drafts.as<const std::byte>(), 4 * n * block);
  s.to_host(o.confidence.data(), confidence.as<const std::byte>(), 4 * n * block);
  if (const auto kept = r.state().logits) {
    o.logits.resize(n * block * vocab);
    for (std::size_t q = 0; q < n; ++q)
      s.to_host(
          o.logits.data() + q * block * vocab,
          (kept + static_cast<std::int64_t>(static_cast<std::size_t>(slots[q]) * block * vocab)).as<const std::byte>(),
          4 * block * vocab);
  }
  s.synchronise();
  return o;
}

} // namespace troupe::test
