// Whether drafting pays (speculation.md §11: speculation must switch itself off), judged by what it would bring: the
// confidences of the newest blocks stand for those to come, whatever the number of sequences is then.
#pragma once
#include "runtime/speculation/acceptance_forecast.hpp"
#include "runtime/speculation/step_cost.hpp"
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

class draft_outlook {
public:
  explicit draft_outlook(std::int32_t nextn);

  // Of one block, [0, 1] each, one for each draft.
  void add(std::span<const float> confidences);
  // The next block to come replaces all.
  void start_anew() { anew_ = true; }
  std::uint64_t blocks() const { return added_; } // that came
  std::int32_t kept() const { return kept_; }     // of them, that count

  // What steps bring that draft and verify what pays.
  struct prospect {
    double gain = 1;  // tokens per ms, as a multiple of those of steps that do neither; infinite without times
    double ms = 0;    // of one step
    double right = 0; // drafts of a block, if all are verified
  };
  // With a gain below 1 drafting takes more time than it saves. sequences >= 1; `most_rows`: of a step.
  prospect expect(std::int32_t sequences, std::int64_t kv_tokens, std::int64_t most_rows, const step_cost& cost,
                  const acceptance_forecast& forecast);
  // The gain if every draft were right.
  double highest_gain(std::int32_t sequences, std::int64_t kv_tokens, std::int64_t most_rows, const step_cost& cost);

  static constexpr std::int32_t fewest = 128, most = 256; // blocks that count, if as many are there
  // Confidence of each draft before any block came: what trained drafters reach (speculation.md §10).
  static constexpr float at_first = .8f;

private:
  double against_plain(const row_budget& with, std::int32_t sequences, const step_cost& cost) const;

  std::int32_t nextn_;
  std::vector<float> blocks_; // ring [most, nextn] of survivals
  std::uint64_t added_ = 0;
  std::int32_t kept_ = 1; // newest blocks that count
  bool anew_ = true;
  std::vector<float> survivals_, scratch_;
  std::vector<timed_size> times_;
};

} // namespace troupe
