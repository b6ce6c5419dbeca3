// device_error: a failed device call, or a weight that cannot be used. Thrown by device calls only; the executor turns
// it into an error value at its edge.
#pragma once
#include <stdexcept>

namespace troupe {

struct device_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

} // namespace troupe
