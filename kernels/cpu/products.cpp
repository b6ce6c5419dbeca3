#include "kernels/cpu/products.hpp"

#include "kernels/cpu/instruction_set.hpp"
#include "kernels/cpu/targets.hpp"
#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/products.cpp"
#include "hwy/foreach_target.h"

#include "kernels/cpu/activation-inl.hpp"
#include "kernels/cpu/product-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace troupe::cpu {
namespace HWY_NAMESPACE {

constexpr int row_chunk = 128; // rows whose addresses are held at a time

void linear_rows(const linear_args& a, std::int64_t first, std::int64_t last, int begin, int end) {
  const auto& w = static_cast<const panel_weight&>(*a.w);
  const std::int64_t per_group = w.rows / a.groups, x_stride = w.cols * a.groups;
  const float* x[row_chunk];
  float* out[row_chunk];
  product_job job{w.view(), 0, 0, 0, x, out, 0, false};
  for (int row = begin; row < end; row += row_chunk) {
    job.rows = std::min(row_chunk, end - row);
    for (int r = 0; r < job.rows; ++r)
      out[r] = a.out.raw() + std::int64_t{row + r} * w.rows;
    for (std::int64_t g = first / per_group; g * per_group < last; ++g) {
      job.first = std::max(first, g * per_group);
      job.last = std::min(last, (g + 1) * per_group);
      for (int r = 0; r < job.rows; ++r)
        x[r] = a.x.raw() + (row + r) * x_stride + g * w.cols;
      run_product(job);
    }
  }
}

void product_rows_of(const panel_view& w, std::int64_t first, std::int64_t last, int rows, const float* const* x,
                     float* const* out) {
  run_product(product_job{w, first, last, rows, x, out, 0, false});
}

void inner_rows(const expert_inner_job& job) {
  constexpr int some_rows = 64;
  HWY_ALIGN float both[some_rows][2 * inner_step]; // 16 gates, 16 ups, 16 gates, ...
  HWY_ALIGN float act[inner_step];
  float* out[some_rows];
  for (int r = 0; r < some_rows; ++r)
    out[r] = both[r];
  const panel_view w13 = job.expert->w13.view();
  for (int row = 0; row < job.rows; row += some_rows) {
    const int rows = std::min(some_rows, job.rows - row);
    for (std::int64_t c = job.first; c < job.last; c += inner_step) {
      const std::int64_t n = std::min(inner_step, job.last - c), outputs = (n + 15) / 16 * 32;
      run_product(product_job{w13, 2 * c, 2 * c + outputs, rows, job.x + row, out, 2 * c, false});
      for (int r = 0; r < rows; ++r) {
        const f32v weight = set1(*job.weight[row + r]);
        for (std::int64_t i = 0; i < outputs / 2; i += vector_lanes) {
          const float* gate = both[r] + i / 16 * 32 + i % 16;
          const f32v v = swiglu_vector(hn::LoadU(f32_tag(), gate), hn::LoadU(f32_tag(), gate + 16), job.limit);
          hn::StoreU(hn::Mul(v, weight), f32_tag(), act + i);
        }
        if (job.round)
          for (std::int64_t i = 0; i < n; i += 32)
            round_fp8_block(act + i, act + i);
        std::copy_n(act, n, job.inner[row + r] + c);
      }
    }
  }
}

const char* target_name() {
  return hwy::TargetName(HWY_TARGET);
}

} // namespace HWY_NAMESPACE
} // namespace troupe::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::cpu {
HWY_EXPORT(linear_rows);
HWY_EXPORT(product_rows_of);
HWY_EXPORT(inner_rows);
HWY_EXPORT(target_name);

void linear(const linear_args& a, std::int64_t first, std::int64_t last, int begin, int end) {
  HWY_DYNAMIC_DISPATCH(linear_rows)(a, first, last, begin, end);
}
void product(const panel_view& w, std::int64_t first, std::int64_t last, int rows, const float* const* x,
             float* const* out) {
  HWY_DYNAMIC_DISPATCH(product_rows_of)(w, first, last, rows, x, out);
}
void ask_ahead(const panel_view& w, std::int64_t first) {
  const panel_place place = place_of(w, first / 16);
  const auto* words = reinterpret_cast<const std::byte*>(place.words);
  for (std::int64_t at = 0; at < 4096; at += 64)
    __builtin_prefetch(words + at);
  if (place.scales != nullptr)
    for (std::int64_t at = 0; at < 1024; at += 64)
      __builtin_prefetch(place.scales + at);
}
void expert_inner(const expert_inner_job& job) {
  HWY_DYNAMIC_DISPATCH(inner_rows)(job);
}
std::string instruction_set() {
  return HWY_DYNAMIC_DISPATCH(target_name)();
}
} // namespace troupe::cpu
#endif
