#include "runtime/request/ledger.hpp"

namespace troupe {

token_ledger::outcome token_ledger::accept(std::uint32_t attempt, std::int64_t first_position,
                                           std::span<const std::int32_t> tokens) {
  if (attempt != attempt_)
    return {verdict::stale};
  if (first_position > next_position())
    return {verdict::gap};
  if (first_position < first_position_) // a prompt position is no output: the sender counts differently
    return {verdict::diverged, 0, first_position};
  const auto at = static_cast<std::size_t>(first_position - first_position_);
  std::size_t i = 0;
  for (; i < tokens.size() && at + i < tokens_.size(); ++i)
    if (tokens[i] != tokens_[at + i])
      return {verdict::diverged, 0, first_position + static_cast<std::int64_t>(i)};
  tokens_.insert(tokens_.end(), tokens.begin() + static_cast<std::ptrdiff_t>(i), tokens.end());
  return {verdict::accepted, i};
}

std::optional<std::uint32_t> token_ledger::next_attempt() {
  if (attempt_ >= max_attempts_)
    return std::nullopt;
  return ++attempt_;
}

void token_ledger::go_on_at(std::uint32_t attempt) {
  max_attempts_ += attempt - attempt_;
  attempt_ = attempt;
}

} // namespace troupe
