// Fork-join over persistent threads. A loop is cut into chunks; whoever is free takes the next one, the calling thread
// included, so a thread that the system has put aside delays nobody. What a chunk computes must not depend on who runs
// it. Idle threads spin for a while, then sleep.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace troupe {

class thread_pool {
public:
  // threads counts the calling thread, so threads - 1 are started; pinned to cores[1], cores[2], ... when cores are
  // given (the calling thread is pinned to cores[0] by whoever owns it). Throws std::system_error.
  explicit thread_pool(int threads, const std::vector<int>& cores = {});
  ~thread_pool();
  thread_pool(const thread_pool&) = delete;
  thread_pool& operator=(const thread_pool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls f(chunk, worker) once for every chunk in [0, chunks), 0 <= worker < threads(), and returns when all are done.
  // f must not throw. A call while another thread is in run() is done by its caller alone, as worker 0.
  template <class F> void run(int chunks, F&& f) {
    using body = std::remove_reference_t<F>;
    run_body(
        chunks, [](void* context, int chunk, int worker) { (*static_cast<body*>(context))(chunk, worker); },
        const_cast<void*>(static_cast<const void*>(std::addressof(f))));
  }

private:
  void end(); // stops and joins the workers
  using call = void (*)(void* context, int chunk, int worker);
  void run_body(int chunks, call f, void* context);
  bool take_chunk(int worker);
  void work(int worker);

  // ticket: number of the loop (24 bits), its chunks (20), the next free one (20). The loop's fields below are written
  // before the ticket is published (release) and read by those who hold a chunk of it (acquire): it cannot end, and the
  // fields cannot change, before that chunk is counted in done_.
  static constexpr int chunk_bits = 20;
  static constexpr std::uint64_t chunk_mask = (std::uint64_t{1} << chunk_bits) - 1;
  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  alignas(64) std::atomic<int> done_{0};
  alignas(64) std::atomic<std::uint32_t> wake_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  call body_ = nullptr;
  void* context_ = nullptr;
  std::mutex busy_; // held by the thread inside run()
  std::vector<std::thread> workers_;
};

} // namespace troupe
