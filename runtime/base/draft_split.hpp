// Which drafts of a step are verified, given how many (speculation.md §6.2): those with the largest survival, ties in
// flat order. Plain functions over arrays, no containers: the host and a device compute the same split.
#pragma once
#include "runtime/base/noise.hpp"
#include <cstdint>

namespace troupe {

// Marks a place of the table without a draft.
inline constexpr float no_draft = -1.0f;

// A confidence inside [0, 1]; what is not a number counts as 0.
TROUPE_EVERYWHERE float clamped_confidence(float c) {
  return c > 0.0f ? (c < 1.0f ? c : 1.0f) : 0.0f;
}

// One row of the table: survival[j] = product of confidence[0..j], fp32, from left to right; no_draft from `drafts` on.
TROUPE_EVERYWHERE void survivals_of(const float* confidence, std::int32_t drafts, std::int32_t width, float* survival) {
  float product = 1.0f;
  for (std::int32_t j = 0; j < width; ++j) {
    if (j < drafts)
      product *= clamped_confidence(confidence[j]);
    survival[j] = j < drafts ? product : no_draft;
  }
}

// Number of entries of the table [n] that come before entry i: a larger survival, or an equal one and a smaller index.
// Draft i is verified iff this is below the number of drafts to verify; a device asks it for all i at once.
TROUPE_EVERYWHERE std::int32_t draft_rank(const float* survival, std::int32_t n, std::int32_t i) {
  std::int32_t rank = 0;
  for (std::int32_t k = 0; k < n; ++k)
    rank += survival[k] > survival[i] || (survival[k] == survival[i] && k < i) ? 1 : 0;
  return rank;
}

namespace draft_split_detail {

TROUPE_EVERYWHERE std::int32_t at_least(const float* survival, std::int32_t n, float limit) {
  std::int32_t count = 0;
  for (std::int32_t i = 0; i < n; ++i)
    count += survival[i] >= limit ? 1 : 0;
  return count;
}

TROUPE_EVERYWHERE float float_of(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}
TROUPE_EVERYWHERE std::uint32_t bits_of(float v) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(v);
#else
  return __builtin_bit_cast(std::uint32_t, v);
#endif
}

// The `wanted`-th largest entry; 1 <= wanted <= entries that are not negative. Numbers in [0, 1] are ordered like their
// bits, of which 30 are used: ten at a time are found by counting the entries that agree in those above.
TROUPE_EVERYWHERE float nth_largest(const float* survival, std::int32_t n, std::int32_t wanted) {
  constexpr std::uint32_t digits = 1024;
  std::uint32_t found = 0;
  for (int shift = 20; shift >= 0; shift -= 10) {
    std::int32_t count[digits] = {};
    for (std::int32_t i = 0; i < n; ++i) {
      const std::uint32_t bits = bits_of(survival[i]); // a negative one agrees with nothing
      if (bits >> (shift + 10) == found >> (shift + 10))
        ++count[bits >> shift & (digits - 1)];
    }
    std::uint32_t digit = digits - 1;
    for (; count[digit] < wanted; --digit)
      wanted -= count[digit];
    found |= digit << shift;
  }
  return float_of(found);
}

} // namespace draft_split_detail

// lengths[r] = drafts of sequence r among the `wanted` largest of the table [sequences, width]. Rows do not increase,
// so these are the sequence's first ones. All lengths together are `wanted`, or all drafts if there are fewer.
TROUPE_EVERYWHERE void split_drafts(const float* survival, std::int32_t sequences, std::int32_t width,
                                    std::int32_t wanted, std::int32_t* lengths) {
  const std::int32_t n = sequences * width;
  const bool all = draft_split_detail::at_least(survival, n, 0.0f) <= wanted;
  const float limit = all || wanted <= 0 ? 0.0f : draft_split_detail::nth_largest(survival, n, wanted);
  std::int32_t ties = wanted; // entries equal to the limit that still count
  if (!all)
    for (std::int32_t i = 0; i < n; ++i)
      ties -= survival[i] > limit ? 1 : 0;
  for (std::int32_t r = 0; r < sequences; ++r) {
    lengths[r] = 0;
    for (std::int32_t j = 0; j < width && wanted > 0; ++j) {
      const float v = survival[r * width + j];
      const bool taken = v > limit || (v == limit && (all || ties-- > 0));
      lengths[r] += taken ? 1 : 0;
    }
  }
}

} // namespace troupe
