// A device that works like a GPU on a machine without one: every stream is a thread that takes its operations from a
// queue, some time after they were called; copies to the host arrive when the host asks; graphs are recorded queues.
// The arithmetic is that of another device. What a caller forgot to wait for shows in the bits.
#pragma once
#include "devices/device.hpp"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace troupe::test {

// Jobs in order on a thread of their own, each at least `pause` after the one before.
class job_queue {
public:
  explicit job_queue(std::chrono::microseconds pause) : pause_(pause), thread_([this] { work(); }) {}
  ~job_queue() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  std::uint64_t push(std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    changed_.notify_all();
    return ++pushed_;
  }
  std::uint64_t pushed() const {
    const std::lock_guard lock(mutex_);
    return pushed_;
  }
  bool reached(std::uint64_t job) const {
    const std::lock_guard lock(mutex_);
    return done_ >= job;
  }
  void wait(std::uint64_t job) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= job; });
  }
  std::string take_failure() { // what a job threw since the last call
    const std::lock_guard lock(mutex_);
    return std::exchange(failure_, {});
  }

private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
      if (jobs_.empty())
        return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      std::string failure;
      if (pause_.count() > 0)
        std::this_thread::sleep_for(pause_);
      else if (done_ % 16 == 0) // each time would take minutes on a busy machine
        std::this_thread::yield();
      try {
        job();
      } catch (const std::exception& e) {
        failure = e.what();
      }
      lock.lock();
      if (failure_.empty())
        failure_ = failure;
      ++done_;
      changed_.notify_all();
    }
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::uint64_t pushed_ = 0, done_ = 0;
  std::string failure_;
  bool ending_ = false;
  std::chrono::microseconds pause_;
  std::thread thread_; // last: it uses the others
};

// A copy to the host that has been made but not handed out.
struct arrival {
  void* to;
  std::shared_ptr<std::vector<std::byte>> bytes;
  std::uint64_t after; // job behind which it may be handed out
};

class queued_graph final : public graph {
public:
  std::vector<std::function<void()>> jobs;
  std::deque<arrival> arrivals;
};

class queued_stream final : public stream {
public:
  queued_stream(std::unique_ptr<stream> inner, std::shared_ptr<job_queue> queue)
      : inner_(std::move(inner)), queue_(std::move(queue)) {}
  ~queued_stream() override { queue_->wait(queue_->pushed()); }

  void push(std::function<void()> job) {
    if (recording_)
      recording_->jobs.push_back(std::move(job));
    else
      queue_->push(std::move(job));
  }
  stream& inner() { return *inner_; }

  void to_device(dev_ptr<std::byte> dst, const void* src, std::size_t bytes) override {
    const auto* from = static_cast<const std::byte*>(src);
    auto kept = std::make_shared<std::vector<std::byte>>(from, from + bytes);
    push([=, this] { inner_->to_device(dst, kept->data(), kept->size()); });
  }
  void to_host(void* dst, dev_ptr<const std::byte> src, std::size_t bytes) override {
    auto kept = std::make_shared<std::vector<std::byte>>(bytes);
    push([=, this] { inner_->to_host(kept->data(), src, kept->size()); });
    (recording_ ? recording_->arrivals : arrivals_).push_back({dst, kept, queue_->pushed()});
  }
  void copy(dev_ptr<std::byte> dst, dev_ptr<const std::byte> src, std::size_t bytes) override {
    push([=, this] { inner_->copy(dst, src, bytes); });
  }
  void zero(dev_ptr<std::byte> dst, std::size_t bytes) override {
    push([=, this] { inner_->zero(dst, bytes); });
  }
  std::unique_ptr<event> record() override;
  void wait_for(const event& e) override;
  void synchronise() override {
    expect_no_recording("synchronise");
    const std::uint64_t end = queue_->pushed();
    queue_->wait(end);
    poll(end);
  }
  void begin_capture() override {
    expect_no_recording("begin_capture");
    recording_ = std::make_unique<queued_graph>();
  }
  std::unique_ptr<graph> end_capture() override { return std::move(recording_); }
  void launch(const graph& g) override {
    expect_no_recording("launch");
    const auto& recorded = dynamic_cast<const queued_graph&>(g);
    for (const auto& job : recorded.jobs)
      queue_->push(job);
    for (arrival a : recorded.arrivals) {
      a.after = queue_->pushed();
      arrivals_.push_back(a);
    }
  }

  // Hands out what has arrived; throws what went wrong.
  bool poll(std::uint64_t job) {
    if (!queue_->reached(job))
      return false;
    while (!arrivals_.empty() && arrivals_.front().after <= job) {
      const arrival& a = arrivals_.front();
      if (!a.bytes->empty())
        std::memcpy(a.to, a.bytes->data(), a.bytes->size());
      arrivals_.pop_front();
    }
    if (const std::string failure = queue_->take_failure(); !failure.empty())
      throw device_error("queued: " + failure);
    return true;
  }
  job_queue& queue() { return *queue_; }

private:
  void expect_no_recording(const char* what) const {
    if (recording_)
      throw device_error(std::string("queued: ") + what + " inside a capture");
  }

  std::unique_ptr<stream> inner_; // of the queue's thread
  std::shared_ptr<job_queue> queue_;
  std::deque<arrival> arrivals_;
  std::unique_ptr<queued_graph> recording_;
};

class queued_event final : public event {
public:
  explicit queued_event(queued_stream& s)
      : stream_(s), job_(s.queue().push([at = at_] { *at = std::chrono::steady_clock::now(); })) {}
  bool done() const override { return stream_.poll(job_); }
  void wait() override {
    stream_.queue().wait(job_);
    stream_.poll(job_);
  }
  double ms_since(const event& earlier) const override {
    return std::chrono::duration<double, std::milli>(*at_ - *dynamic_cast<const queued_event&>(earlier).at_).count();
  }
  queued_stream& of() const { return stream_; }
  std::uint64_t job() const { return job_; }

private:
  using moment = std::chrono::steady_clock::time_point;
  std::shared_ptr<moment> at_ = std::make_shared<moment>(); // first: the job writes it
  queued_stream& stream_;
  std::uint64_t job_;
};

inline std::unique_ptr<event> queued_stream::record() {
  expect_no_recording("record");
  return std::make_unique<queued_event>(*this);
}
inline void queued_stream::wait_for(const event& e) {
  const auto& other = dynamic_cast<const queued_event&>(e);
  push([&queue = other.of().queue(), job = other.job()] { queue.wait(job); });
}

class queued_ops final : public op_table {
public:
  explicit queued_ops(op_table& inner) : inner_(inner) {}
  void share_drafts(stream& s, const share_drafts_args& a) override { put(s, &op_table::share_drafts, a); }
  void lay_out_rows(stream& s, const lay_out_rows_args& a) override { put(s, &op_table::lay_out_rows, a); }
  void verify_drafts(stream& s, const verify_drafts_args& a) override { put(s, &op_table::verify_drafts, a); }
  void lay_out_drafts(stream& s, const lay_out_drafts_args& a) override { put(s, &op_table::lay_out_drafts, a); }
  void keep_drafts(stream& s, const keep_drafts_args& a) override { put(s, &op_table::keep_drafts, a); }
  void embed(stream& s, const embed_args& a) override { put(s, &op_table::embed, a); }
  void engram_rows(stream& s, const engram_rows_args& a) override { put(s, &op_table::engram_rows, a); }
  void gather(stream& s, const gather_args& a) override { put(s, &op_table::gather, a); }
  void engram_gate(stream& s, const engram_gate_args& a) override { put(s, &op_table::engram_gate, a); }
  void hc_collapse(stream& s, const hc_collapse_args& a) override { put(s, &op_table::hc_collapse, a); }
  void hc_mixes(stream& s, const hc_mixes_args& a) override { put(s, &op_table::hc_mixes, a); }
  void hc_expand(stream& s, const hc_expand_args& a) override { put(s, &op_table::hc_expand, a); }
  void hc_mean(stream& s, const hc_mean_args& a) override { put(s, &op_table::hc_mean, a); }
  void rms_norm(stream& s, const rms_norm_args& a) override { put(s, &op_table::rms_norm, a); }
  void round(stream& s, const round_args& a) override { put(s, &op_table::round, a); }
  void linear(stream& s, const linear_args& a) override { put(s, &op_table::linear, a); }
  void rope(stream& s, const rope_args& a) override { put(s, &op_table::rope, a); }
  void encode(stream& s, const encode_args& a) override { put(s, &op_table::encode, a); }
  void ring_commit(stream& s, const ring_commit_args& a) override { put(s, &op_table::ring_commit, a); }
  void block_store(stream& s, const block_store_args& a) override { put(s, &op_table::block_store, a); }
  void compress(stream& s, const compress_args& a) override { put(s, &op_table::compress, a); }
  void index_scores(stream& s, const index_scores_args& a) override { put(s, &op_table::index_scores, a); }
  void candidates(stream& s, const candidate_args& a) override { put(s, &op_table::candidates, a); }
  void select(stream& s, const select_args& a) override { put(s, &op_table::select, a); }
  void attention(stream& s, const attention_args& a) override { put(s, &op_table::attention, a); }
  void route(stream& s, const route_args& a) override { put(s, &op_table::route, a); }
  void swiglu(stream& s, const swiglu_args& a) override { put(s, &op_table::swiglu, a); }
  void experts(stream& s, const experts_args& a) override { put(s, &op_table::experts, a); }
  void combine(stream& s, const combine_args& a) override { put(s, &op_table::combine, a); }
  void copy_rows(stream& s, const copy_rows_args& a) override { put(s, &op_table::copy_rows, a); }
  void copy_columns(stream& s, const copy_columns_args& a) override { put(s, &op_table::copy_columns, a); }
  void sample_rows(stream& s, const sample_rows_args& a) override { put(s, &op_table::sample_rows, a); }

private:
  template <class Args> void put(stream& s, void (op_table::*op)(stream&, const Args&), const Args& a) {
    auto& q = dynamic_cast<queued_stream&>(s);
    q.push([this, op, a, &inner = q.inner()] { (inner_.*op)(inner, a); });
  }
  op_table& inner_;
};

class queued_device final : public device {
public:
  explicit queued_device(std::unique_ptr<device> inner, std::chrono::microseconds pause = {})
      : inner_(std::move(inner)), pause_(pause), ops_(inner_->ops()) {}

  std::string name() const override { return "queued"; }
  std::string description() const override { return "queued " + inner_->name(); }
  std::string numerics_id() const override { return inner_->numerics_id(); }
  device_memory memory() const override { return inner_->memory(); }
  buffer allocate(std::size_t bytes, const std::string& what) override {
    return buffer(std::make_unique<storage>(inner_->allocate(bytes, what), queues_));
  }
  std::unique_ptr<stream> make_stream() override {
    auto queue = std::make_shared<job_queue>(pause_);
    const std::lock_guard lock(queues_->mutex);
    queues_->all.push_back(queue);
    return std::make_unique<queued_stream>(inner_->make_stream(), std::move(queue));
  }
  std::shared_ptr<const weight> pack(const weight_source& s) override { return inner_->pack(s); }
  std::shared_ptr<const row_table> pack_table(const weight_source& s) override { return inner_->pack_table(s); }
  std::shared_ptr<expert_set> pack_experts(std::span<const expert_source> s) override {
    return inner_->pack_experts(s);
  }
  void replace_expert(expert_set& set, std::int32_t slot, const expert_source& s) override {
    inner_->replace_expert(set, slot, s);
  }
  op_table& ops() override { return ops_; }
  bool records() const override { return true; }

private:
  struct queue_list {
    std::mutex mutex;
    std::vector<std::weak_ptr<job_queue>> all;
  };
  // Memory that is given back when the work called before has been done, as cudaFree does.
  struct storage final : buffer::storage {
    storage(buffer m, std::shared_ptr<queue_list> q) : memory(std::move(m)), queues(std::move(q)) {
      data = memory.as<std::byte>().raw();
      bytes = memory.bytes();
    }
    ~storage() override {
      std::vector<std::shared_ptr<job_queue>> all;
      {
        const std::lock_guard lock(queues->mutex);
        for (const auto& weak : queues->all)
          if (auto queue = weak.lock())
            all.push_back(std::move(queue));
      }
      for (const auto& queue : all)
        queue->wait(queue->pushed());
    }
    buffer memory;
    std::shared_ptr<queue_list> queues;
  };

  std::unique_ptr<device> inner_;
  std::chrono::microseconds pause_;
  queued_ops ops_;
  std::shared_ptr<queue_list> queues_ = std::make_shared<queue_list>();
};

// A device by name; "queued x" is device x behind queues.
inline std::unique_ptr<device> open_device(const std::string& name, const device_options& options = {}) {
  const std::string queued = "queued ";
  if (name.starts_with(queued))
    return std::make_unique<queued_device>(make_device(name.substr(queued.size()), options));
  return make_device(name, options);
}

} // namespace troupe::test
