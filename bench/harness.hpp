// What all benchmarks share: settings, JSON lines with the facts about the machine, medians, memory of the process.
#pragma once
#include "actors/llm.hpp"
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace troupe {

struct bench_settings {
  engine_options engine;
  bool smoke = false;                                      // sizes that end within seconds
  std::function<void(const nlohmann::ordered_json&)> emit; // takes one case
  double seconds = 0;                                      // to measure for, about; 0 = as many rounds as are usual
};

// Processor, cores that this process may use, version; every case carries them.
nlohmann::ordered_json machine_facts();
int available_cores();
int threads_of(const engine_options& options); // with 0 resolved

double median(std::vector<double> values); // of at least one

struct process_memory {
  double resident_mb = 0, peak_mb = 0; // 2^20 bytes
  double anonymous_mb = 0;             // of resident_mb, without the pages of files: program and libraries
  double in_use_mb = 0;                // of the heap: allocated and not freed, whatever the allocator keeps beside it
};
process_memory memory_of_process();

class stopwatch {
public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

} // namespace troupe
