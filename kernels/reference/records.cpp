#include "kernels/reference/records.hpp"

#include "kernels/plain/cache.hpp"
#include "kernels/plain/rows.hpp"
#include "kernels/reference/alone.hpp"
#include <cstring>

namespace troupe::reference {

void encode_record(kv_format f, const float* x, std::int64_t dim, std::byte* record) {
  alone t;
  if (f == kv_format::f32)
    std::memcpy(record, x, static_cast<std::size_t>(dim) * 4); // a record of a test may stand at any address
  else
    plain::encode_values(t, f, x, dim, record);
}

void decode_record(kv_format f, const std::byte* record, std::int64_t dim, float* x) {
  const std::int64_t blocks = dim / plain::scale_block(f);
  switch (f) { // with the format as a constant the compiler drops the choices inside
  case kv_format::f32:
    std::memcpy(x, record, static_cast<std::size_t>(dim) * 4);
    return;
  case kv_format::fp8_ue8m0_32:
    for (std::int64_t b = 0; b < blocks; ++b)
      plain::decode_block(kv_format::fp8_ue8m0_32, record, dim, b, x);
    return;
  case kv_format::fp4_e4m3_16:
    for (std::int64_t b = 0; b < blocks; ++b)
      plain::decode_block(kv_format::fp4_e4m3_16, record, dim, b, x);
    return;
  case kv_format::fp4_ue8m0_32:
    for (std::int64_t b = 0; b < blocks; ++b)
      plain::decode_block(kv_format::fp4_ue8m0_32, record, dim, b, x);
    return;
  }
}

void round_row(kv_format f, const float* x, std::int64_t n, float* out) {
  alone t;
  if (f == kv_format::f32)
    std::memmove(out, x, static_cast<std::size_t>(n) * 4);
  else if (f == kv_format::fp8_ue8m0_32)
    plain::round_values(t, kv_format::fp8_ue8m0_32, x, n, out);
  else
    plain::round_values(t, f, x, n, out);
}

} // namespace troupe::reference
