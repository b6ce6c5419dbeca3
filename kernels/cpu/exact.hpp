// The lanes policy of the cpu kernels laid open for tests: runtime/base/exact_math.hpp's functions, and the fused
// multiply-add that they and every product stand on, with the instruction set in use.
#pragma once
#include <cstddef>

namespace troupe::cpu {

enum class exact_function { exp, log1p, softplus, sigmoid, silu, rsqrt };
void apply(exact_function f, const float* x, float* out, std::size_t n);
void fused_multiply_add(const float* a, const float* b, const float* c, float* out, std::size_t n);

} // namespace troupe::cpu
