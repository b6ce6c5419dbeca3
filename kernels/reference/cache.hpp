// Writing of cached vectors: records, window rings, compressed blocks and the compressor of ratio 2 (model.md §5.1,
// §9).
#pragma once
#include "kernels/ops.hpp"

namespace troupe::reference {

void encode(const encode_args& a, int begin, int end);           // rows
void ring_commit(const ring_commit_args& a, int begin, int end); // rows of the step
void block_store(const block_store_args& a, int begin, int end); // rows
void compress(const compress_args& a, int begin, int end);       // blocks

} // namespace troupe::reference
