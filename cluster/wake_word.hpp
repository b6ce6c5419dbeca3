// A word in shared memory on which one process sleeps until another has something for it. Inside a process it works
// too.
//
// The one rule for both sides: first the one who has something publishes it with a sequentially consistent store, then
// it calls wake(); the sleeper looks for it with sequentially consistent loads between prepare() and sleep(). All four
// accesses (publish, load of sleepers_; add to sleepers_, look) are then in one order, so either the sleeper sees what
// was published or the other sees the sleeper: no wake-up is lost. A process killed while it slept leaves sleepers_ one
// too high, which costs needless system calls, never a wake-up.
#pragma once
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace troupe {

class wake_word {
public:
  // After something was published.
  void wake() {
    if (sleepers_.load(std::memory_order_seq_cst) == 0)
      return;
    turns_.fetch_add(1, std::memory_order_seq_cst);
    ::syscall(SYS_futex, &turns_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }

  // Returns true as soon as `there()` does, false once `limit` has passed. Looks for `spin` first, without a system
  // call: worth it only while a core is free for whoever is to publish. `there` loads with memory_order_seq_cst.
  template <class There>
  bool wait(There&& there, std::chrono::nanoseconds limit,
            std::chrono::nanoseconds spin = std::chrono::nanoseconds{0}) {
    if (there())
      return true;
    const auto start = std::chrono::steady_clock::now();
    while (spin.count() > 0 && std::chrono::steady_clock::now() - start < std::min(spin, limit)) {
      for (int i = 0; i < 16; ++i) {
        if (there())
          return true;
        relax();
      }
    }
    for (;;) {
      const auto left = limit - (std::chrono::steady_clock::now() - start);
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      const std::uint32_t turn = turns_.load(std::memory_order_seq_cst);
      const bool found = there();
      if (!found && left.count() > 0)
        sleep(turn, left);
      sleepers_.fetch_sub(1, std::memory_order_seq_cst);
      if (found || there())
        return true;
      if (left.count() <= 0)
        return false;
    }
  }

private:
  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  // Returns at once if there was a wake() since `turn` was read; also for signals and for no reason.
  void sleep(std::uint32_t turn, std::chrono::nanoseconds limit) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
    const timespec relative{static_cast<time_t>(seconds.count()), static_cast<long>((limit - seconds).count())};
    // Not FUTEX_PRIVATE_FLAG: the other side is another process.
    ::syscall(SYS_futex, &turns_, FUTEX_WAIT, turn, &relative, nullptr, 0);
  }

  alignas(64) std::atomic<std::uint32_t> turns_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4);

} // namespace troupe
