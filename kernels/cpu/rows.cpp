#include "kernels/cpu/rows.hpp"

#include "kernels/cpu/targets.hpp"
#include "kernels/reference/rows.hpp"
#include "kernels/reference/trunk.hpp"
#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rows.cpp"
#include "hwy/foreach_target.h"

#include "kernels/cpu/activation-inl.hpp"
#include "kernels/cpu/sum-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace troupe::cpu {
namespace HWY_NAMESPACE {

using policy = vector_lanes_policy;

void rms_norm_rows(const rms_norm_args& a, int begin, int end) {
  const float* w = a.w.raw();
  for (int i = begin; i < end; ++i) {
    const float* x = a.x.raw() + std::int64_t{i} * a.cols;
    float* out = a.out.raw() + std::int64_t{i} * a.cols;
    const float mean = dot16(x, x, a.cols) / static_cast<float>(a.cols);
    const f32v r = set1(1.0f / std::sqrt(mean + a.eps));
    for_elements(a.cols, [&](auto part, std::int64_t c) TROUPE_INLINED {
      part.store(hn::Mul(hn::Mul(part.load(x + c), r), part.load(w + c)), out + c);
    });
  }
}

void round_rows(const round_args& a, int begin, int end) { // blocks do not influence one another, nor do rows
  const float* x = a.x.raw();
  float* out = a.out.raw();
  const std::int64_t last = std::int64_t{end} * a.cols;
  if (a.format == kv_format::fp8_ue8m0_32)
    for (std::int64_t c = std::int64_t{begin} * a.cols; c < last; c += 32)
      round_fp8_block(x + c, out + c);
  else if (a.format == kv_format::fp4_ue8m0_32)
    for (std::int64_t c = std::int64_t{begin} * a.cols; c < last; c += 32)
      round_fp4_block(x + c, out + c);
  else
    reference::round(a, begin, end);
}

void swiglu_rows(const swiglu_args& a, int begin, int end) {
  const std::int64_t first = std::int64_t{begin} * a.cols;
  const float *gate = a.gate.raw() + first, *up = a.up.raw() + first;
  float* out = a.out.raw() + first;
  for_elements(std::int64_t{end - begin} * a.cols, [&](auto part, std::int64_t c) TROUPE_INLINED {
    part.store(swiglu_vector(part.load(gate + c), part.load(up + c), a.limit), out + c);
  });
}

void rope_rows(const rope_args& a, int begin, int end) {
#if HWY_TARGET == HWY_SCALAR
  reference::rope(a, begin, end);
#else
  constexpr int most = 256; // channels whose factors are held at a time
  HWY_ALIGN float cosines[most], sines[most];
  const int half = a.rope_dim / 2;
  for (int i = begin; i < end; ++i) {
    const float* table = a.cos_sin.raw() + std::int64_t{a.position.raw()[i]} * a.rope_dim;
    float* row = a.x.raw() + std::int64_t{i} * a.heads * a.dim + a.dim - a.rope_dim;
    for (int from = 0; from < half; from += most / 2) {
      const int pairs = std::min(half - from, most / 2);
      for (int j = 0; j < pairs; ++j) { // (u, v) -> (u c - v s, v c + u s)
        const float s = a.inverse ? -table[half + from + j] : table[half + from + j];
        cosines[2 * j] = cosines[2 * j + 1] = table[from + j];
        sines[2 * j] = -s;
        sines[2 * j + 1] = s;
      }
      for (int h = 0; h < a.heads; ++h) {
        float* x = row + std::int64_t{h} * a.dim + 2 * from;
        for_elements(2 * pairs, [&](auto part, std::int64_t c) TROUPE_INLINED {
          const f32v v = part.load(x + c);
          const f32v turned = hn::Mul(hn::Reverse2(f32_tag(), v), hn::LoadU(f32_tag(), sines + c));
          part.store(hn::Add(hn::Mul(v, hn::LoadU(f32_tag(), cosines + c)), turned), x + c);
        });
      }
    }
  }
#endif
}

template <bool rounded> HWY_INLINE void combine_row(const combine_args& a, int row) {
  const auto value = [](f32v v) TROUPE_INLINED { return rounded ? bf16_values(v) : v; };
  const float* shared = a.shared.raw() + std::int64_t{row} * a.hidden;
  const float* y = a.y.raw() + std::int64_t{row} * a.hidden * a.k;
  float* out = a.out.raw() + std::int64_t{row} * a.hidden;
  for_elements(a.hidden, [&](auto part, std::int64_t d) TROUPE_INLINED {
    f32v t = value(part.load(shared + d));
    for (int j = 0; j < a.k; ++j)
      t = hn::Add(t, value(part.load(y + std::int64_t{j} * a.hidden + d)));
    part.store(t, out + d);
  });
}
void combine_rows(const combine_args& a, int begin, int end) {
  for (int i = begin; i < end; ++i)
    a.round_bf16 ? combine_row<true>(a, i) : combine_row<false>(a, i);
}

void copy_column_rows(const copy_columns_args& a, int begin, int end) {
  for (int i = begin; i < end; ++i) {
    const float* x = a.x.raw() + i * a.x_stride;
    float* out = a.out.raw() + i * a.out_stride;
    if (!a.add)
      std::copy_n(x, a.cols, out);
    else
      for_elements(a.cols, [&](auto part, std::int64_t c)
                               TROUPE_INLINED { part.store(hn::Add(part.load(out + c), part.load(x + c)), out + c); });
  }
}

void hc_collapse_rows(const hc_collapse_args& a, int begin, int end) {
  for (int i = begin; i < end; ++i) {
    const float* trunk = a.trunk.raw() + std::int64_t{i} * a.streams * a.hidden;
    const float* pre = a.pre.raw() + std::int64_t{i} * a.streams;
    float* out = a.out.raw() + std::int64_t{i} * a.hidden;
    for_elements(a.hidden, [&](auto part, std::int64_t d) TROUPE_INLINED {
      f32v acc = hn::Zero(f32_tag());
      for (int m = 0; m < a.streams; ++m)
        acc = fused(set1(pre[m]), part.load(trunk + std::int64_t{m} * a.hidden + d), acc);
      part.store(acc, out + d);
    });
  }
}

// M streams, known to the compiler where M > 0.
template <int M> HWY_INLINE void hc_expand_row(const hc_expand_args& a, int row) {
  const int streams = M > 0 ? M : a.streams;
  const float* y = a.y.raw() + std::int64_t{row} * a.hidden;
  const float* post = a.post.raw() + std::int64_t{row} * streams;
  const float* comb = a.comb.raw() + std::int64_t{row} * streams * streams;
  float* trunk = a.trunk.raw() + std::int64_t{row} * streams * a.hidden;
  for_elements(a.hidden, [&](auto part, std::int64_t d) TROUPE_INLINED {
    const f32v yd = part.load(y + d);
    if constexpr (M > 0) {
      f32v old[M];
      unroll<M>([&](auto j) TROUPE_INLINED { old[j] = part.load(trunk + j * std::int64_t{a.hidden} + d); });
      unroll<M>([&](auto k) TROUPE_INLINED {
        f32v acc = hn::Mul(set1(post[k]), yd);
        unroll<M>([&](auto j) TROUPE_INLINED { acc = fused(set1(comb[j * M + k]), old[j], acc); });
        part.store(acc, trunk + k * std::int64_t{a.hidden} + d);
      });
    } else {
      f32v old[reference::max_streams];
      for (int j = 0; j < streams; ++j)
        old[j] = part.load(trunk + std::int64_t{j} * a.hidden + d);
      for (int k = 0; k < streams; ++k) {
        f32v acc = hn::Mul(set1(post[k]), yd);
        for (int j = 0; j < streams; ++j)
          acc = fused(set1(comb[j * streams + k]), old[j], acc);
        part.store(acc, trunk + std::int64_t{k} * a.hidden + d);
      }
    }
  });
}
void hc_expand_rows(const hc_expand_args& a, int begin, int end) {
  for (int i = begin; i < end; ++i)
    a.streams == 4 ? hc_expand_row<4>(a, i) : hc_expand_row<0>(a, i);
}

void hc_mean_rows(const hc_mean_args& a, int begin, int end) {
  const f32v count = set1(static_cast<float>(a.streams));
  for (int i = begin; i < end; ++i) {
    const float* trunk = a.trunk.raw() + std::int64_t{i} * a.streams * a.hidden;
    float* out = a.out.raw() + i * a.out_stride;
    for_elements(a.hidden, [&](auto part, std::int64_t d) TROUPE_INLINED {
      f32v sum = hn::Zero(f32_tag());
      for (int m = 0; m < a.streams; ++m)
        sum = hn::Add(sum, part.load(trunk + std::int64_t{m} * a.hidden + d));
      part.store(hn::Div(sum, count), out + d);
    });
  }
}

#if HWY_TARGET != HWY_SCALAR
// The 4 x 4 matrix of four streams, a row in each vector: sums over a row take its elements in turn, sums over a column
// the rows in turn, as the reference does.
using four_tag = hn::CappedTag<float, 4>;
using four = hn::Vec<four_tag>;
HWY_INLINE four sum_of_row(four r) {
  return hn::Add(hn::Add(hn::Add(hn::Broadcast<0>(r), hn::Broadcast<1>(r)), hn::Broadcast<2>(r)), hn::Broadcast<3>(r));
}
HWY_INLINE void sinkhorn4(float* c, int iterations, float eps) {
  const four_tag d;
  const four e = hn::Set(d, eps);
  four r0 = hn::LoadU(d, c), r1 = hn::LoadU(d, c + 4), r2 = hn::LoadU(d, c + 8), r3 = hn::LoadU(d, c + 12);
  const auto rows = [&](four& r) TROUPE_INLINED { r = hn::Div(r, hn::Add(sum_of_row(r), e)); };
  const auto columns = [&]() TROUPE_INLINED {
    const four sum = hn::Add(hn::Add(hn::Add(hn::Add(r0, r1), r2), r3), e);
    r0 = hn::Div(r0, sum);
    r1 = hn::Div(r1, sum);
    r2 = hn::Div(r2, sum);
    r3 = hn::Div(r3, sum);
  };
  columns();
  for (int n = 1; n < iterations; ++n) {
    rows(r0);
    rows(r1);
    rows(r2);
    rows(r3);
    columns();
  }
  hn::StoreU(r0, d, c);
  hn::StoreU(r1, d, c + 4);
  hn::StoreU(r2, d, c + 8);
  hn::StoreU(r3, d, c + 12);
}
#endif

void hc_mixes_of_row(const hc_mixes_args& a, int row, const float* products) {
#if HWY_TARGET != HWY_SCALAR
  if (a.streams == 4) {
    constexpr int m = 4, n = m * (m + 2);
    const std::int64_t size = std::int64_t{m} * a.hidden;
    const float* v = a.trunk.raw() + row * size;
    const f32v r = set1(1.0f / std::sqrt(dot16(v, v, size) / static_cast<float>(size) + a.norm_eps));
    HWY_ALIGN float scales[n + 8] = {}, mix[n + 8] = {};
    for (int o = 0; o < n; ++o)
      scales[o] = a.scale.raw()[o < m ? 0 : o < 2 * m ? 1 : 2];
    for_elements(n, [&](auto part, std::int64_t o) TROUPE_INLINED {
      part.store(fused(hn::Mul(part.load(products + o), r), part.load(scales + o), part.load(a.base.raw() + o)),
                 mix + o);
    });
    HWY_ALIGN float gates[16] = {};
    for_elements(2 * m, [&](auto part, std::int64_t o) TROUPE_INLINED {
      part.store(exact::sigmoid_lanes<policy>(part.load(mix + o)), gates + o);
    });
    float* pre = a.pre.raw() + std::int64_t{row} * m;
    float* post = a.post.raw() + std::int64_t{row} * m;
    float* comb = a.comb.raw() + std::int64_t{row} * m * m;
    for (int k = 0; k < m; ++k) {
      pre[k] = gates[k] + a.hc_eps;
      post[k] = 2.0f * gates[m + k];
    }
    HWY_ALIGN float tops[16], sums[16], c[16];
    for (int j = 0; j < m; ++j) {
      const float* x = mix + 2 * m + j * m;
      float top = x[0];
      for (int k = 1; k < m; ++k)
        top = x[k] > top ? x[k] : top;
      std::fill_n(tops + j * m, m, top);
    }
    for_elements(16, [&](auto part, std::int64_t o) TROUPE_INLINED {
      part.store(exact::exp_lanes<policy>(hn::Sub(part.load(mix + 2 * m + o), part.load(tops + o))), c + o);
    });
    for (int j = 0; j < m; ++j)
      std::fill_n(sums + j * m, m, ((c[j * m] + c[j * m + 1]) + c[j * m + 2]) + c[j * m + 3]);
    for_elements(16, [&](auto part, std::int64_t o) TROUPE_INLINED {
      part.store(hn::Add(hn::Div(part.load(c + o), part.load(sums + o)), set1(a.hc_eps)), comb + o);
    });
    sinkhorn4(comb, a.sinkhorn_iters, a.hc_eps);
    return;
  }
#endif
  reference::hc_mixes_row(a, row, products);
}

void engram_gate_rows(const engram_gate_args& a, int begin, int end) {
  const std::int64_t n = a.hidden;
  const auto length = static_cast<float>(n);
  for (int i = begin; i < end; ++i) {
    const float* kv = a.kv.raw() + i * (a.streams + 1) * n;
    const float* v = kv + a.streams * n;
    for (int m = 0; m < a.streams; ++m) {
      float* s = a.trunk.raw() + (std::int64_t{i} * a.streams + m) * n;
      const float* k = kv + m * n;
      const float rs = 1.0f / std::sqrt(dot16(s, s, n) / length + a.eps);
      const float rk = 1.0f / std::sqrt(dot16(k, k, n) / length + a.eps);
      const float dot = dot16_weighted(s, k, a.qk_weight.raw() + m * n, n) * rs * rk * (1.0f / std::sqrt(length));
      const float magnitude = std::fabs(dot);
      const float root = std::sqrt(magnitude < 1e-6f ? 1e-6f : magnitude);
      const f32v gate = set1(sigmoid_f32(dot > 0 ? root : dot < 0 ? -root : 0.0f));
      for_elements(n, [&](auto part, std::int64_t d)
                          TROUPE_INLINED { part.store(fused(gate, part.load(v + d), part.load(s + d)), s + d); });
    }
  }
}

void expert_score_row(const float* logits, int n, float* out) {
  for_elements(n, [&](auto part, std::int64_t e) TROUPE_INLINED {
    part.store(hn::Sqrt(exact::softplus_lanes<policy>(part.load(logits + e))), out + e);
  });
}

} // namespace HWY_NAMESPACE
} // namespace troupe::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::cpu {
HWY_EXPORT(rms_norm_rows);
HWY_EXPORT(round_rows);
HWY_EXPORT(swiglu_rows);
HWY_EXPORT(rope_rows);
HWY_EXPORT(combine_rows);
HWY_EXPORT(copy_column_rows);
HWY_EXPORT(hc_collapse_rows);
HWY_EXPORT(hc_mixes_of_row);
HWY_EXPORT(hc_expand_rows);
HWY_EXPORT(hc_mean_rows);
HWY_EXPORT(engram_gate_rows);
HWY_EXPORT(expert_score_row);

void rms_norm(const rms_norm_args& a, int begin, int end) {
  HWY_DYNAMIC_DISPATCH(rms_norm_rows)(a, begin, end);
}
void round(const round_args& a, int begin, int end) {
  HWY_DYNAMIC_DISPATCH(round_rows)(a, begin, end);
}
void swiglu(const swiglu_args& a, int begin, int end) {
  HWY_DYNAMIC_DISPATCH(swiglu_rows)(a, begin, end);
}
void rope(const rope_args& a, int begin, int end) {
  HWY_DYNAMIC_DISPATCH(rope_rows)(a, begin, end);
}
void combine(const combine_args& a, int begin, int end) {
  HWY_DYNAMIC_DISPATCH(combine_rows)(a, begin, end);
}
void copy_columns(const copy_columns_args& a, int begin, int end) {
  HWY_DYNAMIC_DISPATCH(copy_column_rows)(a, begin, end);
}
void hc_collapse(const hc_collapse_args& a, int begin, int end) {
  HWY_DYNAMIC_DISPATCH(hc_collapse_rows)(a, begin, end);
}
void hc_mixes_row(const hc_mixes_args& a, int row, const float* products) {
  HWY_DYNAMIC_DISPATCH(hc_mixes_of_row)(a, row, products);
}
void hc_expand(const hc_expand_args& a, int begin, int end) {
  HWY_DYNAMIC_DISPATCH(hc_expand_rows)(a, begin, end);
}
void hc_mean(const hc_mean_args& a, int begin, int end) {
  HWY_DYNAMIC_DISPATCH(hc_mean_rows)(a, begin, end);
}
void engram_gate(const engram_gate_args& a, int begin, int end) {
  HWY_DYNAMIC_DISPATCH(engram_gate_rows)(a, begin, end);
}
void expert_scores(const float* logits, int n, float* out) {
  HWY_DYNAMIC_DISPATCH(expert_score_row)(logits, n, out);
}
} // namespace troupe::cpu
#endif
