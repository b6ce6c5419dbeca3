// Attention over the window and the selected compressed positions (model.md §5; order: docs/numerics.md).
#pragma once
#include "kernels/ops.hpp"
#include <cstddef>
#include <span>

namespace troupe::reference {

// Floats of scratch that rows [begin, end) need; reads the row map.
std::size_t attention_scratch(const attention_args& a, int begin, int end);

// Window positions that are neither in the ring nor among the step's rows, and selected positions past the block table,
// are left out. A row without keys gives 0.
void attention(const attention_args& a, int begin, int end, std::span<float> scratch);

} // namespace troupe::reference
