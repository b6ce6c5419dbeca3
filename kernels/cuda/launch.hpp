// What every launch of a kernel needs, and how failures travel: host errors as device_error, errors found by a kernel
// as a word in memory that the host can read.
#pragma once
#include "runtime/base/device_error.hpp"
#include <cstdint>
#include <cuda_runtime_api.h>
#include <string>

namespace troupe::cuda {

// Found by kernels in their arguments; the work of that row is then left out. Kept until the stream is asked.
enum class fault : std::uint32_t {
  none,
  sequence,     // row map: sequence outside [0, sequences)
  slot,         // row map: negative state slot
  row,          // a row number that is not in the step
  position,     // negative position
  expert_slot,  // expert without a place in the set
  forced_token, // forced token outside the vocabulary
};
const char* describe(fault f);

struct launch {
  cudaStream_t stream = nullptr;
  std::uint32_t* fault_word = nullptr; // device address of mapped host memory
};

// Throws device_error with the CUDA text and what was being done.
void check(cudaError_t e, const char* what);
inline void check_launch(const char* operation) {
  check(cudaGetLastError(), operation);
}

} // namespace troupe::cuda
