#include "devices/cuda/memory.hpp"

#include "kernels/cuda/launch.hpp"

namespace troupe::cuda {
namespace {

class gpu_storage : public buffer::storage {
public:
  gpu_storage(std::byte* at, std::size_t n) {
    data = at;
    bytes = n;
  }
  gpu_storage(const gpu_storage&) = delete;
  gpu_storage& operator=(const gpu_storage&) = delete;
  ~gpu_storage() override { cudaFree(data); } // waits for work that uses it
};

[[noreturn]] void refuse(const std::string& who, const std::string& what, std::size_t needed) {
  std::size_t available = 0, total = 0;
  if (cudaMemGetInfo(&available, &total) != cudaSuccess)
    available = 0;
  throw device_error(who + ": no memory for " + what + ": needs " + std::to_string(needed) + " bytes, " +
                     std::to_string(available) + " bytes are available");
}

} // namespace

void use_gpu(int index) {
  check(cudaSetDevice(index), "choosing the GPU");
}

std::unique_ptr<buffer::storage> device_memory_of(std::size_t bytes, const std::string& who, const std::string& what) {
  void* at = nullptr;
  const cudaError_t e = cudaMalloc(&at, bytes == 0 ? 1 : bytes);
  if (e == cudaErrorMemoryAllocation || e == cudaErrorInvalidValue) {
    cudaGetLastError(); // not sticky: the GPU can go on
    refuse(who, what, bytes);
  }
  check(e, "allocating memory");
  auto storage = std::make_unique<gpu_storage>(static_cast<std::byte*>(at), bytes);
  // on the legacy stream, which does not order itself before non-blocking ones: wait for it
  check(cudaMemset(at, 0, bytes), "clearing memory");
  check(cudaStreamSynchronize(nullptr), "clearing memory");
  return storage;
}

host_memory::host_memory(std::size_t bytes, bool mapped, const std::string& who, const std::string& what)
    : bytes_(bytes) {
  void* at = nullptr;
  const cudaError_t e = cudaHostAlloc(&at, bytes == 0 ? 1 : bytes,
                                      cudaHostAllocPortable | (mapped ? cudaHostAllocMapped : cudaHostAllocDefault));
  if (e == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw device_error(who + ": no page-locked host memory for " + what + ": needs " + std::to_string(bytes) +
                       " bytes");
  }
  check(e, "allocating page-locked memory");
  host_.reset(static_cast<std::byte*>(at));
  if (mapped) {
    void* seen = nullptr;
    check(cudaHostGetDevicePointer(&seen, at, 0), "mapping host memory");
    device_ = static_cast<std::byte*>(seen);
  }
}

} // namespace troupe::cuda
