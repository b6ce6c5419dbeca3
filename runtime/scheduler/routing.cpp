#include "runtime/scheduler/routing.hpp"
#include "runtime/kv/block_pool.hpp"
#include <algorithm>

namespace troupe {

namespace {

// The better place for new work: fewer tokens, then more free KV, then the lower index.
bool better(const engine_load& a, const engine_load& b) {
  if (a.outstanding_tokens != b.outstanding_tokens)
    return a.outstanding_tokens < b.outstanding_tokens;
  return std::int64_t{a.free_blocks} * b.blocks > std::int64_t{b.free_blocks} * a.blocks;
}

} // namespace

engine_router::engine_router(const routing_settings& settings) : settings_(settings) {}

std::size_t engine_router::choose_engine(std::span<const engine_load> engines, std::int64_t tokens,
                                         std::span<const std::uint64_t> chain) {
  std::size_t least = no_engine, roomy = no_engine;
  std::int64_t sum = tokens, accepting = 0;
  for (std::size_t i = 0; i < engines.size(); ++i) {
    if (!engines[i].accepting)
      continue;
    ++accepting;
    sum += engines[i].outstanding_tokens;
    if (least == no_engine || better(engines[i], engines[least]))
      least = i;
    if (engines[i].free_blocks >= blocks_for(tokens) && (roomy == no_engine || better(engines[i], engines[roomy])))
      roomy = i;
  }
  if (least == no_engine)
    return no_engine;

  const double bound =
      std::max(settings_.max_over_mean * static_cast<double>(sum) / static_cast<double>(accepting) +
                   static_cast<double>(settings_.slack_tokens),
               static_cast<double>(engines[least].outstanding_tokens + tokens + settings_.slack_tokens / 4));
  const auto within = [&](std::size_t i) {
    return static_cast<double>(engines[i].outstanding_tokens + tokens) <= bound;
  };
  // An engine that is full would let it wait or preempt others; one with room is better while it is not much busier.
  std::size_t chosen = roomy != no_engine && within(roomy) ? roomy : least;
  for (std::size_t n = chain.size(); n > 0; --n) {
    const auto known = where_.find(chain[n - 1]);
    if (known == where_.end())
      continue;
    const std::size_t holder = places_[static_cast<std::size_t>(known->second)].engine;
    const std::int64_t computed = static_cast<std::int64_t>(n) * tokens_per_kv_block;
    if (holder < engines.size() && engines[holder].accepting && within(holder) &&
        engines[holder].free_blocks >= blocks_for(tokens - computed))
      chosen = holder;
    break;
  }
  remember(chain, chosen);
  return chosen;
}

void engine_router::forget(std::size_t engine) {
  for (std::int32_t at = oldest_; at >= 0;) {
    const std::int32_t next = places_[static_cast<std::size_t>(at)].newer;
    if (places_[static_cast<std::size_t>(at)].engine == engine) {
      where_.erase(places_[static_cast<std::size_t>(at)].hash);
      unlink(at);
      free_.push_back(at);
    }
    at = next;
  }
}

// The last block of a chain is the first to be forgotten: what is shared by many lies at the beginning.
void engine_router::remember(std::span<const std::uint64_t> chain, std::size_t engine) {
  chain = chain.first(std::min(chain.size(), static_cast<std::size_t>(std::max(settings_.remembered_blocks, 0))));
  for (std::size_t n = chain.size(); n > 0; --n) {
    std::int32_t at = -1;
    if (const auto known = where_.find(chain[n - 1]); known != where_.end()) {
      at = known->second;
      unlink(at);
    } else {
      if (static_cast<std::int32_t>(where_.size()) >= settings_.remembered_blocks) {
        where_.erase(places_[static_cast<std::size_t>(oldest_)].hash);
        free_.push_back(oldest_);
        unlink(oldest_);
      }
      if (free_.empty()) {
        free_.push_back(static_cast<std::int32_t>(places_.size()));
        places_.emplace_back();
      }
      at = free_.back();
      free_.pop_back();
      where_.emplace(chain[n - 1], at);
      places_[static_cast<std::size_t>(at)].hash = chain[n - 1];
    }
    places_[static_cast<std::size_t>(at)].engine = static_cast<std::uint32_t>(engine);
    make_newest(at);
  }
}

void engine_router::unlink(std::int32_t at) {
  const place& p = places_[static_cast<std::size_t>(at)];
  (p.older >= 0 ? places_[static_cast<std::size_t>(p.older)].newer : oldest_) = p.newer;
  (p.newer >= 0 ? places_[static_cast<std::size_t>(p.newer)].older : newest_) = p.older;
}

void engine_router::make_newest(std::int32_t at) {
  place& p = places_[static_cast<std::size_t>(at)];
  p.older = newest_;
  p.newer = -1;
  (newest_ >= 0 ? places_[static_cast<std::size_t>(newest_)].newer : oldest_) = at;
  newest_ = at;
}

} // namespace troupe
