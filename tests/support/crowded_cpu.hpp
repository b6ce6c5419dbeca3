// Threads of this process that share one CPU and want all of it.
#pragma once
#include <atomic>
#include <sched.h>
#include <stdexcept>
#include <thread>
#include <vector>

namespace troupe {

class crowded_cpu {
public:
  explicit crowded_cpu(int threads) {
    cpu_set_t all;
    if (::sched_getaffinity(0, sizeof all, &all) != 0)
      throw std::runtime_error("crowded_cpu: the system does not say on which CPUs this process may run");
    int first = 0;
    while (!CPU_ISSET(first, &all))
      ++first;
    for (int i = 0; i < threads; ++i)
      threads_.emplace_back([this, first] {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(first, &one);
        ::sched_setaffinity(0, sizeof one, &one);
        while (!over_) {
        }
      });
  }
  ~crowded_cpu() {
    over_ = true;
    for (std::thread& t : threads_)
      t.join();
  }
  crowded_cpu(const crowded_cpu&) = delete;
  crowded_cpu& operator=(const crowded_cpu&) = delete;

private:
  std::atomic<bool> over_ = false;
  std::vector<std::thread> threads_;
};

} // namespace troupe
