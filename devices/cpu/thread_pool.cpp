#include "devices/cpu/thread_pool.hpp"
#include "runtime/base/device_error.hpp"

#include <chrono>
#include <string>
#include <system_error>
#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace troupe {
namespace {

void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void pin(std::thread& t, int core) {
#if defined(__linux__)
  if (core < 0 || core >= CPU_SETSIZE)
    return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core), &set);
  pthread_setaffinity_np(t.native_handle(), sizeof set, &set); // best effort: a container may forbid it
#endif
}

// A pause that becomes a yield after a while: on a machine with more threads than cores the awaited one needs a core.
class waiting {
public:
  void once() {
    if (++rounds_ < 2000)
      pause_cpu();
    else
      std::this_thread::yield();
  }

private:
  int rounds_ = 0;
};

constexpr auto spin_time = std::chrono::microseconds(50);

} // namespace

thread_pool::thread_pool(int threads, const std::vector<int>& cores) {
  for (int w = 1; w < threads; ++w) {
    try {
      workers_.emplace_back([this, w] { work(w); });
    } catch (const std::system_error& e) { // the destructor does not run for an object that was never whole
      end();
      throw device_error("cpu: thread " + std::to_string(w + 1) + " of " + std::to_string(threads) +
                         " cannot be started (" + e.what() + "); use fewer threads");
    }
    if (static_cast<std::size_t>(w) < cores.size())
      pin(workers_.back(), cores[static_cast<std::size_t>(w)]);
  }
}

thread_pool::~thread_pool() {
  end();
}

void thread_pool::end() {
  stop_.store(true, std::memory_order_release);
  wake_.fetch_add(1, std::memory_order_seq_cst);
  wake_.notify_all();
  for (std::thread& t : workers_)
    t.join();
}

void thread_pool::run_body(int chunks, call f, void* context) {
  std::unique_lock lock(busy_, std::defer_lock);
  if (workers_.empty() || chunks <= 1 || chunks >= static_cast<int>(chunk_mask) / 2 || !lock.try_lock()) {
    for (int c = 0; c < chunks; ++c)
      f(context, c, 0);
    return;
  }
  body_ = f;
  context_ = context;
  done_.store(0, std::memory_order_relaxed);
  const std::uint64_t loop = (ticket_.load(std::memory_order_relaxed) >> (2 * chunk_bits)) + 1;
  ticket_.store(loop << (2 * chunk_bits) | static_cast<std::uint64_t>(chunks) << chunk_bits, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) {
    wake_.fetch_add(1, std::memory_order_seq_cst);
    wake_.notify_all();
  }
  while (take_chunk(0)) {
  }
  for (waiting w; done_.load(std::memory_order_acquire) != chunks;)
    w.once();
}

bool thread_pool::take_chunk(int worker) {
  std::uint64_t t = ticket_.load(std::memory_order_acquire);
  if ((t & chunk_mask) >= (t >> chunk_bits & chunk_mask))
    return false;
  // whatever loop this counts in now, the chunk got is one of that loop, or past its end
  t = ticket_.fetch_add(1, std::memory_order_acq_rel);
  const auto chunk = static_cast<int>(t & chunk_mask), chunks = static_cast<int>(t >> chunk_bits & chunk_mask);
  if (chunk >= chunks)
    return false;
  body_(context_, chunk, worker);
  done_.fetch_add(1, std::memory_order_acq_rel);
  return true;
}

void thread_pool::work(int worker) {
  while (!stop_.load(std::memory_order_acquire)) {
    auto until = std::chrono::steady_clock::now() + spin_time;
    for (int idle = 0; std::chrono::steady_clock::now() < until; ++idle) {
      bool worked = false;
      while (take_chunk(worker))
        worked = true;
      if (worked)
        until = std::chrono::steady_clock::now() + spin_time;
      for (int i = 0; i < 16 && !worked; ++i) {
        pause_cpu();
        const std::uint64_t t = ticket_.load(std::memory_order_relaxed);
        worked = (t & chunk_mask) < (t >> chunk_bits & chunk_mask);
      }
      if (stop_.load(std::memory_order_acquire))
        return;
    }
    // Asleep only if nothing was published since: the count of sleepers stands before the look at the ticket, the
    // ticket before the caller's look at the sleepers.
    const std::uint32_t seen = wake_.load(std::memory_order_acquire);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const std::uint64_t t = ticket_.load(std::memory_order_seq_cst);
    if ((t & chunk_mask) >= (t >> chunk_bits & chunk_mask) && !stop_.load(std::memory_order_acquire))
      wake_.wait(seen, std::memory_order_acquire);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }
}

} // namespace troupe
