// A member's side of view changes and fencing (cluster.md §3.4): which view its steps belong to, and what it takes from
// whom. No clock, no messages.
#pragma once
#include "cluster/view.hpp"
#include <cstdint>
#include <deque>
#include <optional>

namespace troupe {

struct view_settings {
  std::int64_t prepare_timeout_ms = 5000, commit_timeout_ms = 2000;
  std::uint64_t lead_steps = 4; // a planned change takes effect so many steps ahead
};

// Phase 1: what shall become of the groups that change. A planned view takes effect at each changed group's first_step;
// a reform now: the running step is void, sequences go back to their last committed position.
struct view_proposal {
  shared_view view;
  bool reform = false;
};

// What the coordinator is told; a new one is told it without asking.
struct view_report {
  rank_id rank;
  incarnation_t incarnation = 0;
  shared_view newest;               // committed; null: none yet
  std::uint64_t prepared = 0;       // mepoch of the proposal that waits for its decision, 0 = none
  bool halted = false;              // that proposal is a reform: the group has to be set going by a view
  std::uint64_t committed_step = 0; // last step of this rank that counts
};

class view_follower {
public:
  view_follower(rank_id rank, std::uint32_t group, incarnation_t incarnation, const view_settings& settings)
      : settings_(settings), rank_(rank), group_(group), incarnation_(incarnation) {}

  // ---- fencing: ok, or the code to refuse with

  ack_code take_command(const stamp& s); // from a coordinator; a higher term counts from now on
  // Frames and messages of another member: its incarnation as this view knows it, its group's epoch.
  ack_code take_data(rank_id from, incarnation_t incarnation, std::uint64_t epoch) const;

  // ---- the two phases. All may come late, twice and in any order; commands are fenced before.

  // next_step: the first step of this rank that has not begun and that no decision names. wrong_state: too late for the
  // proposal's first_step. stale_epoch: decided long ago.
  ack_code prepare(const view_proposal& p, std::uint64_t next_step);
  // A view is decided. It counts from its group's first_step on; at once if this rank's group did not change.
  void commit(const shared_view& view);
  void abort(std::uint64_t mepoch);

  // ---- steps

  enum class permission : std::uint8_t { go, wait };
  // May that step begin? After go the step belongs to group()'s epoch. first_step of a committed view is the next step
  // of a group that stood still.
  permission begin_step(std::uint64_t step, std::int64_t now);
  // It waits for a decision for too long: the coordinator is to be asked about this mepoch.
  std::optional<std::uint64_t> question(std::int64_t now);

  bool halted() const { return prepared_ && prepared_->reform; }
  const shared_view& applied() const { return applied_; }
  // Newest committed view; it may take effect at a later step. Null: none yet.
  const shared_view& newest() const { return decided_.empty() ? applied_ : decided_.back(); }
  const view_group* group() const { return applied_ ? applied_->group(group_) : nullptr; }
  std::uint64_t term() const { return term_; }
  view_report report(std::uint64_t committed_step) const;

private:
  std::uint64_t newest_mepoch() const { return newest() ? newest()->mepoch : 0; }
  void apply(std::size_t views);

  view_settings settings_;
  rank_id rank_;
  std::uint32_t group_;
  incarnation_t incarnation_;
  std::uint64_t term_ = 0, dismissed_ = 0; // dismissed: highest mepoch that was aborted or overtaken
  shared_view applied_;
  std::deque<shared_view> decided_; // committed, in order, that wait for their step
  std::optional<view_proposal> prepared_;
  std::optional<std::int64_t> waiting_since_;
};

} // namespace troupe
