// Teams of the plain set (kernels/plain/team.hpp) on a GPU.
#pragma once
#include "kernels/plain/sums.hpp"
#include "kernels/plain/team.hpp"

namespace troupe::cuda {

// All threads of a block. The threads must be a multiple of 32, at most 1024.
class block_team {
public:
  struct cells { // shared memory of one block
    float partial[16];
    std::uint64_t of_warp[32];
  };

  __device__ explicit block_team(cells& c) : cells_(c) {}
  __device__ int rank() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return static_cast<int>(blockDim.x); }
  __device__ void sync() const { __syncthreads(); }

  __device__ std::uint64_t total(std::uint64_t n) const {
    for (int step = 16; step > 0; step /= 2)
      n += __shfl_xor_sync(everyone, static_cast<unsigned long long>(n), step);
    return over_warps(n, [](std::uint64_t x, std::uint64_t y) { return x + y; });
  }
  __device__ std::uint64_t largest(std::uint64_t k) const {
    for (int step = 16; step > 0; step /= 2) {
      const std::uint64_t other = __shfl_xor_sync(everyone, static_cast<unsigned long long>(k), step);
      k = other > k ? other : k;
    }
    return over_warps(k, [](std::uint64_t x, std::uint64_t y) { return x > y ? x : y; });
  }
  __device__ std::int32_t before(bool flag, std::int32_t& all) const {
    const unsigned flags = __ballot_sync(everyone, flag);
    if (lane() == 0)
      cells_.of_warp[warp()] = __popc(flags);
    sync();
    std::int32_t n = __popc(flags & ((1u << lane()) - 1u));
    all = 0;
    for (int w = 0; w < warps(); ++w) {
      const auto in_warp = static_cast<std::int32_t>(cells_.of_warp[w]);
      n += w < warp() ? in_warp : 0;
      all += in_warp;
    }
    sync();
    return n;
  }

  // Each of 16 threads makes one of the partial sums; then every thread adds them up for itself.
  __device__ float sum16(const float* a, const float* b, std::int64_t n) const {
    sync();
    if (rank() < 16)
      cells_.partial[rank()] = plain::partial16(a, b, n, rank());
    return combine();
  }
  __device__ float sum16_weighted(const float* a, const float* b, const float* w, std::int64_t n) const {
    sync();
    if (rank() < 16)
      cells_.partial[rank()] = plain::partial16_weighted(a, b, w, n, rank());
    return combine();
  }

private:
  static constexpr unsigned everyone = 0xffffffffu;
  __device__ int lane() const { return static_cast<int>(threadIdx.x % 32); }
  __device__ int warp() const { return static_cast<int>(threadIdx.x / 32); }
  __device__ int warps() const { return static_cast<int>(blockDim.x / 32); }

  template <class Fn> __device__ std::uint64_t over_warps(std::uint64_t value, const Fn& join) const {
    if (lane() == 0)
      cells_.of_warp[warp()] = value;
    sync();
    std::uint64_t all = cells_.of_warp[0];
    for (int w = 1; w < warps(); ++w)
      all = join(all, cells_.of_warp[w]);
    sync();
    return all;
  }
  __device__ float combine() const {
    sync();
    float p[16];
    for (int l = 0; l < 16; ++l)
      p[l] = cells_.partial[l];
    sync();
    return plain::combine16(p);
  }

  cells& cells_;
};

// Several blocks that divide the independent elements of row blockIdx.x; they cannot meet.
struct elements {
  __device__ int rank() const { return static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x); }
  __device__ int size() const { return static_cast<int>(gridDim.y * blockDim.x); }
};

} // namespace troupe::cuda
