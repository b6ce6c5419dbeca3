// One engine's part in the steps of a group: step_member, and which of the steps that it started are not over. A step
// in which the engine has no rows is over as soon as those before it are (engine.md §20.2).
#pragma once
#include "runtime/scheduler/step_group.hpp"
#include <deque>

namespace troupe {

class group_part {
public:
  // As of step_member.
  explicit group_part(rank_id rank, std::uint32_t epoch = 0) : member_(rank, epoch) {}

  step_member::change view(const group_view& view);
  void decision(const step_decision& decision) { member_.decision(decision); }

  // Begins the next step if it is decided; planned() or pass() must follow.
  std::optional<step_kind> start();
  std::optional<step_kind> begun() const { return begun_; } // started, and neither planned nor passed
  void planned(std::uint64_t plan);                         // it has rows here: those of the plan of this number
  void pass();
  // The plan was run. One that belongs to no step of this group, or to a void one, is ignored.
  void finished(std::uint64_t plan);

  // The intent to send now, if one is due or has changed.
  std::optional<rank_intent> intent(const step_intent& wishes, std::int32_t decode_steps);
  std::uint32_t epoch() const { return member_.epoch(); }

private:
  struct step_out {
    std::uint64_t number = 0;
    std::uint64_t plan = 0; // 0 = none
    bool over = false;
  };
  void retire();

  step_member member_;
  std::deque<step_out> out_; // oldest first
  std::optional<step_kind> begun_;
  std::optional<step_intent> told_; // the last wishes that were sent
};

} // namespace troupe
