// Tokens of one engine's branches, counted by their sessions as they come and read by the gateway meanwhile.
#pragma once
#include <atomic>
#include <cstdint>

namespace troupe {

struct token_counters {
  std::atomic<std::uint64_t> prompt{0}, generation{0}; // prompt: of branches whose output has begun

  // A branch that had `before` output tokens has `now`. What came in one message counts at once.
  void take(std::size_t before, std::size_t now, std::size_t prompt_tokens) {
    if (before == 0 && now > 0)
      prompt.fetch_add(prompt_tokens, std::memory_order_relaxed);
    if (now > before)
      generation.fetch_add(now - before, std::memory_order_relaxed);
  }
};

} // namespace troupe
