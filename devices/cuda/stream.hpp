// Streams, events and graphs of a GPU. Copies between host and device go through page-locked staging memory, so that
// none blocks. Completion is a number in mapped memory that the last kernel of a record writes and the host reads.
#pragma once
#include "devices/cuda/memory.hpp"
#include "kernels/cuda/launch.hpp"
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace troupe::cuda {

// A copy to the host that waits in staging memory until its point of the stream has been reached.
struct delivery {
  void* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;
  std::uint64_t after = 0;                 // first mark behind it
  std::shared_ptr<const host_memory> keep; // its own staging memory, when it does not lie in the ring
};

// Page-locked memory handed out in a circle. A piece is free again when the mark that came after it was reached.
class staging_ring {
public:
  explicit staging_ring(host_memory memory) : memory_(std::move(memory)) {}
  // n <= most() bytes, or null when the circle is full. mark: of the next record.
  std::byte* take(std::size_t n, std::uint64_t next_mark);
  void release(std::uint64_t reached);
  std::size_t most() const { return memory_.bytes() / 4; }
  bool empty() const { return pieces_.empty(); }

private:
  struct piece {
    std::size_t end;
    std::uint64_t mark;
  };
  host_memory memory_;
  std::size_t head_ = 0, tail_ = 0; // used bytes lie in [tail, head), around the end
  std::deque<piece> pieces_;
};

class gpu_graph;

// Shared by a stream and its events, which may outlive it.
class stream_state {
public:
  stream_state(int gpu, std::string device_name);
  stream_state(const stream_state&) = delete;
  stream_state& operator=(const stream_state&) = delete;
  ~stream_state();

  cudaStream_t raw() const { return stream_; }
  int gpu() const { return gpu_; }
  launch next() const { return {stream_, fault_word_device_}; }

  void to_device(std::byte* to, const void* from, std::size_t bytes);
  void to_host(void* to, const std::byte* from, std::size_t bytes);

  std::uint64_t mark(); // queues the next mark
  bool reached(std::uint64_t mark) const;
  // reached(), and whatever was found wrong as a device_error. Asks the driver now and then, so that a broken GPU
  // shows.
  bool poll(std::uint64_t mark);
  void wait(std::uint64_t mark);

  // Device memory for one operation; later operations of the stream use it again.
  std::byte* scratch(std::size_t bytes);

  bool capturing() const { return capture_ != nullptr; }
  void expect_no_capture(const char* what) const;
  void begin_capture();
  std::unique_ptr<graph> end_capture();
  void launch_graph(const gpu_graph& g);

private:
  void settle(std::uint64_t reached); // hands out what has arrived, frees staging
  void expect_no_fault();
  std::byte* stage(std::size_t n, std::shared_ptr<const host_memory>& keep);

  int gpu_;
  std::string name_;
  cudaStream_t stream_ = nullptr;
  host_memory flags_; // mark reached (u64), fault word (u32)
  std::uint64_t* mark_device_ = nullptr;
  std::uint32_t* fault_word_device_ = nullptr;
  std::uint64_t last_mark_ = 0;
  staging_ring ring_;
  std::vector<delivery> deliveries_; // in the order of their marks
  std::shared_ptr<buffer::storage> scratch_;
  std::unique_ptr<gpu_graph> capture_;
  std::chrono::steady_clock::time_point asked_{};
};

class gpu_graph : public graph {
public:
  gpu_graph() = default;
  gpu_graph(const gpu_graph&) = delete;
  gpu_graph& operator=(const gpu_graph&) = delete;
  ~gpu_graph() override;

  int gpu = 0;
  cudaGraphExec_t executable = nullptr;
  std::vector<std::shared_ptr<const host_memory>> sources;    // what its copies to the device read
  std::vector<delivery> deliveries;                           // of every launch
  std::vector<std::shared_ptr<const buffer::storage>> memory; // scratch that its kernels use
};

class gpu_event : public event {
public:
  explicit gpu_event(std::shared_ptr<stream_state> of);
  ~gpu_event() override;
  bool done() const override { return state_->poll(mark_); }
  void wait() override { state_->wait(mark_); }
  double ms_since(const event& earlier) const override;
  cudaEvent_t raw() const { return event_; }

private:
  std::shared_ptr<stream_state> state_;
  cudaEvent_t event_ = nullptr; // for other streams and for times; the host reads the mark
  std::uint64_t mark_ = 0;
};

class gpu_stream : public stream {
public:
  explicit gpu_stream(std::shared_ptr<stream_state> s) : state_(std::move(s)) {}
  ~gpu_stream() override;
  void to_device(dev_ptr<std::byte> dst, const void* src, std::size_t bytes) override;
  void to_host(void* dst, dev_ptr<const std::byte> src, std::size_t bytes) override;
  void copy(dev_ptr<std::byte> dst, dev_ptr<const std::byte> src, std::size_t bytes) override;
  void zero(dev_ptr<std::byte> dst, std::size_t bytes) override;
  std::unique_ptr<event> record() override;
  void wait_for(const event& e) override;
  void synchronise() override;
  void begin_capture() override;
  std::unique_ptr<graph> end_capture() override;
  void launch(const graph& g) override;

  stream_state& state() { return *state_; }

private:
  std::shared_ptr<stream_state> state_;
};

} // namespace troupe::cuda
