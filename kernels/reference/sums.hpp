// The two orders of summation of the numerics id "cpu-1" (exactness.md §2, docs/numerics.md): one accumulator per
// output with ascending index, and rows reduced with 16 partial sums.
#pragma once
#include "kernels/clones.hpp"
#include <cstdint>

// A version with fused multiply-add instructions beside the plain one, which calls the C library's fma. Both round the
// exact product and sum once, so their bits are equal.
#ifndef __FMA__
#define TROUPE_FMA_CLONES TROUPE_CLONES("arch=x86-64-v3", "default")
#else
#define TROUPE_FMA_CLONES
#endif

namespace troupe::reference {

// y[o] = fma over k ascending of x[k] * w[k*stride + o], o < out, each starting from 0. y must not overlap x or w.
void product(const float* x, const float* w, std::int64_t in, std::int64_t out, std::int64_t stride, float* y);

// Row reductions of n elements: element i goes into partial i mod 16, then partial l+8 is added to l, then l+4, l+2,
// l+1.
float dot16(const float* a, const float* b, std::int64_t n);                          // a[i] * b[i]
float dot16_weighted(const float* a, const float* b, const float* w, std::int64_t n); // round(a[i]*b[i]) * w[i]

} // namespace troupe::reference
