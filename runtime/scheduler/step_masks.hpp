// The masks of one step, made for all its sequences at once and with a bound on the work (docs/decisions/5).
#pragma once
#include "runtime/grammar/constraint_matcher.hpp"
#include "runtime/metrics/mask_counters.hpp"
#include "runtime/scheduler/mask_helpers.hpp"
#include "runtime/scheduler/plan.hpp"
#include <atomic>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

// The masks behind a sequence's newest token and behind each of its drafts, kept until a step uses them: those of a
// sequence that waits for its place, and those that were too much work for a step and are made beside the steps.
struct mask_window {
  mask_window(const constraint_matcher& at, std::span<const std::int32_t> newest)
      : matcher(at), drafts(newest.begin(), newest.end()), constrained(newest.size() + 1) {}
  void make(); // in a store of its own: no work of others shows, nor can it be in their way

  constraint_matcher matcher; // as its sequence's; what it has learnt
  std::vector<std::int32_t> drafts;
  std::vector<std::uint32_t> rows; // [drafts + 1, words]
  std::vector<std::uint8_t> constrained;
  std::size_t filled = 0; // rows that are there; 0: not even the first could be made within the constraint's budget
  double seconds = 0;
  bool ready = false;                // set and read by the scheduler alone
  std::atomic<bool> made{false};     // set by whoever makes them
  std::atomic<bool> given_up{false}; // nobody wants them any more
};

class step_masks {
public:
  // helpers: null = the calling thread does everything at once. most_work: of a step (mask_work.hpp).
  step_masks(std::shared_ptr<mask_helpers> helpers, std::size_t most_work)
      : helpers_(std::move(helpers)), most_work_(most_work) {}

  void clear() { wanted_.clear(); }
  // Asks for the masks behind the matcher's place and the drafts; both stay where they are up to make(). Returns the
  // number by which the others here know them.
  std::size_t want(constraint_matcher& matcher, std::span<const std::int32_t> drafts);
  void make();
  // Not made: they are more work than the step has for them.
  bool late(std::size_t number) const { return wanted_[number].late; }
  // As a window to keep.
  std::shared_ptr<mask_window> keep(std::size_t number) const;
  // Puts the masks into the plan, those of constrained rows only; returns how many rows have theirs, at most `rows`.
  std::size_t put(std::size_t number, step_plan& out) const;
  static std::size_t put(const mask_window& w, std::size_t rows, step_plan& out);

  // Has late masks made beside the steps.
  std::shared_ptr<mask_window> make_later(const constraint_matcher& matcher, std::span<const std::int32_t> drafts);
  // Counts masks that were made beside the steps.
  void count(const mask_window& w);

  const mask_counters& counters() const { return counters_; }

private:
  struct wanted {
    constraint_matcher* matcher;
    std::span<const std::int32_t> drafts;
    std::size_t first = 0; // row
    std::size_t filled = 0, work = 0;
    bool late = false;
    double seconds = 0;
  };
  struct group { // of one grammar: one after the other, so that what each has to do depends on the order alone
    const compiled_grammar* grammar;
    std::vector<std::size_t> members;
  };

  void make_group(const group& g);
  void fill(wanted& w, std::size_t limit);
  double now() const { return helpers_ ? helpers_->seconds() : 0; }
  std::uint32_t* row(std::size_t index) { return rows_.data() + index * words_; }

  std::shared_ptr<mask_helpers> helpers_;
  std::size_t most_work_, words_ = 0, count_ = 0; // of rows
  std::vector<wanted> wanted_;
  std::vector<group> groups_;
  std::vector<std::uint32_t> rows_;       // [rows of all, words]
  std::vector<std::uint8_t> constrained_; // [rows of all]
  std::size_t last_work_ = 0;             // of the last make()
  mask_counters counters_;
};

} // namespace troupe
