// What a bad link does to frames, by a seed: loses, repeats, delays (and so reorders) and damages them.
#pragma once
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace troupe::test {

struct fault_rates { // of 1
  double drop = 0, duplicate = 0, corrupt = 0, late = 0;
  std::chrono::microseconds latest{5000}; // a late frame comes up to so much later
};

class frame_faults {
public:
  using parts = std::vector<std::string>;
  struct departure {
    std::chrono::microseconds later{0};
    parts frame;
  };

  frame_faults(const fault_rates& rates, std::uint64_t seed) : rates_(rates), random_(seed) {}

  // What comes out of the link for one frame.
  std::vector<departure> pass(const parts& frame) {
    std::vector<departure> out;
    if (happens(rates_.drop))
      return out;
    for (int copies = happens(rates_.duplicate) ? 2 : 1; copies > 0; --copies) {
      departure d{std::chrono::microseconds(0), frame};
      if (happens(rates_.late))
        d.later = std::chrono::microseconds(random_() % static_cast<std::uint64_t>(rates_.latest.count() + 1));
      if (happens(rates_.corrupt))
        damage(d.frame);
      out.push_back(std::move(d));
    }
    return out;
  }

private:
  bool happens(double rate) { return static_cast<double>(random_() >> 11) * 0x1p-53 < rate; }
  // One to three flipped bits, or a part cut short.
  void damage(parts& frame) {
    std::string& part = frame[random_() % frame.size()];
    if (part.empty())
      return;
    if (random_() % 8 == 0) {
      part.resize(random_() % part.size());
      return;
    }
    for (std::uint64_t n = 1 + random_() % 3; n > 0; --n) {
      const std::uint64_t bit = random_() % (8 * part.size());
      part[bit / 8] = static_cast<char>(part[bit / 8] ^ (1 << (bit % 8)));
    }
  }

  fault_rates rates_;
  std::mt19937_64 random_;
};

} // namespace troupe::test
