// The emitted tokens of one branch, by position (cluster.md §3.5): whatever is retried, replayed or reported twice,
// each position is taken exactly once and never changed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

inline constexpr std::uint32_t default_max_attempts = 8;

class token_ledger {
public:
  // first_position: of the first output token, the prompt's length. Attempts are counted from 1.
  explicit token_ledger(std::int64_t first_position, std::uint32_t max_attempts = default_max_attempts)
      : first_position_(first_position), max_attempts_(max_attempts) {}

  enum class verdict : std::uint8_t {
    accepted, // tokens[fresh, end) were appended, possibly none
    stale,    // of an earlier (or unknown) attempt: ignored
    gap,      // begins behind the next position: ignored, the sender must go back
    diverged  // an overlapping token differs: nothing was appended, the request must fail loudly
  };
  struct outcome {
    verdict what = verdict::stale;
    std::size_t fresh = 0;         // index of the first appended token
    std::int64_t diverged_at = -1; // position
  };
  outcome accept(std::uint32_t attempt, std::int64_t first_position, std::span<const std::int32_t> tokens);

  // Starts over on another place: the attempt's number, nothing when all attempts are used.
  std::optional<std::uint32_t> next_attempt();
  // Goes on with what another process had taken by its attempts, of which this is the next; here all may follow anew.
  void go_on_at(std::uint32_t attempt);

  std::uint32_t attempt() const { return attempt_; }
  std::int64_t next_position() const { return first_position_ + static_cast<std::int64_t>(tokens_.size()); }
  std::span<const std::int32_t> tokens() const { return tokens_; }

private:
  std::int64_t first_position_;
  std::uint32_t max_attempts_;
  std::uint32_t attempt_ = 1;
  std::vector<std::int32_t> tokens_;
};

} // namespace troupe
