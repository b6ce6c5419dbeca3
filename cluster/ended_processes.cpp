#include "cluster/ended_processes.hpp"
#include <algorithm>

namespace troupe {

void ended_processes::note(incarnation_t who, bool client, std::int64_t now_ms) {
  if (!all_.insert(who).second)
    return;
  in_order_.push_back(who);
  if (in_order_.size() > most) {
    all_.erase(in_order_.front());
    in_order_.pop_front();
  }
  if (client)
    clients_.push_back({who, now_ms});
}

std::vector<incarnation_t> ended_processes::newest(std::size_t count) const {
  return {in_order_.rbegin(), in_order_.rbegin() + static_cast<std::ptrdiff_t>(std::min(count, in_order_.size()))};
}

std::vector<incarnation_t> ended_processes::take_forgotten(std::int64_t now_ms) {
  std::vector<incarnation_t> forgotten;
  while (!clients_.empty() && (clients_.size() > most_clients || now_ms - clients_.front().ended_ms >= client_ms)) {
    forgotten.push_back(clients_.front().who);
    clients_.pop_front();
  }
  return forgotten;
}

} // namespace troupe
