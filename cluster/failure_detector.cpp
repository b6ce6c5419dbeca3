#include "cluster/failure_detector.hpp"
#include <algorithm>
#include <tuple>

namespace troupe {

void failure_detector::watch(rank_id rank, std::int64_t now) {
  subjects_[rank] = {now, now};
}

void failure_detector::enter(rank_id rank, std::uint32_t group, std::int64_t now) {
  const auto it = subjects_.find(rank);
  if (it == subjects_.end() || it->second.group == group)
    return;
  it->second.group = group;
  it->second.moved = now;
  it->second.accusers.clear();
}

void failure_detector::forget(rank_id rank) {
  subjects_.erase(rank);
  for (auto& [other, s] : subjects_)
    s.accusers.erase(rank);
}

void failure_detector::heartbeat(rank_id rank, std::uint64_t step, bool queued, std::int64_t now) {
  const auto it = subjects_.find(rank);
  if (it == subjects_.end())
    return;
  subject& s = it->second;
  s.heard = now;
  if (step > s.step || !queued || !s.queued)
    s.moved = now;
  s.queued = queued;
  if (step <= s.step)
    return;
  s.step = step;
  for (auto& [other, accused] : subjects_) { // it goes on: what it missed has come
    const auto own = accused.accusers.find(rank);
    if (own == accused.accusers.end() || own->second.step > step)
      continue;
    accused.accusers.erase(own);
    ++dropped_[other];
  }
  std::erase_if(s.accusers, [&](const auto& a) { return a.second.step <= step; });
}

void failure_detector::link(rank_id rank, bool up) {
  if (const auto it = subjects_.find(rank); it != subjects_.end())
    it->second.linked = up;
}

void failure_detector::accuse(rank_id from, rank_id accused, std::uint64_t step, evidence what, std::int64_t now) {
  const auto it = subjects_.find(accused), accuser = subjects_.find(from);
  if (it == subjects_.end() || accuser == subjects_.end() || from == accused || it->second.group == no_group ||
      it->second.group != accuser->second.group || step <= accuser->second.step)
    return; // late: the accuser has committed that step
  it->second.accusers.try_emplace(from, accusation{step, now, what}).first->second.step = step;
}

void failure_detector::halt(std::uint32_t group, bool halted, std::int64_t now) {
  halted_[group] = halted;
  for (auto& [rank, s] : subjects_)
    if (s.group == group) {
      s.moved = now;
      s.accusers.clear();
    }
}

std::uint64_t failure_detector::dropped_accusations(rank_id accused) const {
  const auto it = dropped_.find(accused);
  return it == dropped_.end() ? 0 : it->second;
}

bool failure_detector::accuses_somebody(rank_id rank) const {
  return std::any_of(subjects_.begin(), subjects_.end(),
                     [&](const auto& s) { return s.second.accusers.contains(rank); });
}

// A process whose connection stands answers its kernel, not us: it gets three times as long.
void failure_detector::judge_silence(rank_id rank, subject& s, std::int64_t now, std::vector<verdict>& out) const {
  const std::int64_t silent = now - s.heard;
  const std::string why = "no heartbeat for " + std::to_string(silent) + " ms";
  if (silent >= settings_.dead_ms && !s.linked)
    out.push_back({rank, verdict::kind::dead, why + " and no connection"});
  else if (silent >= 3 * settings_.dead_ms)
    out.push_back({rank, verdict::kind::stuck, why + ", its connection stands"});
  else if (silent >= settings_.suspect_ms && !s.suspect)
    out.push_back({rank, verdict::kind::suspect, why});
  else if (silent < settings_.suspect_ms && s.suspect)
    out.push_back({rank, verdict::kind::alive, "heartbeats again"});
  s.suspect = silent >= settings_.suspect_ms;
}

// In a group that does not move everybody waits for somebody. One rank at a time is blamed: the one that most others
// miss; the group without it shows whether another one is to blame as well.
void failure_detector::judge_groups(std::int64_t now, std::vector<verdict>& out) const {
  std::map<std::uint32_t, std::size_t> size;
  for (const auto& [rank, s] : subjects_)
    ++size[s.group];
  using blame = std::tuple<std::size_t, std::int64_t, rank_id>; // accusers, age, rank: the largest
  std::map<std::uint32_t, blame> worst;
  for (const auto& [rank, s] : subjects_) {
    const auto halted = halted_.find(s.group);
    if ((halted != halted_.end() && halted->second) || s.suspect || now - s.moved < settings_.step_timeout_ms)
      continue;
    std::map<std::uint64_t, std::pair<std::size_t, std::int64_t>> by_step; // accusers, the first one's time
    for (const auto& [from, a] : s.accusers) {
      auto& [count, first] = by_step.try_emplace(a.step, 0, a.at).first->second;
      ++count;
      first = std::min(first, a.at);
    }
    const std::size_t needed = size[s.group] == 2 ? 1 : 2;
    for (const auto& [step, accusers] : by_step)
      if (accusers.first >= needed) {
        const blame b{accusers.first, now - accusers.second, rank};
        const auto it = worst.try_emplace(s.group, b).first;
        it->second = std::max(it->second, b);
      }
  }
  for (const auto& [group, b] : worst)
    out.push_back({std::get<2>(b), verdict::kind::stuck,
                   std::to_string(std::get<0>(b)) + " ranks of its group miss its part of a step"});
  for (const auto& [rank, s] : subjects_) {
    const auto halted = halted_.find(s.group);
    if ((halted != halted_.end() && halted->second) || s.suspect || s.group == no_group || !s.queued ||
        worst.contains(s.group) || now - s.moved < 3 * settings_.step_timeout_ms || accuses_somebody(rank))
      continue;
    out.push_back(
        {rank, verdict::kind::stuck, "has work and no step has moved for " + std::to_string(now - s.moved) + " ms"});
  }
}

void failure_detector::tick(std::int64_t now, std::vector<verdict>& out) {
  for (auto& [rank, s] : subjects_)
    judge_silence(rank, s, now, out);
  judge_groups(now, out);
}

} // namespace troupe
