// What a mask of allowed ids does to a row of logits, with the bits of reference::copy_allowed.
#pragma once
#include <cstdint>

namespace troupe::cpu {

// to[i] = bit i % 32 of mask[i / 32] ? from[i] : -inf, i < n; mask null: every bit is 1. `to` may be `from`.
void copy_allowed(const float* from, std::int64_t n, const std::uint32_t* mask, float* to);

} // namespace troupe::cpu
