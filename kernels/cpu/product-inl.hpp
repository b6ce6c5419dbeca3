// The one inner loop of the cpu device: R rows times NP panels, each of the R*NP*16 outputs in its own accumulator with
// fma over ascending inputs. Formats differ in how a word turns into fp32 only.
#if defined(TROUPE_KERNELS_CPU_PRODUCT_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TROUPE_KERNELS_CPU_PRODUCT_INL
#undef TROUPE_KERNELS_CPU_PRODUCT_INL
#else
#define TROUPE_KERNELS_CPU_PRODUCT_INL
#endif

#include "kernels/cpu/panels.hpp"
#include "kernels/cpu/simd-inl.hpp"
#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace troupe::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE u32v load_word(const std::uint32_t* from) {
  return hn::LoadU(u32_tag(), from);
}

// decode<j>(word): input j of the word, fp32, without its scale.
struct decode_f32 {
  static constexpr panel_format format = panel_format::f32;
  static constexpr int per_word = 1;
  static constexpr bool scaled = false;
  template <int j> HWY_INLINE f32v decode(u32v w) const { return as_f32(w); }
};
struct decode_bf16 {
  static constexpr panel_format format = panel_format::bf16;
  static constexpr int per_word = 2;
  static constexpr bool scaled = false;
  template <int j> HWY_INLINE f32v decode(u32v w) const {
    if constexpr (j == 0)
      return as_f32(hn::ShiftLeft<16>(w));
    else
      return as_f32(hn::And(w, hn::Set(u32_tag(), 0xffff0000u)));
  }
};
// Sign to bit 31, exponent and mantissa to bits 26..20: the value times 2^-120, also for the subnormal codes.
struct decode_fp8 {
  static constexpr panel_format format = panel_format::fp8;
  static constexpr int per_word = 4;
  static constexpr bool scaled = true;
  template <int j> HWY_INLINE f32v decode(u32v w) const {
    const i32v top = hn::BitCast(i32_tag(), hn::ShiftLeft<24 - 8 * j>(w));
    return as_f32(hn::And(hn::BitCast(u32_tag(), hn::ShiftRight<4>(top)), hn::Set(u32_tag(), 0x87f00000u)));
  }
};
struct decode_fp4 {
  static constexpr panel_format format = panel_format::fp4;
  static constexpr int per_word = 8;
  static constexpr bool scaled = true;
#if HWY_TARGET == HWY_AVX3
  const __m512 table;
  HWY_INLINE decode_fp4()
      : table(_mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f,
                             -4.0f, -6.0f)) {}
  template <int j> HWY_INLINE f32v decode(u32v w) const { // the permutation looks at the lowest four bits only
    return f32v{_mm512_permutexvar_ps(hn::ShiftRight<4 * j>(w).raw, table)};
  }
#elif HWY_TARGET == HWY_AVX2
  const __m256 table;
  HWY_INLINE decode_fp4() : table(_mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f)) {}
  template <int j> HWY_INLINE f32v decode(u32v w) const { // the lowest three bits only; the sign is brought separately
    const f32v magnitude{_mm256_permutevar8x32_ps(table, hn::ShiftRight<4 * j>(w).raw)};
    return hn::Or(magnitude, as_f32(hn::And(hn::ShiftLeft<28 - 4 * j>(w), hn::Set(u32_tag(), 0x80000000u))));
  }
#else
  template <int j> HWY_INLINE f32v decode(u32v w) const {
    const u32v a = hn::And(hn::ShiftRight<4 * j>(w), hn::Set(u32_tag(), 7u));
    // exponent and mantissa in place with bias 126; codes 0 and 1 are the two subnormals
    const f32v normal = as_f32(hn::Add(hn::ShiftLeft<22>(a), hn::Set(u32_tag(), 126u << 23)));
    const f32v small = hn::Mul(hn::ConvertTo(f32_tag(), hn::BitCast(i32_tag(), a)), hn::Set(f32_tag(), 0.5f));
    const auto is_small = hn::Lt(hn::BitCast(i32_tag(), a), hn::Set(i32_tag(), 2));
    const f32v magnitude = hn::IfThenElse(hn::RebindMask(f32_tag(), is_small), small, normal);
    return hn::Or(magnitude, as_f32(hn::And(hn::ShiftLeft<28 - 4 * j>(w), hn::Set(u32_tag(), 0x80000000u))));
  }
#endif
};

HWY_INLINE f32v load_scale(const std::uint8_t* from) {
  return as_f32(hn::ShiftLeft<23>(hn::PromoteTo(u32_tag(), hn::LoadU(hn::Rebind<std::uint8_t, u32_tag>(), from))));
}

// Input k of row r lies at x[r][k*XK]; the 16 outputs of panel p of row r at out[r] + 16*p, written whole.
// resume: the accumulators go on from what lies in out. Inputs [k0, k1), k0 a multiple of 32.
// ahead: dwords from the word in use to the one asked of memory; the caches' own prefetchers stop at every page.
template <class Format, int R, int NP, int XK, int ahead = 0>
HWY_INLINE void product_block(const panel_place& place, std::int64_t origin, std::int64_t k0, std::int64_t k1,
                              const float* const* x_rows, float* const* out_rows, bool resume) {
  constexpr int per_word = Format::per_word;
  constexpr int n = NP * parts;
  const Format format;
  const float* x[R];
  f32v acc[R][n];
  unroll<R>([&](auto r) TROUPE_INLINED {
    x[r] = x_rows[r];
    unroll<n>([&](auto p) TROUPE_INLINED {
      acc[r][p] = resume ? hn::LoadU(f32_tag(), out_rows[r] + p * vector_lanes) : hn::Zero(f32_tag());
    });
  });
  const std::int64_t word_stride = place.word_stride;
  const std::uint32_t* at = place.words + (k0 - origin) / per_word * word_stride;
  const auto load = [&](auto i) TROUPE_INLINED { return load_word(at + i * vector_lanes); };
  f32v scale[n];
  const auto step = [&](auto j, std::int64_t k, const u32v(&word)[n]) TROUPE_INLINED {
    f32v w[n];
    unroll<n>([&](auto i) TROUPE_INLINED {
      w[i] = format.template decode<decltype(j)::value>(word[i]);
      if constexpr (Format::scaled)
        w[i] = hn::Mul(w[i], scale[i]);
    });
    unroll<R>([&](auto r) TROUPE_INLINED {
      const f32v b = hn::Set(f32_tag(), x[r][(k + j) * XK]);
      unroll<n>([&](auto i) TROUPE_INLINED { acc[r][i] = fused(b, w[i], acc[r][i]); });
    });
  };
  std::int64_t k = k0;
  while (k < k1) {
    std::int64_t stop = k1;
    if constexpr (Format::scaled) {
      stop = std::min(k1, k + 32);
      const std::uint8_t* scales = place.scales + k / 32 * place.scale_stride;
      if constexpr (ahead > 0)
        __builtin_prefetch(scales + 1024);
      unroll<n>([&](auto i) TROUPE_INLINED { scale[i] = load_scale(scales + i * vector_lanes); });
    }
    for (; k + per_word <= stop; k += per_word, at += word_stride) {
      if constexpr (ahead > 0)
        unroll<NP>([&](auto p) TROUPE_INLINED { __builtin_prefetch(at + ahead + p * 16); });
      u32v word[n];
      unroll<n>([&](auto i) TROUPE_INLINED { word[i] = load(i); });
      unroll<per_word>([&](auto j) TROUPE_INLINED { step(j, k, word); });
    }
    if constexpr (per_word > 1)
      if (k < stop) {
        u32v word[n];
        unroll<n>([&](auto i) TROUPE_INLINED { word[i] = load(i); });
        const std::int64_t rest = stop - k;
        unroll<per_word - 1>([&](auto j) TROUPE_INLINED {
          if (j < rest)
            step(j, k, word);
        });
        k = stop;
      }
  }
  unroll<R>([&](auto r) TROUPE_INLINED {
    unroll<n>([&](auto p) TROUPE_INLINED { hn::StoreU(acc[r][p], f32_tag(), out_rows[r] + p * vector_lanes); });
  });
}

// Panels in flight with R rows: as many accumulators as the registers hold beside words and scales.
constexpr int panels_with(int rows) {
#if TROUPE_SMALL_BLOCKS
  return rows == 1 ? 2 : 1;
#elif HWY_TARGET == HWY_AVX3
  return rows == 8 ? 2 : rows == 1 ? 8 : 4;
#elif HWY_TARGET == HWY_AVX2
  return rows == 4 ? 1 : rows == 2 ? 2 : 4;
#elif HWY_TARGET == HWY_NEON
  return rows == 4 ? 1 : 2;
#else
  return 1 + 0 * rows;
#endif
}
#if TROUPE_SMALL_BLOCKS
constexpr int most_rows = 2;
constexpr int decoded_panels = 2; // decoded together for several rows
#elif HWY_TARGET == HWY_AVX3
constexpr int most_rows = 8;
constexpr int decoded_panels = 8;
#elif HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_NEON
constexpr int most_rows = 4;
constexpr int decoded_panels = 4;
#else
constexpr int most_rows = 1;
constexpr int decoded_panels = 1;
#endif

// Outputs [first, last) of rows [0, rows): output o of row r goes to out[r][o - out_origin]; nothing else is written.
struct product_job {
  panel_view w;
  std::int64_t first = 0, last = 0;
  int rows = 0;
  const float* const* x = nullptr;
  float* const* out = nullptr;
  std::int64_t out_origin = 0;
  bool resume = false; // sums go on from what lies in out
};

// Where a kernel finds the words of the panels it works on: in the weight, or decoded from input `origin` on.
struct product_source {
  panel_place place;
  std::int64_t origin = 0;
};

// One block of R rows and NP panels from panel `panel` on, whatever part of it is asked for.
template <class Format, int R, int NP, int XK, int ahead = 0>
HWY_INLINE void product_piece(const product_job& job, const product_source& from, std::int64_t panel, int row,
                              std::int64_t k0, std::int64_t k1) {
  const std::int64_t o = panel * 16;
  const bool resume = job.resume || k0 > 0;
  float* out[R];
  if (o >= job.first && o + NP * 16 <= job.last) {
    for (int r = 0; r < R; ++r)
      out[r] = job.out[row + r] + (o - job.out_origin);
    product_block<Format, R, NP, XK, ahead>(from.place, from.origin, k0, k1, job.x + row, out, resume);
    return;
  }
  HWY_ALIGN float whole[R][NP * 16];
  const std::int64_t a = std::max(job.first, o), n = std::min(job.last, o + NP * 16) - a;
  for (int r = 0; r < R; ++r) {
    out[r] = whole[r];
    if (resume)
      std::copy_n(job.out[row + r] + (a - job.out_origin), n, whole[r] + (a - o));
  }
  product_block<Format, R, NP, XK, ahead>(from.place, from.origin, k0, k1, job.x + row, out, resume);
  for (int r = 0; r < R; ++r)
    std::copy_n(whole[r] + (a - o), n, job.out[row + r] + (a - job.out_origin));
}

// All rows of the NP panels that lie side by side in `from`, in blocks of most_rows, ..., 2, 1.
template <class Format, int NP, int XK, int R = most_rows>
HWY_INLINE void product_rows(const product_job& job, const product_source& from, std::int64_t panel, int row,
                             std::int64_t k0, std::int64_t k1) {
  constexpr int np = std::min(NP, panels_with(R));
  for (; row + R <= job.rows; row += R)
    for (int p = 0; p < NP; p += np) {
      product_source part = from;
      part.place.words += p * 16;
      product_piece<Format, R, np, XK>(job, part, panel + p, row, k0, k1);
    }
  if constexpr (R > 1)
    product_rows<Format, NP, XK, R / 2>(job, from, panel, row, k0, k1);
}

// Panels of a job in groups of np, 4, 2 and 1 that stay inside a strip: f(number of panels, panel).
template <int np, class F> HWY_INLINE void for_panels(const product_job& job, F&& f) {
  const std::int64_t end = (job.last + 15) / 16;
  for (std::int64_t panel = job.first / 16; panel < end;) {
    const std::int64_t room =
        job.w.plain_row != 0 ? end - panel : std::min(end, (panel / panels_per_strip + 1) * panels_per_strip) - panel;
    if (np > 2 && room >= np) {
      f(std::integral_constant<int, np>(), panel);
      panel += np;
    } else if (np > 4 && room >= 4) {
      f(std::integral_constant<int, std::min(np, 4)>(), panel);
      panel += 4;
    } else if (np >= 2 && room >= 2) {
      f(std::integral_constant<int, std::min(np, 2)>(), panel);
      panel += 2;
    } else {
      f(std::integral_constant<int, 1>(), panel);
      ++panel;
    }
  }
}

// Few rows: words are decoded in registers, again for each block of rows.
template <class Format, int R = most_rows> void product_of_few(const product_job& job, int row) {
  for (; row + R <= job.rows; row += R)
    for_panels<panels_with(R)>(job, [&](auto np, std::int64_t panel) TROUPE_INLINED {
      constexpr int count = decltype(np)::value;
      product_piece<Format, R, count, 1, 1024>(job, {place_of(job.w, panel), 0}, panel, row, 0, job.w.inputs);
    });
  if constexpr (R > 1)
    product_of_few<Format, R / 2>(job, row);
}

constexpr std::int64_t decoded_inputs = 64; // with decoded_panels: what stays in the first-level cache

// Inputs [k0, k1) of NP panels as fp32 [k1-k0][NP*16]; k0 is a multiple of 32. The last word may run past k1: `to` must
// have room for it.
template <class Format, int NP>
HWY_INLINE void decode_panels(const panel_place& place, std::int64_t k0, std::int64_t k1, float* to) {
  constexpr int per_word = Format::per_word, n = NP * parts;
  const Format format;
  const std::uint32_t* at = place.words + k0 / per_word * place.word_stride;
  f32v scale[n];
  for (std::int64_t k = k0; k < k1;) {
    if constexpr (Format::scaled)
      unroll<n>([&](auto i) TROUPE_INLINED {
        scale[i] = load_scale(place.scales + k / 32 * place.scale_stride + i * vector_lanes);
      });
    const std::int64_t stop = std::min(k1, k + 32);
    for (; k < stop; k += per_word, at += place.word_stride, to += NP * 16 * per_word)
      unroll<n>([&](auto i) TROUPE_INLINED {
        const u32v word = load_word(at + i * vector_lanes);
        unroll<per_word>([&](auto j) TROUPE_INLINED {
          f32v v = format.template decode<decltype(j)::value>(word);
          if constexpr (Format::scaled)
            v = hn::Mul(v, scale[i]);
          hn::StoreU(v, f32_tag(), to + j * NP * 16 + i * vector_lanes);
        });
      });
  }
}

// Several rows: a stretch of inputs of NP panels is decoded once, then every row goes on from its partial sums.
template <class Format, int NP, int XK> HWY_INLINE void product_stretches(const product_job& job, std::int64_t panel) {
  const panel_place place = place_of(job.w, panel);
  std::int64_t k0 = 0;
  do { // once without inputs too: sums of nothing are 0
    if constexpr (Format::format == panel_format::f32) {
      const std::int64_t k1 = std::min<std::int64_t>(job.w.inputs, k0 + 256);
      product_rows<decode_f32, NP, XK>(job, {place, 0}, panel, 0, k0, k1);
      k0 = k1;
    } else {
      HWY_ALIGN float decoded[NP * 16 * decoded_inputs];
      const std::int64_t k1 = std::min(job.w.inputs, k0 + decoded_inputs);
      decode_panels<Format, NP>(place, k0, k1, decoded);
      const panel_place plain{reinterpret_cast<const std::uint32_t*>(decoded), nullptr, NP * 16, 0};
      product_rows<decode_f32, NP, XK>(job, {plain, k0}, panel, 0, k0, k1);
      k0 = k1;
    }
  } while (k0 < job.w.inputs);
}
template <class Format, int XK> void product_of_rows(const product_job& job) {
  for_panels<decoded_panels>(job, [&](auto np, std::int64_t panel) TROUPE_INLINED {
    product_stretches<Format, decltype(np)::value, XK>(job, panel);
  });
}

template <class Format> void product_of(const product_job& job) {
  job.rows <= 2 * most_rows ? product_of_few<Format>(job, 0) : product_of_rows<Format, 1>(job);
}

HWY_INLINE void run_product(const product_job& job) {
  switch (job.w.format) {
  case panel_format::f32:
    return product_of<decode_f32>(job);
  case panel_format::bf16:
    return product_of<decode_bf16>(job);
  case panel_format::fp8:
    return product_of<decode_fp8>(job);
  case panel_format::fp4:
    return product_of<decode_fp4>(job);
  }
}

} // namespace HWY_NAMESPACE
} // namespace troupe::cpu
HWY_AFTER_NAMESPACE();
#endif
