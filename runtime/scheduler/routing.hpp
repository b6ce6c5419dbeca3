// Which engine gets a new sequence: the one with the least work in tokens, unless another one has its prefix and is not
// much busier. By requests alone engines diverge as soon as lengths differ (C23). Owned by whoever places sequences.
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe {

// What an engine of a cluster is for: whole requests, prompts, or what comes behind them.
enum class engine_kind : std::uint8_t { normal, prompt, completion };

struct engine_load {
  bool accepting = true;               // false: dead, draining, or its queue is full
  std::int64_t outstanding_tokens = 0; // prompt rows and output still to be computed, of all that it was given
  std::int32_t free_blocks = 0;        // of its KV pool, as last heard; blocks of the prefix cache count as free
  std::int32_t blocks = 0;
  engine_kind kind = engine_kind::normal;
  bool full = false; // had no room for a prompt's cache, when it was last asked
};

struct routing_settings {
  std::int32_t remembered_blocks = 1 << 16; // prefix blocks whose engine is remembered, over all engines
  // An engine is chosen for its prefix only while its outstanding tokens, the new ones included, stay below
  // max_over_mean times the mean over all engines plus slack_tokens; for a request that is longer than that by itself,
  // while it has at most a quarter of slack_tokens more than the engine that has least.
  double max_over_mean = 1.25;
  std::int64_t slack_tokens = 2048;
};

inline constexpr std::size_t no_engine = ~std::size_t{0};

class engine_router {
public:
  explicit engine_router(const routing_settings& settings = {});

  // Index into `engines`, no_engine if none accepts. `tokens`: prompt and longest output. `chain`: chain hashes of the
  // prompt's whole blocks, first to last (chain_hash.hpp), as far as a hit may go. The same calls give the same
  // answers. Remembers the chain for the engine chosen. Hashes are hints: a wrong one costs a miss, never a wrong
  // token.
  std::size_t choose_engine(std::span<const engine_load> engines, std::int64_t tokens,
                            std::span<const std::uint64_t> chain);
  // An engine was replaced or lost: what it had is gone.
  void forget(std::size_t engine);

  std::size_t remembered() const { return where_.size(); }

private:
  struct place {
    std::uint64_t hash = 0;
    std::uint32_t engine = 0;
    std::int32_t older = -1, newer = -1;
  };
  void remember(std::span<const std::uint64_t> chain, std::size_t engine);
  void unlink(std::int32_t at);
  void make_newest(std::int32_t at);

  routing_settings settings_;
  std::unordered_map<std::uint64_t, std::int32_t> where_; // hash to index of places_
  std::vector<place> places_;                             // in a list by last use
  std::int32_t oldest_ = -1, newest_ = -1;
  std::vector<std::int32_t> free_;
};

} // namespace troupe
