// Matrix products, weights and routed experts. A product's definition is docs/numerics.md's: one accumulator for each
// output, from 0, fma over k ascending. Threads go over outputs and rows, never over k.
#include "kernels/cuda/kernels.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/plain/moe.hpp"

namespace troupe::cuda {
namespace {

constexpr int threads = 128;

// R rows share each weight that a thread reads. x: R rows, x_stride floats apart; w: this output's column.
template <int R>
__device__ void columns(const float* __restrict__ x, std::int64_t x_stride, const float* __restrict__ w,
                        std::int64_t w_stride, std::int64_t in, float (&acc)[R]) {
  for (int r = 0; r < R; ++r)
    acc[r] = 0;
#pragma unroll 8
  for (std::int64_t k = 0; k < in; ++k) {
    const float v = w[k * w_stride];
#pragma unroll
    for (int r = 0; r < R; ++r)
      acc[r] = plain::fma(x[r * x_stride + k], v, acc[r]);
  }
}

template <int R>
__global__ void product_kernel(const float* x, const float* w, std::int64_t rows, std::int64_t groups,
                               std::int64_t cols, std::int64_t outputs, float* out) {
  const std::int64_t o = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (o >= outputs)
    return;
  const std::int64_t g = o / (outputs / groups), stride = groups * cols;
  std::int64_t row = std::int64_t{blockIdx.y} * R;
  row = row + R > rows ? rows - R : row; // the last block computes some rows of the one before again
  float acc[R];
  columns<R>(x + row * stride + g * cols, stride, w + o, outputs, cols, acc);
  for (int r = 0; r < R; ++r)
    out[(row + r) * outputs + o] = acc[r];
}

template <weight_format F> __global__ void unpack_kernel(const plain::stored_view from, float* to) {
  // neighbours write neighbours: element [row, c] goes to c * rows + row
  for (std::int64_t at = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < from.rows * from.cols;
       at += std::int64_t{gridDim.x} * blockDim.x)
    to[at] = plain::stored_value<F>(from, at % from.rows, at / from.rows);
}

// scratch[at]: gate[inner], up[inner].
__global__ void expert_in_kernel(const experts_args a, const expert_weights* set, std::int32_t slots,
                                 std::int64_t hidden, std::int64_t inner, float* scratch, std::uint32_t* fault_word) {
  const std::int64_t at = blockIdx.x, o = std::int64_t{blockIdx.y} * threads + threadIdx.x;
  const std::int32_t slot = plain::expert_slot(a, at);
  if (slot >= slots)
    report(fault_word, fault::expert_slot);
  if (slot < 0 || slot >= slots || o >= inner)
    return;
  const float* x = a.x.raw() + at / a.k * hidden;
  float acc[1];
  columns<1>(x, 0, set[slot].w1 + o, inner, hidden, acc);
  scratch[2 * at * inner + o] = acc[0];
  columns<1>(x, 0, set[slot].w3 + o, inner, hidden, acc);
  scratch[(2 * at + 1) * inner + o] = acc[0];
}
__global__ void expert_inner_kernel(const experts_args a, std::int32_t slots, std::int64_t inner, float* scratch) {
  const std::int64_t at = blockIdx.x;
  const std::int32_t slot = plain::expert_slot(a, at);
  if (slot < 0 || slot >= slots)
    return;
  __shared__ block_team::cells cells;
  block_team t(cells);
  float* gate = scratch + 2 * at * inner;
  plain::expert_inner(t, gate, gate + inner, inner, a.limit, a.weight.raw()[at], a.round_inner);
}
__global__ void expert_out_kernel(const experts_args a, const expert_weights* set, std::int32_t slots,
                                  std::int64_t hidden, std::int64_t inner, const float* scratch) {
  const std::int64_t at = blockIdx.x, o = std::int64_t{blockIdx.y} * threads + threadIdx.x;
  const std::int32_t slot = plain::expert_slot(a, at);
  if (slot < 0 || slot >= slots || o >= hidden)
    return;
  float acc[1];
  columns<1>(scratch + 2 * at * inner, 0, set[slot].w2 + o, hidden, inner, acc);
  a.y.raw()[at * hidden + o] = acc[0];
}

unsigned tiles(std::int64_t n, std::int64_t each) {
  return static_cast<unsigned>((n + each - 1) / each);
}

} // namespace

void product(const launch& l, const float* x, const float* w, std::int64_t rows, std::int64_t groups, std::int64_t cols,
             std::int64_t outputs, float* out) {
  if (rows <= 0)
    return;
  if (rows >= 8)
    product_kernel<8><<<dim3(tiles(outputs, threads), tiles(rows, 8)), threads, 0, l.stream>>>(x, w, rows, groups, cols,
                                                                                               outputs, out);
  else
    product_kernel<1><<<dim3(tiles(outputs, threads), static_cast<unsigned>(rows)), threads, 0, l.stream>>>(
        x, w, rows, groups, cols, outputs, out);
  check_launch("matrix product");
}

void unpack(const launch& l, const plain::stored_view& from, float* to) {
  const unsigned tiled = tiles(from.rows * from.cols, 256), blocks = tiled < 65536 ? tiled : 65536;
  plain::with_format(from.format, [&](auto format) {
    unpack_kernel<decltype(format)::value><<<blocks, 256, 0, l.stream>>>(from, to);
  });
  check_launch("unpacking of weights");
}

std::size_t experts_scratch(const experts_args& a) {
  return 2 * static_cast<std::size_t>(a.rows) * static_cast<std::size_t>(a.k) *
         static_cast<std::size_t>(a.set->intermediate);
}

void experts(const launch& l, const experts_args& a, const expert_weights* set, float* scratch) {
  const std::int64_t hidden = a.set->hidden, inner = a.set->intermediate;
  const auto pairs = static_cast<unsigned>(std::int64_t{a.rows} * a.k);
  if (pairs == 0 || a.set->slots == 0)
    return;
  expert_in_kernel<<<dim3(pairs, tiles(inner, threads)), threads, 0, l.stream>>>(a, set, a.set->slots, hidden, inner,
                                                                                 scratch, l.fault_word);
  expert_inner_kernel<<<pairs, threads, 0, l.stream>>>(a, a.set->slots, inner, scratch);
  expert_out_kernel<<<dim3(pairs, tiles(hidden, threads)), threads, 0, l.stream>>>(a, set, a.set->slots, hidden, inner,
                                                                                   scratch);
  check_launch("experts");
}

} // namespace troupe::cuda
