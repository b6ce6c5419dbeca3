// Which sequences run in which step, as a state machine without clock, actors or memory of its own (engine.md §20).
//
// Masks are made in the turn, by a few threads. Where they are too much work, the sequence is left out of steps until
// somebody else has made them and masks_made() is called; which those are depends on what the calls were, not on time
// (docs/decisions/5).
//
// A step takes one turn:
//   decide_step over the intents of all ranks -> want() -> the KV manager answers -> plan() -> the executor runs it ->
//   complete().
// Up to two steps may be out (limits.async): the next is planned while one runs; the tokens that the running one draws
// are token_in_flight in the plan. submit(), abort(), complete() and fail_all() may come at any time, inside a turn
// too.
//
// KV is taken for the rows of the coming step only. When a sequence needs a block and none is free, the last one in the
// order of service loses its cache; it keeps its place and later computes its prompt again, then its output as forced
// rows, so that its tokens stay what they were (exactness.md §8). By rejection the drafts behind its newest token
// belong to what it draws next: they are made again behind the row that drew that token. Nothing is ever taken from the
// first in the order.
#pragma once
#include "runtime/base/result.hpp"
#include "runtime/kv/kv_turn.hpp"
#include "runtime/scheduler/event.hpp"
#include "runtime/scheduler/limits.hpp"
#include "runtime/scheduler/plan.hpp"
#include "runtime/scheduler/row_shares.hpp"
#include "runtime/scheduler/sequence.hpp"
#include "runtime/scheduler/step_outcome.hpp"
#include "runtime/scheduler/step_type.hpp"
#include "runtime/speculation/planner.hpp"
#include <array>
#include <deque>
#include <limits>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

namespace troupe {

struct scheduling_request {
  std::shared_ptr<const sequence_spec> spec;
  std::shared_ptr<const std::vector<std::int32_t>> prompt;
  std::shared_ptr<const std::string>
      salt; // prefix cache: tenants do not find each other's blocks; null = the common one
  std::shared_ptr<const std::vector<std::int32_t>>
      chunk_checkpoints; // prefix cache: the state is kept at the last whole blocks before these positions; null = none
  std::int32_t priority = 0;       // lower goes first
  std::int64_t deadline_steps = 0; // ends with code "deadline" if it lives for more steps; 0 = none
  sequence_id fork_of;             // branch 0 of the same request: its prompt is computed once for both
  bool host_paced = false;         // a step of it is planned only when the host knows all its tokens, drafts too
  std::shared_ptr<const sequence_constraint> constraint; // on the output; such a sequence is host_paced. Null = none
  std::vector<std::int32_t> emitted; // output already given out, before a worker was lost: computed, not drawn again
  sequence_share share = sequence_share::whole;
};

// Why requests wait, for reports (D23).
enum class held_back : std::uint8_t { none, places, blocks, slots };

class scheduler_core {
public:
  using events = std::vector<sequence_event>;

  // See check(). `cost` of decode steps: without a curve every draft at hand is verified. helpers: null = masks are
  // made by the calling thread alone, in its turn.
  explicit scheduler_core(const scheduler_limits& limits, step_cost cost = {},
                          std::shared_ptr<mask_helpers> helpers = nullptr);

  // Queues a sequence. Refused, with nothing queued: code duplicate_id, invalid_prompt, prompt_too_long (longer than
  // the model's length or, unchunked, than a step), no_space (needs more KV than there is) or so_internal (what was
  // emitted is not within the constraint). With share rest: no_room too, if there is no place for it at the moment; its
  // next event is `reserved` or its end with that code.
  status submit(scheduling_request request, events& out);
  // The image of a sequence with share rest, which was told to be reserved. False: there is no such sequence any more.
  // cached: prompt tokens that the other engine found in its prefix cache.
  bool arrived(sequence_id id, std::shared_ptr<const image_bytes> image, std::int32_t cached);
  // Whether a sequence with share prompt may go on: not while too much of its image waits to be sent.
  void let_go_on(sequence_id id, bool may);
  // The reader has so many of its output tokens. True: a sequence that waited for that may go on.
  bool acknowledge(sequence_id id, std::int64_t outputs);
  // Ends a live sequence in any state; false if there is none.
  bool abort(sequence_id id, events& out);

  // What it would do next. The first masks of constrained sequences are made here: without them none gets a place.
  step_intent intent();
  step_rule rule() const { return rule_of(limits_); }
  // Begins a turn. False, and nothing begun: a turn is under way, enough steps are out, or there is nothing to do. With
  // nullopt only what the KV manager must know (what ended) is put into `out`. `out` is overwritten, its memory reused.
  bool want(std::optional<step_kind> decided, kv_want& out);
  // Ends the turn. False: no step came of it. `out` is overwritten, its memory reused.
  bool plan(const kv_got& got, step_plan& out, events& ev);
  // Books the result of the oldest step that is out; a result of another number is ignored. Values are moved out of
  // `result`.
  void complete(step_result& result, events& out);
  // A step of a group of engines in which this one has no rows: it counts for waits, deadlines and intervals.
  void pass(step_kind kind, events& out);
  // Decode steps until the last sequence that decodes must have ended; 0 = none decodes.
  std::int32_t decode_steps_left() const;
  // The helpers have made masks: their sequences may take part in steps again.
  void masks_made();
  // Ends everything that is alive with this error; steps that are out count as over.
  void fail_all(const error& why, events& out);

  // Chooses how many drafts a decode step verifies; takes the verifier's advice and the times of steps.
  draft_planner& planner() { return planner_; }
  std::uint64_t draft_round() const { return draft_plan_.round; } // of the last decode step that was wanted
  const step_outcome& outcome() const { return outcome_; }        // of the last step that was booked
  const mask_counters& mask_counts() const { return masks_.counters(); }

  std::size_t waiting() const { return waiting_.size() + reserving_.size() + parked_; }
  std::size_t running() const { return active_.size(); } // sequences that hold KV
  std::size_t live() const { return sequences_.size(); }
  std::size_t paused() const; // running ones that wait for their readers (limits.unacked_tokens)
  // Rows of all of them that are still to be computed, if none ends before it has to.
  std::int64_t outstanding_tokens() const;
  std::size_t steps_out() const { return flights_out_; }
  bool in_turn() const { return turn_.open; }
  std::uint64_t steps() const { return static_cast<std::uint64_t>(step_); }    // planned so far
  std::uint64_t preemptions() const { return preemptions_; }                   // caches taken from sequences so far
  std::int32_t free_blocks() const { return free_blocks_ + released_blocks_; } // as far as the last answer tells
  held_back waiting_for() const;                                               // what the queue waits for
  const scheduler_limits& limits() const { return limits_; }
  // Every sequence is in exactly the place that its state says; positions, blocks and counters agree.
  bool consistent() const;

private:
  static constexpr const char* too_complex_to_follow =
      "following its constraint needs more than its budget; simplify the constraint";
  using sequence = scheduled_sequence;
  using phase = scheduled_sequence::phase;
  struct flown { // rows of one sequence in a step that is out
    sequence* s;
    std::uint64_t life;
    std::int32_t start, slack, rows, drafts; // as in the plan; the last two as many as the device may make them
    bool sample;
    std::int32_t fills = 0;      // where it takes the snapshot that publishing waits for
    std::int32_t departure = -1; // of the plan's
    std::int32_t departed = 0;   // blocks that have left with it
    std::int32_t masked = std::numeric_limits<std::int32_t>::max(); // first rows that draw as they should
  };
  struct flight {
    std::uint64_t number = 0;
    std::vector<flown> rows;
    std::int32_t row_count = 0; // of a decode step with drafts switched on, else 0
    std::int64_t kv_tokens = 0;
    bool drafted = false;
    float expected_tokens = 0;
    double expected_ms = 0;
  };
  struct demand { // of one sequence in the turn under way; void if its life has passed
    sequence* s;
    std::uint64_t life;
    sequence_id id;
    std::int32_t rows = 0;
    std::int32_t drafts = 0; // of the rows
    std::int32_t mask = -1;  // number of its masks in masks_; -1 = none
    bool fork = false;
    bool reserve = false; // for an image
  };
  struct lengths { // of what a plan holds of rows
    std::size_t tokens = 0, blocks = 0, history = 0;
  };
  struct turn {
    bool open = false;
    bool asked = false; // the KV manager had something to do
    std::optional<step_kind> kind;
    std::vector<demand> rows, grow, snapshots, admit; // the last three parallel to kv_want's
  };

  // scheduler_core.cpp: what is alive
  sequence& new_record();
  void queue(sequence& s);
  void park(sequence& s, sequence& parent);
  void release_branches(sequence& parent);
  static sequence_event event_of(const sequence& s);
  static void put_usage(const sequence& s, sequence_event& e);
  void end(sequence& s, sequence_event event, events& out);
  void retire(sequence& s);
  void end_with(sequence& s, std::string code, std::string text, events& out);
  void expire(events& out);
  void publish(sequence& s);
  void drop_cache(sequence& s);
  void apply(const flown& f, sequence_result& r, step_result& all, events& out);
  void fail_step(const flight& f, const std::string& why, events& out);
  static void examine(const flown& f, std::int32_t start, sequence_result& r);
  void take_tokens(sequence& s, sequence_event& e, std::int32_t masked);
  static error refusal_of(const sequence& s, std::int32_t token);
  finish_state finish_of(const sequence& s) const;
  void keep_worthy_drafts(sequence& s) const;
  void take_drafts(const flown& f, const sequence_result& r);
  void begin_outcome(const flight& f);
  static bool current(const demand& d) { return d.s->life == d.life; }

  // scheduler_turn.cpp: who runs next
  std::int32_t depth() const { return limits_.async ? 2 : 1; }
  std::int32_t places() const;
  bool ends_with_token_in_flight(const sequence& s) const;
  bool runs_ahead(const sequence& s) const;
  bool can_decode(const sequence& s) const;
  bool can_grow(const sequence& s) const;
  std::int32_t promised_blocks() const;
  bool worth_asking(const sequence& s, std::int32_t promised) const;
  std::int32_t next_snapshot_of(const sequence& s) const;
  bool keeps_outputs() const { return limits_.prefix_cache && limits_.cache_output_blocks; }
  std::int32_t chunk_end(const sequence& s) const;
  // A branch may copy its parent's state while its window still lies in the parent's rings: that many positions behind
  // the prompt.
  std::int32_t fork_slack() const { return limits_.nextn > 0 ? limits_.backtracking - 1 : 4; }
  template <class Visit> void each_admissible(Visit visit) const;
  void want_prefill();
  void want_decode();
  std::int32_t drafts_at_hand(const sequence& s) const;
  std::int32_t settled_drafts(const sequence& s) const;
  std::int32_t forced_rows(const sequence& s) const;
  std::int32_t least_rows(const sequence& s) const { return 1 + settled_drafts(s); } // of a decode step
  std::int32_t plan_drafts(std::int32_t budget);
  std::int32_t affordable_drafts(const sequence& s, std::int32_t drafts, std::int32_t reserved) const;
  bool drafts_behind_prompts();
  bool proposes(const sequence& s, std::int32_t end) const;
  std::int32_t want_forks(std::int32_t budget);
  void want_reservations();
  std::int32_t blocks_kept_free() const;
  void reserve(sequence& s, const kv_got::admitted& a, const kv_got& got, events& ev);
  void take_table(sequence& s, const kv_got::admitted& a, const kv_got& got);
  bool has_victim_behind(const sequence& s) const;
  static void add_images(sequence& s, std::int32_t end, flown& f, step_plan& out);
  void want_admission(sequence& s, std::int32_t rows, std::int32_t promised);
  std::int32_t room_for(const sequence& s, std::int32_t rows, std::int32_t promised) const;
  bool wants_sharing() const;
  bool can_share() const;
  bool shares(const sequence& s) const { return share_now_ && s.slack > 0; }
  void want_rows(sequence& s, std::int32_t rows, std::int32_t drafts, std::int32_t cover = 0);
  std::int32_t secure(sequence& s, std::int32_t rows, std::int32_t least, std::int32_t cover);
  sequence* victim_behind(const sequence& s) const;
  void want_snapshot(sequence& s, std::int32_t at, bool rolling);
  void want_decode_snapshot(sequence& s, std::int32_t rows, std::int32_t drafts);
  std::int32_t take_snapshot(sequence& s, std::int32_t lowest_end, std::int32_t highest_end, step_plan& out);
  void note_prediction(const step_plan& p, flight& f) const;
  void take_growth(const kv_got& got);
  void take_admissions(const kv_got& got, step_plan& out, events& ev);
  void admit(sequence& s, const demand& d, const kv_got::admitted& a, const kv_got& got, step_plan& out);
  void refuse(sequence& s, const kv_got::admitted& a, bool first, bool fork, events& ev);
  // Whether rows that end there draw the token behind them.
  bool draws(const sequence& s, std::int32_t end) const {
    return end == s.length() + s.unresolved && end < limits_.max_model_len;
  }
  bool drafts_again(const sequence& s, std::int32_t end) const {
    return limits_.rejection && draws_newest_again(s, end);
  }
  bool draws_newest_again(const sequence& s, std::int32_t end) const;
  bool needs_first_masks(const sequence& s) const;
  bool may_be_admitted(const sequence& s) const;
  std::int32_t rows_of(const demand& d) const;
  bool needs_masks(const demand& d, std::int32_t rows) const;
  void make_first_masks();
  void make_masks();
  void add_masked_rows(const demand& d, std::int32_t rows, step_plan& out, events& ev);
  std::optional<std::int32_t> put_masks(const demand& d, std::int32_t drafts, step_plan& out);
  void add_rows(sequence& s, std::int32_t rows, std::int32_t drafts, std::int32_t first_mask, step_plan& out);
  static planned_sequence& planned_at(std::size_t index, step_plan& out);
  void add_tokens(const sequence& s, const planned_sequence& p, step_plan& out);

  scheduler_limits limits_;
  std::deque<sequence> store_; // records never move and are used again
  std::vector<sequence*> unused_;
  std::unordered_map<sequence_id, sequence*> sequences_;
  std::set<sequence*, before> waiting_;
  std::vector<sequence*> active_;    // hold KV, in the order of service
  std::vector<sequence*> forks_;     // parked branches whose parent's prompt is through
  std::vector<sequence*> reserving_; // in the order of their arrival
  std::size_t parked_ = 0;           // on parents or in forks_
  std::set<sequence*, expires_before> deadlines_;
  std::uint64_t arrivals_ = 0, lives_ = 0;
  std::size_t constrained_ = 0; // live sequences under a constraint

  turn turn_;
  std::uint64_t turns_ = 0;
  kv_want next_;                  // what the next turn asks, collected as it happens
  std::array<flight, 2> flights_; // ring of the steps that are out
  std::size_t first_flight_ = 0, flights_out_ = 0;
  std::int64_t step_ = 0;
  std::int32_t steps_since_prefill_ = 0;
  // As the last answer said, and what has been released since then.
  std::int32_t free_blocks_ = 0, free_slots_ = 1 << 30, released_blocks_ = 0, released_slots_ = 0;
  std::uint64_t preemptions_ = 0;

  std::vector<sequence*> candidates_; // of the step being wanted, parallel to shares_
  std::vector<row_share> shares_;
  draft_planner planner_;
  draft_plan draft_plan_;  // of candidates_
  lengths planned_;        // so far, of the step being planned
  bool draft_now_ = false; // the step being planned may end with a draft round
  bool share_now_ = false; // and its drafts are shared out again by the device
  std::vector<draft_candidate> draft_candidates_;
  step_outcome outcome_;
  std::vector<std::int32_t> scratch_;
  step_masks masks_;
};

} // namespace troupe
