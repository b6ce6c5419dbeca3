#include "kernels/reference/records.hpp"

#include "runtime/base/number_formats.hpp"
#include <cmath>
#include <cstring>

namespace troupe::reference {
namespace {

float largest_magnitude(const float* x, int n) {
  float m = 0;
  for (int i = 0; i < n; ++i)
    if (const float a = std::fabs(x[i]); a > m)
      m = a;
  return m;
}

std::byte code_pair(float low, float high, float s) {
  return static_cast<std::byte>(e2m1_from_f32(low / s) | e2m1_from_f32(high / s) << 4);
}

// Packs n channels of one scale; decode multiplies by the same scale.
void pack_fp4(const float* x, int n, float s, std::byte* out) {
  for (int i = 0; i < n; i += 2)
    out[i / 2] = code_pair(x[i], x[i + 1], s);
}
void unpack_fp4(const std::byte* in, int n, float s, float* x) {
  for (int i = 0; i < n; ++i) {
    const auto pair = std::to_integer<unsigned>(in[i / 2]);
    x[i] = f32_from_e2m1(static_cast<std::uint8_t>(i % 2 == 0 ? pair & 15u : pair >> 4)) * s;
  }
}

} // namespace

void encode_record(kv_format f, const float* x, std::int64_t dim, std::byte* record) {
  switch (f) {
  case kv_format::f32:
    std::memcpy(record, x, static_cast<std::size_t>(dim) * 4);
    return;
  case kv_format::fp8_ue8m0_32:
    for (std::int64_t b = 0; b < dim / 32; ++b) {
      const float s = fp8_scale(largest_magnitude(x + 32 * b, 32));
      for (std::int64_t i = 32 * b; i < 32 * b + 32; ++i)
        record[i] = static_cast<std::byte>(e4m3_from_f32(x[i] / s));
      record[dim + b] = static_cast<std::byte>(ue8m0_from_f32(s));
    }
    return;
  case kv_format::fp4_e4m3_16:
    for (std::int64_t b = 0; b < dim / 16; ++b) {
      const float s = fp4_kv_scale(largest_magnitude(x + 16 * b, 16));
      pack_fp4(x + 16 * b, 16, s, record + 8 * b);
      record[dim / 2 + b] = static_cast<std::byte>(e4m3_from_f32(s));
    }
    return;
  case kv_format::fp4_ue8m0_32:
    for (std::int64_t b = 0; b < dim / 32; ++b) {
      const float s = fp4_scale(largest_magnitude(x + 32 * b, 32));
      pack_fp4(x + 32 * b, 32, s, record + 16 * b);
      record[dim / 2 + b] = static_cast<std::byte>(ue8m0_from_f32(s));
    }
    return;
  }
}

void decode_record(kv_format f, const std::byte* record, std::int64_t dim, float* x) {
  const auto byte_at = [&](std::int64_t i) { return std::to_integer<std::uint8_t>(record[i]); };
  switch (f) {
  case kv_format::f32:
    std::memcpy(x, record, static_cast<std::size_t>(dim) * 4);
    return;
  case kv_format::fp8_ue8m0_32:
    for (std::int64_t i = 0; i < dim; ++i)
      x[i] = f32_from_e4m3(byte_at(i)) * f32_from_ue8m0(byte_at(dim + i / 32));
    return;
  case kv_format::fp4_e4m3_16:
    for (std::int64_t b = 0; b < dim / 16; ++b)
      unpack_fp4(record + 8 * b, 16, f32_from_e4m3(byte_at(dim / 2 + b)), x + 16 * b);
    return;
  case kv_format::fp4_ue8m0_32:
    for (std::int64_t b = 0; b < dim / 32; ++b)
      unpack_fp4(record + 16 * b, 32, f32_from_ue8m0(byte_at(dim / 2 + b)), x + 32 * b);
    return;
  }
}

void round_row(kv_format f, const float* x, std::int64_t n, float* out) {
  const int block = f == kv_format::fp4_e4m3_16 ? 16 : 32;
  if (f == kv_format::f32) {
    std::memmove(out, x, static_cast<std::size_t>(n) * 4);
    return;
  }
  for (std::int64_t b = 0; b < n; b += block) {
    const float top = largest_magnitude(x + b, block);
    const float s = f == kv_format::fp8_ue8m0_32  ? fp8_scale(top)
                    : f == kv_format::fp4_e4m3_16 ? fp4_kv_scale(top)
                                                  : fp4_scale(top);
    for (std::int64_t i = b; i < b + block; ++i)
      out[i] = f == kv_format::fp8_ue8m0_32 ? fp8_round_trip(x[i], s) : fp4_round_trip(x[i], s);
  }
}

} // namespace troupe::reference
