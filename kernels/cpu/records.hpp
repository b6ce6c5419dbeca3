// Writing of cached vectors on the cpu device, with the bits of kernels/reference. Rows [begin, end).
#pragma once
#include "kernels/ops.hpp"

namespace troupe::cpu {

void encode(const encode_args& a, int begin, int end);
void block_store(const block_store_args& a, int begin, int end);

} // namespace troupe::cpu
