#include "kernels/reference/sums.hpp"

#include "kernels/plain/sums.hpp"
#include <cmath>

namespace troupe::reference {
namespace {

constexpr int tile = 64; // outputs whose accumulators stay in registers together; no influence on the bits

} // namespace

TROUPE_FMA_CLONES
void product(const float* x, const float* w, std::int64_t in, std::int64_t out, std::int64_t stride, float* y) {
  std::int64_t o = 0;
  for (; o + tile <= out; o += tile) {
    float acc[tile] = {};
    for (std::int64_t k = 0; k < in; ++k)
      for (int t = 0; t < tile; ++t)
        acc[t] = std::fma(x[k], w[k * stride + o + t], acc[t]);
    for (int t = 0; t < tile; ++t)
      y[o + t] = acc[t];
  }
  for (; o + 8 <= out; o += 8) {
    float acc[8] = {};
    for (std::int64_t k = 0; k < in; ++k)
      for (int t = 0; t < 8; ++t)
        acc[t] = std::fma(x[k], w[k * stride + o + t], acc[t]);
    for (int t = 0; t < 8; ++t)
      y[o + t] = acc[t];
  }
  for (; o < out; ++o) {
    float acc = 0;
    for (std::int64_t k = 0; k < in; ++k)
      acc = std::fma(x[k], w[k * stride + o], acc);
    y[o] = acc;
  }
}

TROUPE_FMA_CLONES
float dot16(const float* a, const float* b, std::int64_t n) {
  float p[16] = {};
  for (std::int64_t i = 0; i < n; ++i)
    p[i % 16] = std::fma(a[i], b[i], p[i % 16]);
  return plain::combine16(p);
}

TROUPE_FMA_CLONES
float dot16_weighted(const float* a, const float* b, const float* w, std::int64_t n) {
  float p[16] = {};
  for (std::int64_t i = 0; i < n; ++i) {
    const float t = a[i] * b[i];
    p[i % 16] = std::fma(t, w[i], p[i % 16]);
  }
  return plain::combine16(p);
}

} // namespace troupe::reference
