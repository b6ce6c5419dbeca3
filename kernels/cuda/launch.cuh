// Shells that run a function of the plain set for every row of a call.
#pragma once
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/team.cuh"
#include "kernels/ops.hpp"

namespace troupe::cuda {

__device__ inline void report(std::uint32_t* word, fault f) {
  *static_cast<volatile std::uint32_t*>(word) = static_cast<std::uint32_t>(f); // any of several is good enough
}

// The first fault of row i of a step.
__device__ inline fault fault_of(const row_map& m, std::int64_t i) {
  if (i < 0 || i >= m.rows)
    return fault::row;
  const std::int32_t s = m.sequence.raw()[i];
  if (s < 0 || s >= m.sequences)
    return fault::sequence;
  if (m.position && m.position.raw()[i] < 0)
    return fault::position;
  return m.slot && m.slot.raw()[s] < 0 ? fault::slot : fault::none;
}

// Row is a type with
//   static __device__ fault check(const Args&, std::int64_t row)
//   template <class Team> static __device__ void run(Team&, const Args&, std::int64_t row)
template <class Row, class Args> __global__ void row_kernel(const Args a, std::uint32_t* fault_word) {
  if (const fault f = Row::check(a, blockIdx.x); f != fault::none)
    return report(fault_word, f);
  __shared__ block_team::cells cells;
  block_team t(cells);
  Row::run(t, a, blockIdx.x);
}
template <class Row, class Args> __global__ void element_kernel(const Args a, std::uint32_t* fault_word) {
  if (const fault f = Row::check(a, blockIdx.x); f != fault::none)
    return report(fault_word, f);
  elements t;
  Row::run(t, a, blockIdx.x);
}

// One block for each row.
template <class Row, class Args>
void run_rows(const launch& l, std::int64_t rows, int threads, const Args& a, const char* operation) {
  if (rows <= 0)
    return;
  row_kernel<Row><<<static_cast<unsigned>(rows), threads, 0, l.stream>>>(a, l.fault_word);
  check_launch(operation);
}
// As many blocks for each row as its independent elements keep busy.
template <class Row, class Args>
void run_elements(const launch& l, std::int64_t rows, std::int64_t per_row, const Args& a, const char* operation) {
  if (rows <= 0 || per_row <= 0)
    return;
  const std::int64_t threads = per_row >= 128 ? 128 : (per_row + 31) / 32 * 32, blocks = (per_row + threads - 1) / threads;
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(blocks < 64 ? blocks : 64));
  element_kernel<Row><<<grid, static_cast<unsigned>(threads), 0, l.stream>>>(a, l.fault_word);
  check_launch(operation);
}

// Rows that nothing can be wrong with.
struct unchecked {
  template <class Args> static __device__ fault check(const Args&, std::int64_t) { return fault::none; }
};

} // namespace troupe::cuda
