// The drafter's confidences of one sequence, two rounds of them (speculation.md §6.2). The number of rows of a step is
// chosen from those of the round before the last: the drafts that it verifies did not exist then.
#pragma once
#include "runtime/base/check.hpp"
#include "runtime/base/draft_split.hpp"
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>

namespace troupe {

inline constexpr std::int32_t most_drafts = 32; // of one round

class confidence_history {
public:
  // A step with this sequence was planned, prefill included.
  void schedule() { ++scheduled_; }
  // Its result came: the confidences of the drafts that it left, in [0, 1] afterwards. Empty: it left none, or the
  // sequence ended in it. Returns how many were not finite numbers.
  std::int32_t process(std::span<const float> confidences) {
    TROUPE_CHECK(processed_ < scheduled_, "a result of a step that was not planned");
    TROUPE_CHECK(confidences.size() <= static_cast<std::size_t>(most_drafts), "more confidences than drafts");
    ++processed_;
    newest_ = 1 - newest_;
    round& r = rounds_[newest_];
    r.count = static_cast<std::int32_t>(confidences.size());
    std::int32_t bad = 0;
    for (std::size_t j = 0; j < confidences.size(); ++j) {
      const float c = confidences[j];
      bad += c - c == 0.0f ? 0 : 1;
      r.value[j] = clamped_confidence(c);
    }
    return bad;
  }
  // The sequence lost its cache: everything starts again.
  void reset() { *this = {}; }

  // For the step that is planned next. With a result still out, the latest ones are already those of round N-2.
  std::span<const float> for_budget() const { return in_flight() ? for_split() : before(); }
  // Of round N-1 where they are known; otherwise the device corrects the split (split_drafts).
  std::span<const float> for_split() const { return rounds_[newest_].values(); }
  // Those that for_budget() gave for the step whose result is booked next.
  std::span<const float> before() const { return rounds_[1 - newest_].values(); }
  bool in_flight() const { return scheduled_ != processed_; }
  std::uint64_t scheduled() const { return scheduled_; }
  std::uint64_t processed() const { return processed_; }

private:
  struct round {
    std::int32_t count = 0;
    std::array<float, most_drafts> value{};
    std::span<const float> values() const { return {value.data(), static_cast<std::size_t>(count)}; }
  };
  std::uint64_t scheduled_ = 0, processed_ = 0;
  std::size_t newest_ = 0; // of the two rounds
  std::array<round, 2> rounds_;
};

} // namespace troupe
