// Continuous batching as a state machine without clock, actors or memory of its own: first come, first served; steps
// are all prefill or all decode; a sequence's whole KV demand is reserved at admission, so nothing is ever preempted.
#pragma once
#include "runtime/kv/kv_book.hpp"
#include "runtime/scheduler/event.hpp"
#include "runtime/scheduler/limits.hpp"
#include "runtime/scheduler/plan.hpp"
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe {

// An order to whoever keeps the KV pool. A demand is answered with grant(); a release may follow its demand before the
// answer has come.
struct kv_order {
  enum class kind : std::uint8_t { reserve, release };
  kind what = kind::reserve;
  sequence_id id;
  std::int32_t blocks = 0; // of a demand
};

// What the state machine wants done; kv orders must be carried out in their order.
struct scheduler_output {
  std::vector<sequence_event> events;
  std::vector<kv_order> kv;
  void clear() { events.clear(), kv.clear(); }
};

class batch_scheduler {
public:
  explicit batch_scheduler(const scheduler_limits& limits);

  // Queues a sequence. Refused, with nothing queued: code duplicate_id, prompt_too_long (longer than the model's length
  // or, unchunked, than a step) or no_space (needs more KV than there is).
  status submit(std::shared_ptr<const sequence_spec> spec, std::vector<std::int32_t> prompt, scheduler_output& out);
  // Ends a live sequence in any state; false if there is none. Its KV goes back at once, or with the step in flight.
  bool abort(sequence_id id, scheduler_output& out);
  // The answer to a demand. Answers for sequences that have ended meanwhile are ignored: their release was ordered.
  void grant(sequence_id id, fit outcome, std::span<const block_id> blocks, slot_id slot, scheduler_output& out);

  // Fills the next step; false if one is in flight or nothing can run. `out` is overwritten, its memory reused.
  bool plan(step_plan& out);
  // Books the result of the step in flight; a result of another number is ignored. Values are moved out of `result`.
  void complete(step_result& result, scheduler_output& out);
  // Ends everything that is alive with this error; the step in flight counts as over.
  void fail_all(const error& why, scheduler_output& out);

  std::size_t waiting() const { return waiting_.size(); }
  std::size_t running() const { return admitted_; } // sequences that hold KV or have asked for it
  std::size_t decoding() const { return decoding_.size(); }
  std::size_t live() const { return live_; }
  bool in_flight() const { return in_flight_; }
  std::uint64_t steps() const { return number_; }
  const scheduler_limits& limits() const { return limits_; }
  // Every sequence is in exactly the queue that its state says; counters agree.
  bool consistent() const;

private:
  enum class state : std::uint8_t { waiting, reserving, prefill, decode, ended };
  struct sequence {
    std::shared_ptr<const sequence_spec> spec;
    std::vector<std::int32_t> tokens; // prompt, then output
    std::vector<block_id> blocks;
    slot_id slot;
    std::int32_t computed = 0; // positions whose KV is in the cache
    std::int64_t steps = 0;
    state in = state::waiting;
    bool in_flight = false;
    std::int64_t outputs() const { return static_cast<std::int64_t>(tokens.size()) - spec->prompt_tokens; }
    std::int32_t remaining() const { return static_cast<std::int32_t>(tokens.size()) - computed; }
  };

  void admit(scheduler_output& out);
  void end(sequence& s, sequence_event event, scheduler_output& out);
  void leave(sequence& s, scheduler_output& out);
  void apply(sequence& s, std::int32_t rows, sequence_result& r, scheduler_output& out);
  bool prefill_is_next() const;
  void plan_prefill(step_plan& out);
  void plan_decode(step_plan& out);
  void add_rows(sequence& s, std::int32_t rows, step_plan& out);
  sequence_event event_of(const sequence& s) const;

  scheduler_limits limits_;
  std::unordered_map<sequence_id, sequence> sequences_; // a node's address lasts as long as the node
  std::deque<sequence*> waiting_;                       // state waiting, in order of arrival
  std::deque<sequence*> prefilling_, decoding_;         // states prefill and decode
  sequence* reserving_ = nullptr;                       // one demand at a time keeps the order of arrival
  std::size_t admitted_ = 0, live_ = 0;
  bool no_space_ = false; // the pool could not serve the head of the queue; ask again after the next release
  bool released_since_demand_ = false; // some sequence left while the demand was under way
  bool ending_all_ = false;
  bool in_flight_ = false;
  std::uint64_t number_ = 0;
  std::vector<std::pair<sequence_id, std::int32_t>> flying_; // sequences and rows of the step in flight
  std::int32_t decode_steps_since_prefill_ = 0;
};

} // namespace troupe
