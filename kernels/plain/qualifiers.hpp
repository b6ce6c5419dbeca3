// The plain set: the arithmetic of every operation, once, for all compilers. Functions here take bare pointers and
// numbers, allocate nothing and throw nothing; kernels/reference and kernels/cuda are the shells that call them.
// TROUPE_PLAIN marks each one. On the host they are always inlined, so that a caller compiled for an instruction set
// with fused multiply-add brings it along.
#pragma once
#include "runtime/base/exact_math.hpp"
#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#define TROUPE_PLAIN __host__ __device__ inline
#else
#define TROUPE_PLAIN [[gnu::always_inline]] inline
#endif

namespace troupe::plain {

// One rounding each, on every target.
TROUPE_PLAIN float fma(float a, float b, float c) {
  return scalar_lanes::fma(a, b, c);
}
TROUPE_PLAIN float root(float a) {
  return scalar_lanes::sqrt(a);
}
TROUPE_PLAIN float magnitude(float a) {
  return scalar_lanes::as_float(scalar_lanes::as_int(a) & 0x7fffffff);
}
template <class T> TROUPE_PLAIN T smaller(T a, T b) {
  return b < a ? b : a;
}
template <class T> TROUPE_PLAIN T larger(T a, T b) {
  return a < b ? b : a;
}

} // namespace troupe::plain
