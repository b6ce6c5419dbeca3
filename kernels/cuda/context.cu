// What looks back at the context, and routing: index, selection, attention.
#include "kernels/cuda/kernels.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/plain/attention.hpp"
#include "kernels/plain/index.hpp"
#include "kernels/plain/moe.hpp"

namespace troupe::cuda {
namespace {

constexpr std::size_t own_memory = 48 * 1024; // shared memory that every block may take

// A warp for each key of a row: lanes over heads for the products over channels.
constexpr int score_warps = 4;
__global__ void index_scores_kernel(const index_scores_args a, std::uint32_t* fault_word) {
  extern __shared__ float shared[];
  const std::int64_t i = blockIdx.x, row = a.first + i;
  if (const fault f = fault_of(a.map, row); f != fault::none)
    return report(fault_word, f);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  float *key = shared + warp * (a.dim + a.heads), *dots = key + a.dim;
  const std::int32_t sequence = a.map.sequence.raw()[row];
  const float* q = a.q.raw() + row * a.heads * a.dim;
  const std::int64_t visible = plain::scored_positions(a, i);
  for (std::int64_t b = std::int64_t{blockIdx.y} * score_warps + warp; b < visible;
       b += std::int64_t{gridDim.y} * score_warps) {
    const std::byte* record = plain::context_record(a.map, sequence, a.keys, b);
    __syncwarp();
    for (int c = lane; c < a.dim; c += 32)
      key[c] = plain::record_value(a.keys.format, record, a.dim, c);
    __syncwarp();
    for (int h = lane; h < a.heads; h += 32) {
      float acc = 0;
      for (int c = 0; c < a.dim; ++c)
        acc = plain::fma(key[c], q[std::int64_t{h} * a.dim + c], acc);
      dots[h] = acc;
    }
    __syncwarp();
    if (lane == 0)
      a.scores.raw()[i * a.stride + b] = plain::index_score(a.a.raw() + row * a.heads, dots, a.heads);
  }
}

struct candidates_shell : unchecked {
  static __device__ void run(block_team& t, const candidate_args& a, std::int64_t i) { plain::candidates_row(t, a, i); }
};
struct select_shell : unchecked {
  static __device__ void run(block_team& t, const select_args& a, std::int64_t i) { plain::select_row(t, a, i); }
};

// Places that a row's keys can take, even: so that pointers behind a block's part of the scratch stay aligned.
std::int64_t most_places(const attention_args& a) {
  return (std::int64_t{a.ring.entries} + a.map.key_rows + (a.selected ? a.topk : 0) + 1) / 2 * 2;
}
constexpr std::int64_t scratch_blocks = 2048; // with scratch: blocks, each for one item after another
constexpr std::size_t place_bytes = sizeof(const std::byte*) + sizeof(float);

// A block for each (row, head); records and weights of the keys lie in shared memory or in the scratch.
__global__ void attention_kernel(const attention_args a, std::int64_t places_room, std::byte* scratch,
                                 std::uint32_t* fault_word) {
  extern const __shared__ std::byte* shared_records[];
  __shared__ block_team::cells cells;
  block_team t(cells);
  const std::byte** records = scratch != nullptr
                                  ? reinterpret_cast<const std::byte**>(
                                        scratch + blockIdx.x * static_cast<std::size_t>(places_room) * place_bytes)
                                  : shared_records;
  float* p = reinterpret_cast<float*>(records + places_room);
  for (std::int64_t item = blockIdx.x; item < std::int64_t{a.map.rows} * a.heads; item += gridDim.x) {
    const std::int64_t row = item / a.heads, head = item % a.heads;
    if (const fault f = fault_of(a.map, row); f != fault::none) {
      report(fault_word, f);
      continue;
    }
    const plain::key_places places = plain::places_of(a, row);
    const float* q = a.q.raw() + item * a.dim;
    t.sync(); // the item before has been finished
    for (std::int64_t k = t.rank(); k < places.count; k += t.size()) {
      const std::byte* record = plain::key_record(a, row, places, k);
      records[k] = record;
      if (record == nullptr)
        continue;
      const kv_format format = plain::key_format(a, places, k);
      float acc = 0; // the product over channels
      for (int c = 0; c < a.dim; ++c)
        acc = plain::fma(plain::record_value(format, record, a.dim, c), q[c], acc);
      p[k] = acc;
    }
    t.sync();
    plain::key_weights(t, p, places.count, a.scale, a.sink.raw()[head],
                       [&](std::int64_t k) { return records[k] != nullptr; });
    for (int c = t.rank(); c < a.dim; c += t.size()) {
      float acc = 0; // the product over the list
      for (std::int64_t k = 0; k < places.count; ++k)
        if (records[k] != nullptr)
          acc = plain::fma(p[k], plain::record_value(plain::key_format(a, places, k), records[k], a.dim, c), acc);
      a.out.raw()[item * a.dim + c] = acc;
    }
  }
}

__global__ void route_kernel(const route_args a) {
  extern __shared__ float shared[];
  __shared__ block_team::cells cells;
  block_team t(cells);
  plain::route_row(t, a, blockIdx.x, shared);
  if (!a.counts)
    return;
  t.sync();
  for (int j = t.rank(); j < a.k; j += t.size())
    if (const std::int32_t expert = a.expert.raw()[std::int64_t{blockIdx.x} * a.k + j]; expert >= 0)
      atomicAdd(a.counts.raw() + expert, 1u); // whole numbers: the order does not matter
}

// Lets a kernel take more shared memory than every block may by default.
template <class Kernel> void allow(Kernel* kernel, std::size_t bytes, const char* operation) {
  if (bytes > own_memory)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
          operation);
}

} // namespace

void index_scores(const launch& l, const index_scores_args& a) {
  if (a.count <= 0 || a.stride <= 0)
    return;
  const std::size_t bytes = score_warps * static_cast<std::size_t>(a.dim + a.heads) * sizeof(float);
  allow(index_scores_kernel, bytes, "index_scores");
  const std::int64_t blocks = (a.stride + score_warps - 1) / score_warps;
  index_scores_kernel<<<dim3(static_cast<unsigned>(a.count), static_cast<unsigned>(blocks < 512 ? blocks : 512)),
                        32 * score_warps, bytes, l.stream>>>(a, l.fault_word);
  check_launch("index_scores");
}

void candidates(const launch& l, const candidate_args& a) {
  run_rows<candidates_shell>(l, a.count, 256, a, "candidates");
}
void select(const launch& l, const select_args& a) {
  run_rows<select_shell>(l, a.count, 256, a, "select");
}

std::size_t attention_scratch(const attention_args& a) {
  const std::size_t each = static_cast<std::size_t>(most_places(a)) * place_bytes;
  return each <= own_memory ? 0 : each * scratch_blocks;
}
void attention(const launch& l, const attention_args& a, std::byte* scratch) {
  const std::int64_t items = std::int64_t{a.map.rows} * a.heads;
  if (items <= 0)
    return;
  const std::int64_t room = most_places(a);
  const std::int64_t blocks = scratch != nullptr && items > scratch_blocks ? scratch_blocks : items;
  attention_kernel<<<static_cast<unsigned>(blocks), 128,
                     scratch != nullptr ? 0 : static_cast<std::size_t>(room) * place_bytes, l.stream>>>(
      a, room, scratch, l.fault_word);
  check_launch("attention");
}

void route(const launch& l, const route_args& a) {
  if (a.rows <= 0)
    return;
  const std::size_t bytes = 2 * static_cast<std::size_t>(a.experts) * sizeof(float);
  allow(route_kernel, bytes, "route");
  route_kernel<<<static_cast<unsigned>(a.rows), 128, bytes, l.stream>>>(a);
  check_launch("route");
}

} // namespace troupe::cuda
