// Memory of a GPU and of the host as a GPU sees it.
#pragma once
#include "devices/device.hpp"
#include <cuda_runtime_api.h>
#include <memory>
#include <string>

namespace troupe::cuda {

// Makes GPU `index` the calling thread's; everything below and every launch needs it.
void use_gpu(int index);

// Zeroed memory of the current GPU. Throws device_error: who, what, bytes needed and available.
std::unique_ptr<buffer::storage> device_memory_of(std::size_t bytes, const std::string& who, const std::string& what);

// Page-locked host memory that the GPU can address too (mapped), or only copy from and to.
class host_memory {
public:
  host_memory() = default;
  host_memory(std::size_t bytes, bool mapped, const std::string& who, const std::string& what);
  std::byte* host() const { return host_.get(); }
  std::byte* device() const { return device_; } // null unless mapped
  std::size_t bytes() const { return bytes_; }

private:
  struct release {
    void operator()(std::byte* p) const noexcept { cudaFreeHost(p); }
  };
  std::unique_ptr<std::byte, release> host_;
  std::byte* device_ = nullptr;
  std::size_t bytes_ = 0;
};

} // namespace troupe::cuda
