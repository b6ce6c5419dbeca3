// The operation sample_rows: the sampler of exactness.md §4-5 over rows [begin, end) of a call.
#pragma once
#include "kernels/ops.hpp"
#include "kernels/reference/sample.hpp"

namespace troupe::reference {

void sample_rows(const sample_rows_args& a, int begin, int end, sample_scratch& scratch); // scratch for a.vocab logits

} // namespace troupe::reference
