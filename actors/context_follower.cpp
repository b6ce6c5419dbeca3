#include "actors/context_follower.hpp"
#include "actors/context_sender.hpp"
#include <exception>

namespace troupe {

namespace {

using namespace std::chrono_literals;

// How long a command is waited for, before other things are looked at.
constexpr std::chrono::nanoseconds idle = 20ms, busy = 100us;

} // namespace

status context_follower::take(const step_command& c) {
  const bool last = is_last_piece(c.step), whole = last && pieces_.empty();
  if (!whole)
    pieces_.insert(pieces_.end(), c.bytes.begin(), c.bytes.end());
  step_plan& plan = plans_[launched_ % most_steps_out];
  if (last) {
    const auto read = reader_.read(whole ? c.bytes : byte_span(pieces_), plan);
    if (!read)
      return read;
    pieces_.clear();
  }
  if (const auto answered = board_.answer({}); !answered)
    return answered;
  if (last) {
    own_->launch(plan);
    ++launched_;
  }
  return nothing{};
}

std::string context_follower::turn() {
  try {
    const std::uint64_t out = launched_ - collected_;
    if (out > 0 && (out == most_steps_out || own_->finished())) {
      own_->collect(result_);
      ++collected_;
      return {};
    }
    const auto command = board_.next(out == 0 ? idle : busy);
    if (!command)
      return command.failure().code == "timed_out" ? "" : command.failure().message;
    const auto taken = take(*command);
    return taken ? "" : taken.failure().message;
  } catch (const std::exception& e) {
    return *e.what() != '\0' ? e.what() : "unknown device error";
  }
}

} // namespace troupe
