// The row reduction of docs/numerics.md in pieces: 16 partial sums, element i into partial i mod 16, then a tree.
#pragma once
#include "kernels/plain/qualifiers.hpp"

namespace troupe::plain {

// Partial `lane` of n elements.
TROUPE_PLAIN float partial16(const float* a, const float* b, std::int64_t n, int lane) {
  float p = 0;
  for (std::int64_t i = lane; i < n; i += 16)
    p = fma(a[i], b[i], p);
  return p;
}
TROUPE_PLAIN float partial16_weighted(const float* a, const float* b, const float* w, std::int64_t n, int lane) {
  float p = 0;
  for (std::int64_t i = lane; i < n; i += 16) {
    const float t = a[i] * b[i];
    p = fma(t, w[i], p);
  }
  return p;
}

// Adds the partials: l+8 into l, then l+4, l+2, l+1.
TROUPE_PLAIN float combine16(float (&p)[16]) {
  for (int half = 8; half > 0; half /= 2)
    for (int l = 0; l < half; ++l)
      p[l] = p[l] + p[l + half];
  return p[0];
}

} // namespace troupe::plain
