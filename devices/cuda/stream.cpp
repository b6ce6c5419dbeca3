#include "devices/cuda/stream.hpp"

#include "kernels/cuda/kernels.hpp"
#include <algorithm>
#include <cstring>
#include <thread>

namespace troupe::cuda {
namespace {

constexpr std::size_t ring_bytes = std::size_t{8} << 20;
constexpr std::size_t alignment = 256;
constexpr auto ask_every = std::chrono::milliseconds(5); // between questions to the driver while a mark is awaited

} // namespace

std::byte* staging_ring::take(std::size_t n, std::uint64_t next_mark) {
  n = (n + alignment - 1) / alignment * alignment;
  std::size_t at = head_;
  if (pieces_.empty()) {
    at = head_ = tail_ = 0;
  } else if (head_ > tail_ && head_ + n > memory_.bytes()) {
    if (n >= tail_) // around the end; head never meets tail, which would look empty
      return nullptr;
    at = 0;
  } else if (head_ <= tail_ && head_ + n >= tail_) {
    return nullptr;
  }
  head_ = at + n;
  pieces_.push_back({head_, next_mark});
  return memory_.host() + at;
}

void staging_ring::release(std::uint64_t reached) {
  while (!pieces_.empty() && pieces_.front().mark <= reached) {
    tail_ = pieces_.front().end;
    pieces_.pop_front();
  }
}

stream_state::stream_state(int gpu, std::string device_name)
    : gpu_(gpu), name_(std::move(device_name)), flags_(64, true, name_, "completion flags"),
      ring_(host_memory(ring_bytes, false, name_, "staging of copies")) {
  std::memset(flags_.host(), 0, flags_.bytes());
  mark_device_ = reinterpret_cast<std::uint64_t*>(flags_.device());
  fault_word_device_ = reinterpret_cast<std::uint32_t*>(flags_.device() + 8);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
}

stream_state::~stream_state() {
  cudaStreamSynchronize(stream_); // staging and flags are in use until then
  cudaStreamDestroy(stream_);
}

bool stream_state::reached(std::uint64_t mark) const {
  const auto* seen = reinterpret_cast<const std::uint64_t*>(flags_.host());
  return __atomic_load_n(seen, __ATOMIC_ACQUIRE) >= mark;
}

void stream_state::settle(std::uint64_t mark) {
  auto at = deliveries_.begin();
  for (; at != deliveries_.end() && at->after <= mark; ++at)
    std::memcpy(at->to, at->from, at->bytes);
  deliveries_.erase(deliveries_.begin(), at);
  ring_.release(mark);
}

void stream_state::expect_no_fault() {
  auto* word = reinterpret_cast<std::uint32_t*>(flags_.host() + 8);
  if (const std::uint32_t found = __atomic_exchange_n(word, 0u, __ATOMIC_ACQ_REL); found != 0)
    throw device_error(name_ + ": " + describe(static_cast<fault>(found)));
}

bool stream_state::poll(std::uint64_t mark) {
  if (reached(mark)) {
    settle(mark);
    expect_no_fault();
    return true;
  }
  if (const auto now = std::chrono::steady_clock::now(); now - asked_ >= ask_every) {
    asked_ = now;
    use_gpu(gpu_);
    if (const cudaError_t e = cudaStreamQuery(stream_); e != cudaErrorNotReady)
      check(e, "waiting for the GPU");
  }
  return false;
}

void stream_state::wait(std::uint64_t mark) {
  for (int round = 0; !poll(mark); ++round)
    if (round > 1000) // some tens of microseconds
      std::this_thread::yield();
}

std::uint64_t stream_state::mark() {
  use_gpu(gpu_);
  signal(next(), mark_device_, last_mark_ + 1);
  return ++last_mark_;
}

std::byte* stream_state::stage(std::size_t n, std::shared_ptr<const host_memory>& keep) {
  if (capturing()) { // a graph's copies repeat: their memory is theirs
    auto own = std::make_shared<const host_memory>(n, false, name_, "staging of a copy");
    keep = own;
    return own->host();
  }
  std::byte* at = ring_.take(n, last_mark_ + 1);
  while (at == nullptr) {
    wait(mark());
    at = ring_.take(n, last_mark_ + 1);
  }
  return at;
}

void stream_state::to_device(std::byte* to, const void* from, std::size_t bytes) {
  const auto* source = static_cast<const std::byte*>(from);
  const std::size_t most = capturing() ? bytes : ring_.most();
  for (std::size_t at = 0; at < bytes; at += most) {
    const std::size_t n = std::min(most, bytes - at);
    std::shared_ptr<const host_memory> own;
    std::byte* staged = stage(n, own);
    std::memcpy(staged, source + at, n);
    check(cudaMemcpyAsync(to + at, staged, n, cudaMemcpyHostToDevice, stream_), "copying to the GPU");
    if (own)
      capture_->sources.push_back(own);
  }
}

void stream_state::to_host(void* to, const std::byte* from, std::size_t bytes) {
  const std::size_t most = capturing() ? bytes : ring_.most();
  for (std::size_t at = 0; at < bytes; at += most) {
    delivery d;
    d.to = static_cast<std::byte*>(to) + at;
    d.bytes = std::min(most, bytes - at);
    std::byte* staged = stage(d.bytes, d.keep);
    d.from = staged;
    d.after = last_mark_ + 1;
    check(cudaMemcpyAsync(staged, from + at, d.bytes, cudaMemcpyDeviceToHost, stream_), "copying from the GPU");
    (capturing() ? capture_->deliveries : deliveries_).push_back(d);
  }
}

std::byte* stream_state::scratch(std::size_t bytes) {
  if (bytes == 0)
    return nullptr;
  if (!scratch_ || scratch_->bytes < bytes) {
    if (capturing()) { // a capturing stream cannot be waited for: work before it may use the old scratch
      if (scratch_)
        capture_->memory.push_back(scratch_);
    } else {
      check(cudaStreamSynchronize(stream_), "waiting for the GPU");
      scratch_.reset(); // first: both together may not fit
    }
    scratch_ = device_memory_of(bytes + bytes / 2, name_, "scratch of an operation");
  }
  if (capturing() && (capture_->memory.empty() || capture_->memory.back() != scratch_))
    capture_->memory.push_back(scratch_);
  return scratch_->data;
}

void stream_state::expect_no_capture(const char* what) const {
  if (capturing())
    throw device_error(name_ + ": " + what + " inside a capture");
}

void stream_state::begin_capture() {
  expect_no_capture("begin_capture");
  use_gpu(gpu_);
  // relaxed: other streams and threads allocate meanwhile
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), "beginning a capture");
  capture_ = std::make_unique<gpu_graph>();
}

std::unique_ptr<graph> stream_state::end_capture() {
  if (!capturing())
    throw device_error(name_ + ": end_capture without begin_capture");
  use_gpu(gpu_);
  std::unique_ptr<gpu_graph> done = std::move(capture_);
  done->gpu = gpu_;
  cudaGraph_t recorded = nullptr;
  check(cudaStreamEndCapture(stream_, &recorded), "ending a capture");
  const cudaError_t e = cudaGraphInstantiate(&done->executable, recorded, 0);
  cudaGraphDestroy(recorded);
  check(e, "making a graph");
  return done;
}

void stream_state::launch_graph(const gpu_graph& g) {
  expect_no_capture("launch");
  use_gpu(gpu_);
  check(cudaGraphLaunch(g.executable, stream_), "launching a graph");
  for (delivery d : g.deliveries) {
    d.after = last_mark_ + 1;
    deliveries_.push_back(d);
  }
}

gpu_graph::~gpu_graph() {
  if (executable == nullptr)
    return;
  cudaSetDevice(gpu);
  cudaDeviceSynchronize(); // a launch may still read the memory below
  cudaGraphExecDestroy(executable);
}

gpu_event::gpu_event(std::shared_ptr<stream_state> of) : state_(std::move(of)) {
  state_->expect_no_capture("record");
  check(cudaEventCreateWithFlags(&event_, cudaEventDefault), "making an event");
  check(cudaEventRecord(event_, state_->raw()), "recording an event");
  mark_ = state_->mark(); // behind the event: once the host sees the mark, the event has its time
}
gpu_event::~gpu_event() {
  if (event_ != nullptr)
    cudaEventDestroy(event_);
}

double gpu_event::ms_since(const event& earlier) const {
  const auto* e = dynamic_cast<const gpu_event*>(&earlier);
  float ms = 0;
  if (e == nullptr || cudaEventElapsedTime(&ms, e->event_, event_) != cudaSuccess) {
    cudaGetLastError(); // a time is missing, nothing is wrong
    return 0;
  }
  return ms;
}

gpu_stream::~gpu_stream() = default;

void gpu_stream::to_device(dev_ptr<std::byte> dst, const void* src, std::size_t bytes) {
  use_gpu(state_->gpu());
  if (bytes != 0)
    state_->to_device(dst.raw(), src, bytes);
}
void gpu_stream::to_host(void* dst, dev_ptr<const std::byte> src, std::size_t bytes) {
  use_gpu(state_->gpu());
  if (bytes != 0)
    state_->to_host(dst, src.raw(), bytes);
}
void gpu_stream::copy(dev_ptr<std::byte> dst, dev_ptr<const std::byte> src, std::size_t bytes) {
  use_gpu(state_->gpu());
  if (bytes == 0)
    return;
  const std::byte *from = src.raw(), *to = dst.raw();
  if (to < from + bytes && from < to + bytes && to != from) { // overlapping: through the scratch
    std::byte* between = state_->scratch(bytes);
    check(cudaMemcpyAsync(between, from, bytes, cudaMemcpyDeviceToDevice, state_->raw()), "copying on the GPU");
    from = between;
  }
  check(cudaMemcpyAsync(dst.raw(), from, bytes, cudaMemcpyDeviceToDevice, state_->raw()), "copying on the GPU");
}
void gpu_stream::zero(dev_ptr<std::byte> dst, std::size_t bytes) {
  use_gpu(state_->gpu());
  if (bytes != 0)
    check(cudaMemsetAsync(dst.raw(), 0, bytes, state_->raw()), "clearing memory");
}
std::unique_ptr<event> gpu_stream::record() {
  return std::make_unique<gpu_event>(state_);
}
void gpu_stream::wait_for(const event& e) {
  use_gpu(state_->gpu());
  if (const auto* ours = dynamic_cast<const gpu_event*>(&e))
    check(cudaStreamWaitEvent(state_->raw(), ours->raw(), 0), "waiting for another stream");
  else
    while (!e.done())
      std::this_thread::yield();
}
void gpu_stream::synchronise() {
  state_->expect_no_capture("synchronise");
  state_->wait(state_->mark());
}
void gpu_stream::begin_capture() {
  state_->begin_capture();
}
std::unique_ptr<graph> gpu_stream::end_capture() {
  return state_->end_capture();
}
void gpu_stream::launch(const graph& g) {
  const auto* ours = dynamic_cast<const gpu_graph*>(&g);
  if (ours == nullptr)
    throw device_error("the graph belongs to another device");
  state_->launch_graph(*ours);
}

} // namespace troupe::cuda
