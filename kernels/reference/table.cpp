#include "kernels/reference/table.hpp"

#include "kernels/reference/weights.hpp"
#include <algorithm>

namespace troupe::reference {

host_table::host_table(const weight_source& s) : source_(s) {
  check_source(s);
  rows = s.rows;
  cols = s.cols;
  if (!s.owner) {
    data_.assign(s.data.begin(), s.data.end());
    scale_.assign(s.scale.begin(), s.scale.end());
    source_.data = data_;
    source_.scale = scale_;
  }
}

void host_table::row(std::int64_t index, float* out) const {
  if (index < 0 || index >= rows)
    std::fill_n(out, cols, 0.0f);
  else
    dequantise_row(source_, index, out);
}

} // namespace troupe::reference
