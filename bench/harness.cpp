#include "bench/harness.hpp"
#include <algorithm>
#include <fstream>
#include <malloc.h>
#include <sched.h>
#include <sstream>

namespace troupe {

namespace {

// Value of the first line "name : value" of a file of /proc; empty if there is none.
std::string proc_field(const char* file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name)) {
      const std::size_t colon = line.find(':');
      const std::size_t start = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
      return start == std::string::npos ? std::string() : line.substr(start);
    }
  return {};
}

double megabytes(const std::string& kilobytes) {
  double value = 0;
  std::istringstream(kilobytes) >> value;
  return value / 1024;
}

} // namespace

int available_cores() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int threads_of(const engine_options& options) {
  return options.threads > 0 ? options.threads : available_cores();
}

nlohmann::ordered_json machine_facts() {
  return {
      {"cpu", proc_field("/proc/cpuinfo", "model name")}, {"cores", available_cores()}, {"version", TROUPE_VERSION}};
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

process_memory memory_of_process() {
  const struct mallinfo2 heap = ::mallinfo2();
  return {.resident_mb = megabytes(proc_field("/proc/self/status", "VmRSS")),
          .peak_mb = megabytes(proc_field("/proc/self/status", "VmHWM")),
          .anonymous_mb = megabytes(proc_field("/proc/self/status", "RssAnon")),
          .in_use_mb = static_cast<double>(heap.uordblks + heap.hblkhd) / (1 << 20)};
}

} // namespace troupe
