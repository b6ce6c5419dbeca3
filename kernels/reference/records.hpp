// Records of cached vectors (model.md §9) and where they lie in rings and blocks (kernels/ops.hpp).
#pragma once
#include "kernels/plain/records.hpp"

namespace troupe::reference {

// x[dim] -> record of record_bytes(f, dim) bytes and back. dim is a multiple of 32. decode(encode(x)) has the bits of
// the reference model's round trip of the same format.
void encode_record(kv_format f, const float* x, std::int64_t dim, std::byte* record);
void decode_record(kv_format f, const std::byte* record, std::int64_t dim, float* x);

// x[n] -> out[n], the bits of decode(encode(x)) without the record; out may be x.
void round_row(kv_format f, const float* x, std::int64_t n, float* out);

using plain::block_record;
using plain::context_record;
using plain::ring_record;

} // namespace troupe::reference
