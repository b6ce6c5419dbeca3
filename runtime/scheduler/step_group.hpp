// How data-parallel engines agree on their steps (engine.md §20.2): each sends its intent for the next step, one
// coordinator answers all of them with one decision, so that every rank runs the same steps of the same kind in the
// same order. Two state machines without clock: step_group is the coordinator, step_member a rank. Time comes as ticks.
#pragma once
#include "runtime/base/ids.hpp"
#include "runtime/scheduler/plan.hpp"
#include "runtime/scheduler/step_type.hpp"
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

// What a rank could do in a step. A rank without work sends one too, and it stands until a newer one comes.
struct rank_intent {
  rank_id rank;
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;     // the first step that is not decided
  std::uint32_t revision = 0; // of the intents for this step the highest counts
  step_intent wishes;
  std::int32_t decode_steps = 0; // decode steps until its last sequence must have ended; 0 = nothing to decode
};

// Steps [first, first + steps) for every member of the epoch. One that has no rows takes part without any: it computes
// what others send it, and nothing stands in for rows (C22).
struct step_decision {
  std::uint32_t epoch = 0;
  std::uint64_t first = 0;
  std::int32_t steps = 1; // more than one: decode
  step_kind kind = step_kind::decode;
};

// Who takes part from step `first` on. Goes to the members and to whoever left.
struct group_view {
  struct culprit {
    rank_id rank;
    bool silent = false; // else it held up a step, and speaks
  };
  std::uint32_t epoch = 0;
  std::uint64_t first = 0;
  std::vector<rank_id> members;  // ascending
  std::vector<rank_id> left;     // members of the epoch before that are none any more
  std::vector<culprit> culprits; // not empty: steps under way are void, nobody can finish them
};

// To be sent in this order.
struct group_orders {
  std::vector<group_view> views;
  std::vector<step_decision> decisions;
  void clear() { views.clear(), decisions.clear(); }
};

struct step_group_settings {
  step_rule rule;
  std::int32_t decode_run = 8; // decode steps decided at once when nobody wants prefill
  // A step may take so long, from its decision to the intent for the next; so does the step under way at a view. In a
  // group that has work a rank must also be heard that often: heartbeats come several times as often.
  std::int32_t deadline_ticks = 10;
};

class step_group {
public:
  // `epoch` and `first` continue what an earlier coordinator did; nobody is a member yet.
  explicit step_group(const step_group_settings& settings, std::uint32_t epoch = 0, std::uint64_t first = 0);

  // Each call may append to `out`. Stale epochs and steps, and ranks that are no members, are ignored.
  void intent(const rank_intent& intent, group_orders& out);
  void heartbeat(rank_id from, std::uint32_t epoch); // a rank lives
  // Takes effect at the next step boundary: when every member has sent its intent.
  void join(rank_id rank, group_orders& out);
  void leave(rank_id rank, group_orders& out);
  // A rank is known to be gone: the others go on without it at once.
  void lost(rank_id rank, group_orders& out);
  void tick(group_orders& out);

  std::uint32_t epoch() const { return epoch_; }
  std::uint64_t next_step() const { return next_; }
  bool idle() const; // nobody has work: no steps, no deadline
  std::vector<rank_id> members() const;

private:
  struct member {
    rank_id rank;
    std::optional<rank_intent> intent; // for next_
    std::int32_t quiet = 0;            // ticks since it was heard, while the group waits for somebody
  };
  member* find(rank_id rank);
  bool complete() const;
  void decide(group_orders& out);
  std::vector<group_view::culprit> culprits() const;
  void await(std::int32_t ticks);
  void form(std::vector<group_view::culprit> culprits, group_orders& out);

  step_group_settings settings_;
  std::uint32_t epoch_;
  std::uint64_t next_;
  std::vector<member> members_; // ascending
  std::vector<rank_id> joining_, leaving_;
  std::int32_t waited_ = 0, allowed_;
  std::vector<step_intent> wishes_; // scratch
};

// The side of a rank: decisions in order, whatever order messages come in.
class step_member {
public:
  struct step {
    std::uint32_t epoch = 0;
    std::uint64_t number = 0;
    step_kind kind = step_kind::decode;
    bool operator==(const step&) const = default;
  };
  enum class change : std::uint8_t { none, formed, aborted, expelled };

  // Views up to `epoch` are those of an earlier coordinator.
  explicit step_member(rank_id rank, std::uint32_t epoch = 0) : rank_(rank), epoch_(epoch) {}

  // formed: steps under way are finished, then the new epoch's begin. aborted: they are void. none: a stale view.
  change view(const group_view& view);
  void decision(const step_decision& decision);
  // The step to run after `finished` ones, if it is decided; at most two are out: one running, one queued.
  std::optional<step> start();
  // The oldest step that was started is done. False if it is void.
  bool finished(std::uint64_t number);
  // The intent to send, if one is due: for the step behind what is decided, once all but one of the decided steps are
  // done; again when `changed`, as long as it is not answered.
  std::optional<rank_intent> intent(const step_intent& wishes, std::int32_t decode_steps, bool changed);

  bool member() const { return member_; }
  std::uint32_t epoch() const { return epoch_; }

private:
  rank_id rank_;
  bool member_ = false, sent_ = false;
  std::uint32_t epoch_, revision_ = 0;
  std::uint64_t decided_ = 0, started_ = 0, done_ = 0; // first step that is not decided, started, finished
  std::vector<step_decision> known_;                   // decided and not all started
};

} // namespace troupe
