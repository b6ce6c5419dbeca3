#include "actors/step_carriers.hpp"
#include <algorithm>

namespace troupe {

status steps_by_board::post(std::uint64_t number, byte_span piece, std::chrono::milliseconds limit) {
  std::ranges::fill(commands_, piece);
  return board_.post(number, commands_, limit);
}

status steps_by_board::wait(std::uint64_t number, std::chrono::milliseconds limit) {
  const auto all = board_.wait(number, limit);
  return all ? status(nothing{}) : all.failure();
}

bool steps_by_board::lost() const {
  for (std::size_t e = 0; e < board_.executors(); ++e)
    if (board_.executor(e).gone())
      return true;
  return false;
}

std::shared_ptr<step_link> steps_by_link::link() const {
  const std::lock_guard lock(guard_);
  return link_;
}

status steps_by_link::connect(const endpoint& at, step_link_identity server, std::chrono::milliseconds limit) {
  server.executors = commands_.size();
  auto made = step_link::connect(at.host, at.port, server, limit);
  if (!made)
    return made.failure();
  const std::lock_guard lock(guard_);
  if (shut_)
    return error{"closed", "the group has ended"};
  link_ = std::make_shared<step_link>(std::move(*made));
  return nothing{};
}

void steps_by_link::shut() {
  const std::lock_guard lock(guard_);
  shut_ = true;
  if (link_)
    link_->shut();
}

bool steps_by_link::lost() const {
  const auto l = link();
  return l && l->lost();
}

status steps_by_link::post(std::uint64_t number, byte_span piece, std::chrono::milliseconds limit) {
  const auto l = link();
  if (!l)
    return error{"unreachable", "the link to another host is not there yet"};
  std::ranges::fill(commands_, piece);
  return l->post(number, commands_, limit);
}

status steps_by_link::wait(std::uint64_t number, std::chrono::milliseconds limit) {
  const auto all = link()->wait(number, limit);
  return all ? status(nothing{}) : all.failure();
}

} // namespace troupe
