// Rotary position tables (model.md §4): frequencies, angles and their cosines and sines, computed at start-up without
// libm so that every machine has the same table (exactness.md §2).
#pragma once
#include <optional>
#include <vector>

namespace troupe {

// Keys of rope_scaling with rope_type yarn.
struct yarn_params {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  double original_max_position_embeddings = 4096;
};

// rope_dim / 2 frequencies, entry i = base^(-2i / rope_dim) in fp32, blended towards 1 / factor of it with yarn.
// rope_dim: even, >= 2; base > 1.
std::vector<float> rope_frequencies(int rope_dim, double base, const std::optional<yarn_params>& yarn = std::nullopt);

// Angle of a position: both factors and the product in fp32, as the reference model computes it.
inline float rope_angle(long position, float frequency) {
  return static_cast<float>(position) * frequency;
}

// Cosine and sine of an angle in radians, |angle| <= 1.1e6, rounded to fp32 from binary64.
void rope_cos_sin(float angle, float& c, float& s);

} // namespace troupe
