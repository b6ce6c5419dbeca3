#include "cluster/refused_bytes.hpp"
#include <chrono>
#include <map>
#include <mutex>
#include <utility>

namespace troupe {

namespace {

using clock = std::chrono::steady_clock;

struct told {
  clock::time_point last{};
  std::uint64_t since = 0;
};

std::mutex guard;
std::function<void(const refused_bytes&)> reporter;
std::map<std::string, told> places; // as many as this process has ports

} // namespace

void on_refused_bytes(std::function<void(const refused_bytes&)> report) {
  const std::lock_guard lock(guard);
  reporter = std::move(report);
}

void refuse_bytes(const std::string& at, const std::string& why) {
  const std::lock_guard lock(guard);
  told& t = places[at];
  const auto now = clock::now();
  if (!reporter || now - t.last < std::chrono::seconds(1)) {
    ++t.since;
    return;
  }
  t.last = now;
  reporter({at, why, std::exchange(t.since, 0)});
}

} // namespace troupe
