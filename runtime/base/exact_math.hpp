// fp32 transcendentals of everything that reaches a token (exactness.md §2): no libm, only + - * / sqrt fma and bit
// operations, so the bits do not depend on library or CPU. The sequences stand once, in exact_math-inl.hpp, as
// templates over a lanes policy; this header instantiates them for one float. A SIMD policy includes exact_math-inl.hpp
// inside its own (target specific) namespace and gives each lane the same bits.
#pragma once
#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define TROUPE_EXACT_FN __host__ __device__ inline
#else
#define TROUPE_EXACT_FN inline
#endif

namespace troupe {

// One float as "lanes". A policy offers these names; the Highway op that does the same is given behind each.
struct scalar_lanes {
  using f32 = float;        // vector of float
  using i32 = std::int32_t; // vector of int32
  using mask = bool;        // result of a comparison

  TROUPE_EXACT_FN static f32 set(float v) { return v; }            // Set
  TROUPE_EXACT_FN static i32 set_int(std::int32_t v) { return v; } // Set
#if defined(__CUDA_ARCH__)
  TROUPE_EXACT_FN static f32 add(f32 a, f32 b) {
    return __fadd_rn(a, b);
  }
  TROUPE_EXACT_FN static f32 sub(f32 a, f32 b) {
    return __fsub_rn(a, b);
  }
  TROUPE_EXACT_FN static f32 mul(f32 a, f32 b) {
    return __fmul_rn(a, b);
  }
  TROUPE_EXACT_FN static f32 div(f32 a, f32 b) {
    return __fdiv_rn(a, b);
  }
  TROUPE_EXACT_FN static f32 fma(f32 a, f32 b, f32 c) {
    return __fmaf_rn(a, b, c);
  }
  TROUPE_EXACT_FN static f32 sqrt(f32 a) {
    return __fsqrt_rn(a);
  }
  TROUPE_EXACT_FN static i32 as_int(f32 a) {
    return __float_as_int(a);
  }
  TROUPE_EXACT_FN static f32 as_float(i32 a) {
    return __int_as_float(a);
  }
#else
  TROUPE_EXACT_FN static f32 add(f32 a, f32 b) {
    return a + b;
  } // Add
  TROUPE_EXACT_FN static f32 sub(f32 a, f32 b) {
    return a - b;
  } // Sub
  TROUPE_EXACT_FN static f32 mul(f32 a, f32 b) {
    return a * b;
  } // Mul
  TROUPE_EXACT_FN static f32 div(f32 a, f32 b) {
    return a / b;
  } // Div
  TROUPE_EXACT_FN static f32 fma(f32 a, f32 b, f32 c) {
    return std::fma(a, b, c);
  } // MulAdd (fused: targets with FMA only)
  TROUPE_EXACT_FN static f32 sqrt(f32 a) {
    return std::sqrt(a);
  } // Sqrt
  TROUPE_EXACT_FN static i32 as_int(f32 a) {
    return __builtin_bit_cast(i32, a);
  } // BitCast
  TROUPE_EXACT_FN static f32 as_float(i32 a) {
    return __builtin_bit_cast(f32, a);
  } // BitCast
#endif
  // Nearest integer, half to even, |a| < 2^22. Highway: NearestInt (the sum below is the same function).
  TROUPE_EXACT_FN static i32 round_int(f32 a) {
    return as_int(add(a, 12582912.0f)) - as_int(12582912.0f);
  }
  TROUPE_EXACT_FN static f32 to_float(i32 a) {
    return static_cast<float>(a);
  } // ConvertTo
  TROUPE_EXACT_FN static i32 add_int(i32 a, i32 b) {
    return a + b;
  } // Add
  TROUPE_EXACT_FN static i32 sub_int(i32 a, i32 b) {
    return a - b;
  } // Sub
  TROUPE_EXACT_FN static i32 and_int(i32 a, i32 b) {
    return a & b;
  }                                                               // And
  template <int n> TROUPE_EXACT_FN static i32 shift_left(i32 a) { // ShiftLeft<n>
    return static_cast<i32>(static_cast<std::uint32_t>(a) << n);
  }
  template <int n> TROUPE_EXACT_FN static i32 shift_right(i32 a) { // ShiftRight<n>, arithmetic
    return a >> n;
  }
  TROUPE_EXACT_FN static mask less(f32 a, f32 b) {
    return a < b;
  } // Lt, false with NaN
  TROUPE_EXACT_FN static mask equal(f32 a, f32 b) {
    return a == b;
  } // Eq, false with NaN
  TROUPE_EXACT_FN static f32 select(mask m, f32 yes, f32 no) {
    return m ? yes : no;
  } // IfThenElse
};

namespace exact {
#include "runtime/base/exact_math-inl.hpp"
} // namespace exact

// The scalar instances.
TROUPE_EXACT_FN float exp_f32(float x) {
  return exact::exp_lanes<scalar_lanes>(x);
}
TROUPE_EXACT_FN float log1p_f32(float y) {
  return exact::log1p_lanes<scalar_lanes>(y);
}
TROUPE_EXACT_FN float softplus_f32(float z) {
  return exact::softplus_lanes<scalar_lanes>(z);
}
TROUPE_EXACT_FN float sigmoid_f32(float x) {
  return exact::sigmoid_lanes<scalar_lanes>(x);
}
TROUPE_EXACT_FN float silu_f32(float x) {
  return exact::silu_lanes<scalar_lanes>(x);
}
TROUPE_EXACT_FN float rsqrt_f32(float x) {
  return exact::rsqrt_lanes<scalar_lanes>(x);
}

} // namespace troupe
