#include "kernels/cpu/exact.hpp"

#include "kernels/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/exact.cpp"
#include "hwy/foreach_target.h"

#include "kernels/cpu/sum-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace troupe::cpu {
namespace HWY_NAMESPACE {

void apply_all(exact_function f, const float* x, float* out, std::size_t n) {
  using policy = vector_lanes_policy;
  for_elements(static_cast<std::int64_t>(n), [&](auto part, std::int64_t i) TROUPE_INLINED {
    const f32v v = part.load(x + i);
    f32v y = v;
    switch (f) {
    case exact_function::exp:
      y = exact::exp_lanes<policy>(v);
      break;
    case exact_function::log1p:
      y = exact::log1p_lanes<policy>(v);
      break;
    case exact_function::softplus:
      y = exact::softplus_lanes<policy>(v);
      break;
    case exact_function::sigmoid:
      y = exact::sigmoid_lanes<policy>(v);
      break;
    case exact_function::silu:
      y = exact::silu_lanes<policy>(v);
      break;
    case exact_function::rsqrt:
      y = exact::rsqrt_lanes<policy>(v);
      break;
    }
    part.store(y, out + i);
  });
}

void fuse_all(const float* a, const float* b, const float* c, float* out, std::size_t n) {
  for_elements(static_cast<std::int64_t>(n), [&](auto part, std::int64_t i) TROUPE_INLINED {
    part.store(fused(part.load(a + i), part.load(b + i), part.load(c + i)), out + i);
  });
}

} // namespace HWY_NAMESPACE
} // namespace troupe::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::cpu {
HWY_EXPORT(apply_all);
HWY_EXPORT(fuse_all);
void apply(exact_function f, const float* x, float* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(apply_all)(f, x, out, n);
}
void fused_multiply_add(const float* a, const float* b, const float* c, float* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(fuse_all)(a, b, c, out, n);
}
} // namespace troupe::cpu
#endif
