// Embedding and Engram tables in host memory: the checkpoint's own bytes, a row dequantised when it is asked for. Used
// by every device whose tables stay on the host.
#pragma once
#include "kernels/ops.hpp"
#include "kernels/weight_source.hpp"
#include <vector>

namespace troupe::reference {

class host_table : public row_table {
public:
  // Keeps the source's owner; copies the bytes when there is none. Throws device_error for a bad source.
  explicit host_table(const weight_source& s);
  // out[cols] = row `index` as fp32; zeros for an index outside [0, rows).
  void row(std::int64_t index, float* out) const;

private:
  weight_source source_;
  std::vector<std::byte> data_, scale_; // used without an owner
};

} // namespace troupe::reference
