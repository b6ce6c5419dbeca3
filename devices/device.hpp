// The device interface: memory, streams, events, graph capture and the op table. runtime/model is written once against
// it. Work is asynchronous unless a function says otherwise; host code never reads device memory except through copies.
#pragma once
#include "kernels/ops.hpp"
#include "kernels/weight_source.hpp"
#include "runtime/base/device_error.hpp"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

// Device memory with one owner; freed with it.
class buffer {
public:
  class storage {
  public:
    virtual ~storage() = default;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  buffer() = default;
  explicit buffer(std::unique_ptr<storage> s) : storage_(std::move(s)) {}
  template <class T> dev_ptr<T> as() const {
    return dev_ptr<T>(storage_ ? reinterpret_cast<T*>(storage_->data) : nullptr);
  }
  std::size_t bytes() const { return storage_ ? storage_->bytes : 0; }
  explicit operator bool() const { return storage_ != nullptr; }

private:
  std::unique_ptr<storage> storage_;
};

// Marks a point of a stream.
class event {
public:
  virtual ~event() = default;
  virtual bool done() const = 0; // never blocks
  virtual void wait() = 0;       // blocks the calling thread
  // Time between the moments on which the device reached an earlier event of the same stream and this one. Both are
  // done.
  virtual double ms_since(const event& earlier) const = 0;
};

// A recorded sequence of operations. Null when the device runs operations at once (CPU): run the calls again instead.
class graph {
public:
  virtual ~graph() = default;
};

// Operations and copies of one stream run in the order they were given.
class stream {
public:
  virtual ~stream() = default;
  virtual void to_device(dev_ptr<std::byte> dst, const void* src,
                         std::size_t bytes) = 0; // src is read before it returns
  virtual void to_host(void* dst, dev_ptr<const std::byte> src,
                       std::size_t bytes) = 0; // valid after synchronise or an event
  virtual void copy(dev_ptr<std::byte> dst, dev_ptr<const std::byte> src, std::size_t bytes) = 0;
  virtual void zero(dev_ptr<std::byte> dst, std::size_t bytes) = 0;
  virtual std::unique_ptr<event> record() = 0;
  virtual void wait_for(const event& e) = 0;
  virtual void synchronise() = 0;
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<graph> end_capture() = 0;
  virtual void launch(const graph& g) = 0;
};

// The op table. Every operation is row-invariant: a row's result has the same bits whatever else is in the call.
class op_table {
public:
  virtual ~op_table() = default;
  virtual void share_drafts(stream&, const share_drafts_args&) = 0;
  virtual void lay_out_rows(stream&, const lay_out_rows_args&) = 0;
  virtual void verify_drafts(stream&, const verify_drafts_args&) = 0;
  virtual void lay_out_drafts(stream&, const lay_out_drafts_args&) = 0;
  virtual void keep_drafts(stream&, const keep_drafts_args&) = 0;
  virtual void embed(stream&, const embed_args&) = 0;
  virtual void engram_rows(stream&, const engram_rows_args&) = 0;
  virtual void gather(stream&, const gather_args&) = 0;
  virtual void engram_gate(stream&, const engram_gate_args&) = 0;
  virtual void hc_collapse(stream&, const hc_collapse_args&) = 0;
  virtual void hc_mixes(stream&, const hc_mixes_args&) = 0;
  virtual void hc_expand(stream&, const hc_expand_args&) = 0;
  virtual void hc_mean(stream&, const hc_mean_args&) = 0;
  virtual void rms_norm(stream&, const rms_norm_args&) = 0;
  virtual void round(stream&, const round_args&) = 0;
  virtual void linear(stream&, const linear_args&) = 0;
  virtual void rope(stream&, const rope_args&) = 0;
  virtual void encode(stream&, const encode_args&) = 0;
  virtual void ring_commit(stream&, const ring_commit_args&) = 0;
  virtual void block_store(stream&, const block_store_args&) = 0;
  virtual void compress(stream&, const compress_args&) = 0;
  virtual void index_scores(stream&, const index_scores_args&) = 0;
  virtual void candidates(stream&, const candidate_args&) = 0;
  virtual void select(stream&, const select_args&) = 0;
  virtual void attention(stream&, const attention_args&) = 0;
  virtual void route(stream&, const route_args&) = 0;
  virtual void swiglu(stream&, const swiglu_args&) = 0;
  virtual void experts(stream&, const experts_args&) = 0;
  virtual void combine(stream&, const combine_args&) = 0;
  virtual void copy_rows(stream&, const copy_rows_args&) = 0;
  virtual void copy_columns(stream&, const copy_columns_args&) = 0;
  virtual void sample_rows(stream&, const sample_rows_args&) = 0;
};

struct device_memory {
  std::size_t total = 0, available = 0; // bytes
};

class device {
public:
  virtual ~device() = default;
  virtual std::string name() const = 0;        // "cpu", "reference", "cuda:0"
  virtual std::string description() const = 0; // for people: instruction set, threads
  virtual std::string numerics_id() const = 0; // exactness.md §1; equal ids mean equal bits
  virtual device_memory memory() const = 0;
  // Zeroed memory, 64-byte aligned; throws device_error that names `what`, the bytes needed and available.
  virtual buffer allocate(std::size_t bytes, const std::string& what) = 0;
  virtual std::unique_ptr<stream> make_stream() = 0;
  // The sources' bytes may be released after pack and pack_experts return; a table may keep its source's owner.
  virtual std::shared_ptr<const weight> pack(const weight_source&) = 0;
  virtual std::shared_ptr<const row_table> pack_table(const weight_source&) = 0;
  virtual std::shared_ptr<expert_set> pack_experts(std::span<const expert_source>) = 0;
  // Writes one slot of a set anew, in its memory as far as the source's format allows. Its other slots may be in use
  // meanwhile, this one must not; finished when it returns. Throws device_error for other shapes than the set's.
  virtual void replace_expert(expert_set&, std::int32_t slot, const expert_source&) = 0;
  virtual op_table& ops() = 0;
  // Whether streams record graphs: end_capture gives one.
  virtual bool records() const = 0;
};

struct device_options {
  int threads = 0;        // 0 = one per available core (cpu only)
  std::vector<int> cores; // cores to pin the threads to; empty = do not pin
};
// name: "cpu" or "reference". Throws config_error for an unknown or unusable device.
std::unique_ptr<device> make_device(const std::string& name, const device_options& options);

} // namespace troupe
