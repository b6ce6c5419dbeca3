// How well the drafter's confidences foretell acceptance (speculation.md §9, §10). A confidence is the probability that
// a draft is accepted given that those before it were, so only drafts that verification reached count.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

// The drafts of one sequence that one step verified.
struct verified_drafts {
  std::span<const float> confidences; // raw, one for each; numbers outside [0, 1] are clamped
  std::int32_t accepted = 0;          // leading ones that were right
};

struct reliability_bin {
  std::uint64_t drafts = 0, accepted = 0;
  double confidence = 0; // sum
};

// Drafts at one position of the block by confidence.
struct reliability {
  static constexpr std::size_t bins = 10; // of equal width; 1 belongs to the last one
  std::array<reliability_bin, bins> bin{};

  std::uint64_t drafts() const;
  std::uint64_t accepted() const;
  // Expected calibration error: mean over the drafts of their bin's |share accepted - mean confidence|; 0 of none.
  double error() const;
};

class calibration {
public:
  void observe(const verified_drafts& v);

  std::span<const reliability> positions() const { return positions_; } // [longest block so far]
  std::uint64_t drafts() const { return drafts_; }                      // verified, reached or not
  std::uint64_t accepted() const { return accepted_; }
  std::uint64_t blocks() const { return blocks_; }
  // Tokens of one step of a sequence, the target's own included; 1 without drafts.
  double tokens_per_step() const;
  // Drafts cost time and not one of the newest was right: the drafter does not belong to this model or is broken.
  bool useless() const;

  // One temperature a position to divide the logits of the confidences by, so that the products of confidences match
  // how often whole starts of blocks are accepted: sequential temperature scaling on the newest blocks. 1 where the
  // data are too few. `current`: the temperatures that the confidences were made with; 1 where it is too short.
  std::vector<double> suggested_temperatures(std::span<const double> current) const;

  static constexpr std::uint64_t alarm_drafts = 64, alarm_blocks = 256;  // so many drafts at least, of so many at most
  static constexpr std::size_t recent_blocks = 2048, least_blocks = 200; // for temperatures

private:
  struct block {
    std::vector<float> confidences;
    std::int32_t accepted = 0;
  };

  std::vector<reliability> positions_;
  std::uint64_t drafts_ = 0, accepted_ = 0, blocks_ = 0;
  std::vector<block> recent_; // ring
};

} // namespace troupe
