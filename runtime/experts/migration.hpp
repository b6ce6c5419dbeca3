// Experts move between ranks while steps run (cluster.md §3.6): the coordinator's side, without messages, clocks or
// bytes. Events in, orders to ranks out; the ranks' side is expert_slots.
//
// A move VACATEs its slot (a version of the placement no longer names it), waits until every live rank has quiesced
// that version, has the slot COPYed by its rank, and PUBLISHes it by a later version. One version carries all vacates
// and publishes that are due. The copy that a move makes superfluous DRAINs as the VACATE of another move; what
// versions gave up and nobody refilled is FREEd when the migration settles. Orders are repeated until they are
// answered, ranks ignore what they have done, so messages may be lost, doubled and late.
#pragma once
#include "runtime/experts/expert_ranks.hpp"
#include "runtime/experts/expert_slots.hpp"
#include "runtime/experts/move_planner.hpp"
#include <deque>
#include <optional>
#include <vector>

namespace troupe {

struct migration_settings {
  std::int64_t publish_interval_ms = 50; // between versions, unless a rank died
  std::int64_t copy_timeout_ms = 60000;
  std::int64_t retry_ms = 2000;     // an order without answer is repeated
  std::int32_t copies_per_rank = 2; // at once, read or written
  std::int32_t max_sources = 3;     // then the move is given up
  double slow_step = 1.1;           // fewer copies at once while steps take that much longer than without any
};

// To be sent.
struct migration_orders {
  struct publish {
    std::int32_t rank;
    shared_placement placement;
  };
  struct copy {
    std::int32_t rank;
    copy_order order;
  };
  struct settle {
    std::int32_t rank;
    settle_order order;
  };
  std::vector<publish> publishes;
  std::vector<copy> copies;
  std::vector<settle> settles;
  std::vector<std::int32_t> queries; // ranks asked for their slot_report
  void clear() { publishes.clear(), copies.clear(), settles.clear(), queries.clear(); }
};

struct migration_totals {
  std::uint64_t versions = 0, moved = 0, failed = 0; // failed: no source gave the right bytes
  std::uint64_t recovered = 0;                       // of moved: experts that no slot held
};

class migration {
public:
  // At start: every rank is filled by `current` and runs under it.
  migration(const migration_settings& settings, expert_ranks group, shared_placement current);
  // A new coordinator: nothing happens before every live rank has reported (or died). What was under way is dropped,
  // the newest version that a live rank has is published again under the next number.
  static migration take_over(const migration_settings& settings, expert_ranks group, std::int64_t now,
                             migration_orders& out);

  // Goes for that placement, one of this group's shape. False: a migration runs, or the group is not complete.
  bool start(const expert_placement& wanted, std::int64_t now, migration_orders& out);
  // Ranks came (with empty slots) or come back under new numbers; none leaves here. They run no step before they have a
  // version that this object made.
  void grow(const expert_ranks& group, std::int64_t now, migration_orders& out);
  void died(std::int32_t rank, std::int64_t now, migration_orders& out);

  // Answers of ranks; what does not fit is ignored. A report outside a take-over says which slots are damaged.
  void reported(const slot_report& report, std::int64_t now, migration_orders& out);
  void published(std::int32_t rank, std::uint64_t version, std::uint64_t quiesced, std::int64_t now,
                 migration_orders& out);
  void quiesced(std::int32_t rank, std::uint64_t version, std::int64_t now, migration_orders& out);
  void copied(std::int32_t rank, std::uint64_t mig, std::int64_t now, migration_orders& out);
  void copy_failed(std::int32_t rank, std::uint64_t mig, std::int64_t now, migration_orders& out);
  void settled(std::int32_t rank, std::uint64_t as_of, std::int64_t now, migration_orders& out);
  void step_time(double ms); // of a decode step of the group

  void tick(std::int64_t now, migration_orders& out);

  bool idle() const { return phase_ == phase::idle; } // and every rank has settled the newest version
  bool covers() const;                                // the newest version names every expert on a live rank
  bool in_force() const;                              // every live rank has it
  const shared_placement& newest() const { return newest_; }
  const expert_placement& wanted() const { return wanted_; }
  const expert_ranks& group() const { return group_; }
  const migration_totals& totals() const { return totals_; }

private:
  enum class phase : std::uint8_t { idle, moving, recovering };
  enum class stage : std::uint8_t { vacating, waiting, copying, ready };
  struct task { // a move that has begun
    expert_move move;
    stage at = stage::vacating;
    std::uint64_t version = 0; // vacating: that all must quiesce
    std::uint64_t mig = 0;     // copying, ready
    std::int32_t source = -1;
    std::vector<std::int32_t> tried{}; // sources that failed
    std::int32_t attempts = 0;
    std::int64_t since = 0, sent = 0; // copying began, was ordered last; waiting: not before
  };
  struct rank_state {
    std::uint64_t acked = 0, quiesced = 0, settled = 0; // versions
    std::int64_t published_at = 0;                      // when the newest version was last sent
    std::optional<std::int64_t> settled_at{};           // likewise the order to settle, if it was
    std::optional<slot_report> report{};                // recovering
  };
  struct given_up { // bytes of a slot that the newest version does not name
    std::int32_t expert = -1;
    std::uint64_t version = 0; // the first one without; 0 = the slot is empty or being written
  };

  migration(const migration_settings& settings, expert_ranks group);
  std::size_t cell(std::int32_t layer, std::int32_t slot) const;
  bool live_cell(std::size_t cell) const;
  std::uint64_t floor() const;
  std::vector<std::int32_t> counts(const std::vector<std::int32_t>& table, std::int32_t layer) const;
  task* task_of(std::int32_t layer, std::int32_t slot);
  task* copying(std::int32_t rank, std::uint64_t mig);
  bool on_its_way(std::int32_t layer, std::int32_t expert) const;

  void finish_recovery(std::int64_t now, migration_orders& out);
  void extend_to_group();
  void cover_wanted(const std::vector<std::int32_t>& base);
  void plan();
  void advance(std::int64_t now, migration_orders& out);
  void make_version(std::int64_t now, migration_orders& out);
  void regain(std::vector<std::int32_t>& next);
  bool begin_move(const expert_move& m, std::vector<std::int32_t>& next, std::uint64_t version);
  void start_copies(std::int64_t now, migration_orders& out);
  bool choose_source(task& t, const std::vector<std::int32_t>& serving) const;
  void attempt_failed(std::size_t task, std::int64_t now);
  void repeat_orders(std::int64_t now, migration_orders& out);
  void settle(std::int64_t now, migration_orders& out);
  void send_newest(std::int32_t rank, std::int64_t now, migration_orders& out);

  migration_settings settings_;
  expert_ranks group_;
  phase phase_ = phase::idle;
  shared_placement newest_;
  expert_placement wanted_;
  std::vector<given_up> given_up_;     // [layers, slots]
  std::vector<std::uint64_t> written_; // [layers, slots] last migration that was ordered to write it
  std::vector<rank_state> ranks_;
  std::deque<expert_move> queue_; // begun in this order
  std::vector<task> tasks_;
  std::uint64_t next_mig_ = 1;
  std::int64_t versioned_at_ = 0;
  bool urgent_ = false; // a version is due now, whatever it changes
  double quiet_step_ms_ = 0;
  std::int32_t copies_at_once_ = 0; // in the group, falls when steps become slow
  migration_totals totals_;
};

} // namespace troupe
