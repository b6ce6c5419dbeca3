// Operations whose rows or elements are independent: the plain set under a block or several for each row.
#include "kernels/cuda/kernels.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/plain/cache.hpp"
#include "kernels/plain/moe.hpp"
#include "kernels/plain/rows.hpp"
#include "kernels/plain/trunk.hpp"

namespace troupe::cuda {
namespace {

struct embed_call {
  plain::stored_view table;
  embed_args a;
};
struct embed_row : unchecked {
  static __device__ void run(elements& t, const embed_call& c, std::int64_t i) {
    for (int s = 0; s < c.a.streams; ++s)
      plain::table_row(t, c.table, c.a.ids.raw()[i], c.a.out.raw() + (i * c.a.streams + s) * c.table.cols);
  }
};
struct gather_call {
  plain::stored_view table;
  gather_args a;
};
struct gather_row : unchecked {
  static __device__ void run(elements& t, const gather_call& c, std::int64_t i) {
    plain::table_row(t, c.table, c.a.index.raw()[i], c.a.out.raw() + i * c.table.cols);
  }
};

// A shell around a function of the plain set whose arguments need no check.
#define TROUPE_ROW(name, function)                                                                                     \
  struct name : unchecked {                                                                                            \
    template <class Team, class Args> static __device__ void run(Team& t, const Args& a, std::int64_t i) {             \
      function(t, a, i);                                                                                               \
    }                                                                                                                  \
  }
TROUPE_ROW(copy_columns_shell, plain::copy_columns_row);
TROUPE_ROW(rms_norm_shell, plain::rms_norm_row);
TROUPE_ROW(round_shell, plain::round_row);
TROUPE_ROW(encode_shell, plain::encode_row);
TROUPE_ROW(block_store_shell, plain::block_store_row);
TROUPE_ROW(engram_gate_shell, plain::engram_gate_row);
TROUPE_ROW(hc_collapse_shell, plain::hc_collapse_row);
TROUPE_ROW(hc_expand_shell, plain::hc_expand_row);
TROUPE_ROW(hc_mean_shell, plain::hc_mean_row);
TROUPE_ROW(swiglu_shell, plain::swiglu_row);
TROUPE_ROW(combine_shell, plain::combine_row);
#undef TROUPE_ROW

struct copy_rows_shell {
  static __device__ fault check(const copy_rows_args& a, std::int64_t i) {
    return a.index.raw()[i] < 0 ? fault::row : fault::none;
  }
  static __device__ void run(elements& t, const copy_rows_args& a, std::int64_t i) { plain::copy_rows_row(t, a, i); }
};
struct rope_shell {
  static __device__ fault check(const rope_args& a, std::int64_t i) {
    return a.position.raw()[i] < 0 ? fault::position : fault::none;
  }
  static __device__ void run(elements& t, const rope_args& a, std::int64_t i) { plain::rope_row(t, a, i); }
};
struct ring_commit_shell {
  static __device__ fault check(const ring_commit_args& a, std::int64_t i) { return fault_of(a.map, i); }
  static __device__ void run(elements& t, const ring_commit_args& a, std::int64_t i) {
    plain::ring_commit_row(t, a, i);
  }
};
struct compress_shell {
  static __device__ fault check(const compress_args& a, std::int64_t b) {
    const std::int32_t row = a.last_row.raw()[b];
    return row == -1 ? fault::none : fault_of(a.map, row);
  }
  static __device__ void run(elements& t, const compress_args& a, std::int64_t b) { plain::compress_block(t, a, b); }
};
struct engram_rows_shell {
  static __device__ fault check(const engram_rows_args& a, std::int64_t i) { return fault_of(a.map, i); }
  static __device__ void run(elements& t, const engram_rows_args& a, std::int64_t i) {
    plain::engram_rows_row(t, a, i);
  }
};
struct hc_mixes_call {
  hc_mixes_args a;
  const float* products;
};
struct hc_mixes_shell : unchecked {
  static __device__ void run(block_team& t, const hc_mixes_call& c, std::int64_t i) {
    plain::hc_mixes_row(t, c.a, i, c.products + i * c.a.streams * (c.a.streams + 2));
  }
};

__global__ void signal_kernel(volatile std::uint64_t* to, std::uint64_t value) {
  __threadfence_system(); // what the stream wrote to the host before is seen before the value
  *to = value;
}

} // namespace

void embed(const launch& l, const plain::stored_view& table, const embed_args& a) {
  run_elements<embed_row>(l, a.rows, table.cols, embed_call{table, a}, "embed");
}
void gather(const launch& l, const plain::stored_view& table, const gather_args& a) {
  run_elements<gather_row>(l, std::int64_t{a.rows} * a.per_row, table.cols, gather_call{table, a}, "gather");
}
void copy_rows(const launch& l, const copy_rows_args& a) {
  run_elements<copy_rows_shell>(l, a.rows, a.cols, a, "copy_rows");
}
void copy_columns(const launch& l, const copy_columns_args& a) {
  run_elements<copy_columns_shell>(l, a.rows, a.cols, a, "copy_columns");
}
void rms_norm(const launch& l, const rms_norm_args& a) {
  run_rows<rms_norm_shell>(l, a.rows, 128, a, "rms_norm");
}
void round(const launch& l, const round_args& a) {
  run_elements<round_shell>(l, a.rows, a.cols / 16, a, "round");
}
void rope(const launch& l, const rope_args& a) {
  run_elements<rope_shell>(l, a.rows, a.rope_dim / 2, a, "rope");
}
void encode(const launch& l, const encode_args& a) {
  run_elements<encode_shell>(l, a.rows, (a.dim + 15) / 16, a, "encode");
}
void ring_commit(const launch& l, const ring_commit_args& a) {
  run_elements<ring_commit_shell>(l, a.map.rows, record_bytes(a.ring.format, a.ring.dim), a, "ring_commit");
}
void block_store(const launch& l, const block_store_args& a) {
  run_elements<block_store_shell>(l, a.rows, (a.blocks.dim + 15) / 16, a, "block_store");
}
void compress(const launch& l, const compress_args& a) {
  run_elements<compress_shell>(l, a.blocks, a.dim, a, "compress");
}
void engram_rows(const launch& l, const engram_rows_args& a) {
  run_elements<engram_rows_shell>(l, a.map.rows, a.heads, a, "engram_rows");
}
void engram_gate(const launch& l, const engram_gate_args& a) {
  run_rows<engram_gate_shell>(l, a.rows, 128, a, "engram_gate");
}
void hc_collapse(const launch& l, const hc_collapse_args& a) {
  run_elements<hc_collapse_shell>(l, a.rows, a.hidden, a, "hc_collapse");
}
void hc_mixes(const launch& l, const hc_mixes_args& a, const float* products) {
  run_rows<hc_mixes_shell>(l, a.rows, 64, hc_mixes_call{a, products}, "hc_mixes");
}
void hc_expand(const launch& l, const hc_expand_args& a) {
  run_elements<hc_expand_shell>(l, a.rows, a.hidden, a, "hc_expand");
}
void hc_mean(const launch& l, const hc_mean_args& a) {
  run_elements<hc_mean_shell>(l, a.rows, a.hidden, a, "hc_mean");
}
void swiglu(const launch& l, const swiglu_args& a) {
  run_elements<swiglu_shell>(l, a.rows, a.cols, a, "swiglu");
}
void combine(const launch& l, const combine_args& a) {
  run_elements<combine_shell>(l, a.rows, a.hidden, a, "combine");
}

bool has_code() {
  cudaFuncAttributes facts;
  const cudaError_t e = cudaFuncGetAttributes(&facts, signal_kernel);
  if (e == cudaSuccess)
    return true;
  cudaGetLastError();
  if (e != cudaErrorNoKernelImageForDevice && e != cudaErrorInvalidDeviceFunction)
    check(e, "looking for kernels");
  return false;
}

void signal(const launch& l, volatile std::uint64_t* to, std::uint64_t value) {
  signal_kernel<<<1, 1, 0, l.stream>>>(to, value);
  check_launch("signal");
}

} // namespace troupe::cuda
