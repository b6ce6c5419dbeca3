// Speculation inside a step: a thread for each row or sequence, a block for the logits of a draft.
#include "kernels/cuda/kernels.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/plain/drafts.hpp"

namespace troupe::cuda {
namespace {

constexpr unsigned threads = 64;

// f(i) for every i < n, a thread each.
template <class Args, class Row> __global__ void thread_kernel(const Args a, std::int64_t n, std::uint32_t* word) {
  const std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= n)
    return;
  if (const fault f = Row::check(a, i); f != fault::none)
    return report(word, f);
  Row::run(a, i);
}
template <class Row, class Args>
void run_threads(const launch& l, std::int64_t n, const Args& a, const char* operation) {
  if (n <= 0)
    return;
  thread_kernel<Args, Row>
      <<<static_cast<unsigned>((n + threads - 1) / threads), threads, 0, l.stream>>>(a, n, l.fault_word);
  check_launch(operation);
}

__device__ fault fault_of_slot(dev_ptr<const std::int32_t> slot, std::int64_t s) {
  return slot.raw()[s] < 0 ? fault::slot : fault::none;
}

struct share_drafts_shell : unchecked {
  static __device__ void run(block_team& t, const share_drafts_args& a, std::int64_t) { plain::share_drafts(t, a); }
};
struct lay_out_row {
  static __device__ fault check(const lay_out_rows_args& a, std::int64_t i) { return fault_of(a.map, i); }
  static __device__ void run(const lay_out_rows_args& a, std::int64_t i) { plain::lay_out_row(a, i); }
};
struct verify_sequence {
  static __device__ fault check(const verify_drafts_args& a, std::int64_t s) { return fault_of_slot(a.map.slot, s); }
  static __device__ void run(const verify_drafts_args& a, std::int64_t s) { plain::verify_sequence(a, s); }
};
struct lay_out_draft_row {
  static __device__ fault check(const lay_out_drafts_args& a, std::int64_t i) {
    return fault_of_slot(a.slot, i / a.state.block);
  }
  static __device__ void run(const lay_out_drafts_args& a, std::int64_t i) { plain::lay_out_draft_row(a, i); }
};
struct keep_draft_shell {
  static __device__ fault check(const keep_drafts_args& a, std::int64_t s) { return fault_of_slot(a.slot, s); }
  static __device__ void run(elements& t, const keep_drafts_args& a, std::int64_t s) {
    if (t.rank() == 0)
      plain::keep_draft(a, s);
    plain::keep_draft_logits(t, a, s);
  }
};

} // namespace

void share_drafts(const launch& l, const share_drafts_args& a) {
  run_rows<share_drafts_shell>(l, 1, 256, a, "share_drafts");
}
void lay_out_rows(const launch& l, const lay_out_rows_args& a) {
  run_threads<lay_out_row>(l, a.map.rows, a, "lay_out_rows");
}
void verify_drafts(const launch& l, const verify_drafts_args& a) {
  run_threads<verify_sequence>(l, a.map.sequences, a, "verify_drafts");
}
void lay_out_drafts(const launch& l, const lay_out_drafts_args& a) {
  run_threads<lay_out_draft_row>(l, std::int64_t{a.sequences} * a.state.block, a, "lay_out_drafts");
}
void keep_drafts(const launch& l, const keep_drafts_args& a) {
  run_elements<keep_draft_shell>(l, a.sequences, a.state.logits ? a.vocab : 1, a, "keep_drafts");
}

} // namespace troupe::cuda
