// Values of weights as they are stored in a checkpoint (kernels/weight_source.hpp). UE8M0 scales make each one exact.
#pragma once
#include "kernels/plain/qualifiers.hpp"
#include "kernels/weight_source.hpp"
#include "runtime/base/number_formats.hpp"

namespace troupe::plain {

// A weight_source without ownership.
struct stored_view {
  weight_format format = weight_format::f32;
  std::int64_t rows = 0, cols = 0;
  const std::byte* data = nullptr;
  const std::byte* scale = nullptr;
};

// Element [row, c].
template <weight_format F> TROUPE_PLAIN float stored_value(const stored_view& s, std::int64_t row, std::int64_t c) {
  const std::int64_t at = row * s.cols + c;
  const auto data = [&](std::int64_t i) { return static_cast<std::uint8_t>(s.data[i]); };
  const auto scale = [&](std::int64_t i) { return f32_from_ue8m0(static_cast<std::uint8_t>(s.scale[i])); };
  if constexpr (F == weight_format::f32) // little endian in the file, at any address
    return bits_float(data(4 * at) | data(4 * at + 1) << 8 | data(4 * at + 2) << 16 |
                      static_cast<std::uint32_t>(data(4 * at + 3)) << 24);
  else if constexpr (F == weight_format::bf16)
    return f32_from_bf16(static_cast<std::uint16_t>(data(2 * at) | data(2 * at + 1) << 8));
  else if constexpr (F == weight_format::fp8_block)
    return f32_from_e4m3(data(at)) * scale(row / 32 * (s.cols / 32 + (s.cols % 32 != 0 ? 1 : 0)) + c / 32);
  else if constexpr (F == weight_format::fp8_row)
    return f32_from_e4m3(data(at)) * scale(at / 32);
  else {
    const std::uint8_t pair = data(at / 2);
    return f32_from_e2m1(static_cast<std::uint8_t>(c % 2 == 0 ? pair & 15 : pair >> 4)) * scale(at / 32);
  }
}

// Calls fn(format as a constant) for the format of s.
template <class Fn> TROUPE_PLAIN void with_format(weight_format f, const Fn& fn) {
  switch (f) {
  case weight_format::f32:
    return fn(std::integral_constant<weight_format, weight_format::f32>{});
  case weight_format::bf16:
    return fn(std::integral_constant<weight_format, weight_format::bf16>{});
  case weight_format::fp8_block:
    return fn(std::integral_constant<weight_format, weight_format::fp8_block>{});
  case weight_format::fp8_row:
    return fn(std::integral_constant<weight_format, weight_format::fp8_row>{});
  case weight_format::mxfp4:
    return fn(std::integral_constant<weight_format, weight_format::mxfp4>{});
  }
}

// Row `index` of a table as fp32: out[cols]; zeros for an index outside [0, rows).
template <class Team> TROUPE_PLAIN void table_row(Team& t, const stored_view& s, std::int64_t index, float* out) {
  if (index < 0 || index >= s.rows) {
    for (std::int64_t c = t.rank(); c < s.cols; c += t.size())
      out[c] = 0.0f;
    return;
  }
  with_format(s.format, [&](auto format) {
    for (std::int64_t c = t.rank(); c < s.cols; c += t.size())
      out[c] = stored_value<decltype(format)::value>(s, index, c);
  });
}

} // namespace troupe::plain
