#include "kernels/reference/sample_rows.hpp"

#include "runtime/base/check.hpp"
#include <algorithm>

namespace troupe::reference {

void sample_rows(const sample_rows_args& a, int begin, int end, sample_scratch& scratch) {
  for (int i = begin; i < end; ++i) {
    const plain::sample_view v = plain::sample_view_of(a, i);
    TROUPE_CHECK(v.forced < a.vocab, "forced token outside the vocabulary");
    const std::span top(a.max_top > 0 ? a.top.raw() + std::int64_t{i} * a.max_top : nullptr,
                        static_cast<std::size_t>(std::max(a.max_top, 0)));
    std::ranges::fill(top, std::pair<std::int32_t, float>(-1, -9999.0f));
    plain::put_sample(a, i, sample_row(v, scratch, top));
  }
}

} // namespace troupe::reference
