#include "runtime/scheduler/group_part.hpp"
#include <algorithm>

namespace troupe {

step_member::change group_part::view(const group_view& view) {
  const step_member::change c = member_.view(view);
  if (c == step_member::change::aborted || c == step_member::change::expelled) {
    out_.clear();
    begun_.reset();
  }
  return c;
}

std::optional<step_kind> group_part::start() {
  const auto step = member_.start();
  if (!step)
    return std::nullopt;
  out_.push_back({.number = step->number});
  return begun_ = step->kind;
}

void group_part::planned(std::uint64_t plan) {
  if (begun_)
    out_.back().plan = plan;
  begun_.reset();
}

void group_part::pass() {
  if (begun_)
    out_.back().over = true;
  begun_.reset();
  retire();
}

void group_part::finished(std::uint64_t plan) {
  const auto at = std::ranges::find(out_, plan, &step_out::plan);
  if (plan == 0 || at == out_.end())
    return;
  at->over = true;
  retire();
}

void group_part::retire() {
  while (!out_.empty() && out_.front().over) {
    member_.finished(out_.front().number);
    out_.pop_front();
  }
}

std::optional<rank_intent> group_part::intent(const step_intent& wishes, std::int32_t decode_steps) {
  const auto i = member_.intent(wishes, decode_steps, told_ != wishes);
  if (i)
    told_ = wishes;
  return i;
}

} // namespace troupe
