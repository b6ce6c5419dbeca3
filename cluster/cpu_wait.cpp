#include "cluster/cpu_wait.hpp"
#include <algorithm>
#include <filesystem>
#include <fstream>

namespace troupe {

std::uint64_t cpu_wait::total_ms() {
  std::map<std::string, std::uint64_t> now;
  std::uint64_t longest = 0;
  std::error_code why;
  for (std::filesystem::directory_iterator at("/proc/self/task", why), end; !why && at != end; at.increment(why)) {
    std::ifstream in(at->path() / "schedstat");
    std::uint64_t ran = 0, waited = 0;
    if (!(in >> ran >> waited)) // the thread has ended meanwhile
      continue;
    const auto [thread, is_new] = now.emplace(at->path().filename(), waited);
    const auto before = known_.find(thread->first);
    longest = std::max(longest, waited - (before == known_.end() ? 0 : std::min(before->second, waited)));
  }
  known_ = std::move(now);
  total_ += longest;
  return total_ / 1000000;
}

} // namespace troupe
