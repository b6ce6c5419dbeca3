#include "kernels/cuda/launch.hpp"

#include <cuda_runtime.h>

namespace troupe::cuda {

const char* describe(fault f) {
  switch (f) {
  case fault::none:
    break;
  case fault::sequence:
    return "a row of the step names a sequence that is not in it";
  case fault::slot:
    return "a sequence of the step has no state slot";
  case fault::row:
    return "a row number lies outside its table";
  case fault::position:
    return "a position is negative";
  case fault::expert_slot:
    return "a routed expert has no place on this device";
  case fault::forced_token:
    return "a forced token lies outside the vocabulary";
  }
  return "an operation found its arguments damaged";
}

void check(cudaError_t e, const char* what) {
  if (e != cudaSuccess)
    throw device_error(std::string("cuda: ") + what + ": " + cudaGetErrorString(e) + " (" + cudaGetErrorName(e) + ")");
}

} // namespace troupe::cuda
