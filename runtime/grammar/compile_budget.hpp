// What one compilation may use, counted while it works (structured_output.md §8.7). Front ends and the compiler charge
// the budget as they go; when it is used up they unwind by a grammar_failure, which never leaves compile_constraint().
#pragma once
#include "runtime/base/result.hpp"
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace troupe {

struct compile_limits {
  std::size_t text_bytes = std::size_t{4} << 20;
  std::size_t schema_nesting = 256, group_nesting = 1000, regex_nesting = 256;
  std::size_t states_per_rule = 20'000, states_total = 500'000; // of automata, whether kept or only built on the way
  std::size_t automaton_pairs = 200'000;                        // visited by intersections, unions and complements
  std::size_t memory_bytes = std::size_t{256} << 20;
  std::size_t frontier_items = 5'000; // configurations that a matcher follows at once
};

// Unwinds a front end or the compiler. Codes: so_syntax, so_unsupported, so_unsatisfiable, so_too_complex, so_timeout.
// The message says what and what to do, and as soon as it is placed where (position, line and column, or JSON pointer).
struct grammar_failure {
  error why;
  bool placed = true;

  void place(const std::string& where);
};

class compile_budget {
public:
  // `out_of_time` is asked about every few thousand units of work; true ends the compilation with so_timeout (a wish to
  // cancel counts as well). The processor-time limit is the caller's, since nothing here reads a clock.
  explicit compile_budget(compile_limits limits = {}, std::function<bool()> out_of_time = {})
      : limits_(limits), out_of_time_(std::move(out_of_time)) {}

  const compile_limits& limits() const { return limits_; }

  // Each throws grammar_failure when its limit is passed.
  void work(std::size_t units = 1) {
    work_ += units;
    if (work_ >= next_check_)
      check_time();
  }
  void states(std::size_t n);
  void pairs(std::size_t n);
  void memory(std::size_t bytes);
  void memory_freed(std::size_t bytes) { memory_ -= bytes < memory_ ? bytes : memory_; }

private:
  void check_time();

  compile_limits limits_;
  std::function<bool()> out_of_time_;
  std::size_t work_ = 0, next_check_ = 4096, states_ = 0, pairs_ = 0, memory_ = 0;
};

// While it lives, what this thread builds is charged to a budget: automata and values are made far below whoever holds
// it, and none may be made uncounted.
class budget_in_force {
public:
  explicit budget_in_force(compile_budget& budget) : before_(std::exchange(current, &budget)) {}
  ~budget_in_force() { current = before_; }
  budget_in_force(const budget_in_force&) = delete;
  budget_in_force& operator=(const budget_in_force&) = delete;

private:
  friend void charge_work(std::size_t units);
  friend void charge_memory(std::size_t bytes);
  friend std::size_t most_rule_states();
  friend class charged_memory;
  static thread_local compile_budget* current;
  compile_budget* before_;
};

// Charge the budget in force; without one, nothing is counted. A unit of work takes a fraction of a microsecond.
void charge_work(std::size_t units);
void charge_memory(std::size_t bytes);
// States that one automaton may have, by the budget in force.
std::size_t most_rule_states();

// Memory that a construction needs while it goes on.
class charged_memory {
public:
  charged_memory() : budget_(budget_in_force::current) {}
  ~charged_memory() {
    if (budget_ != nullptr)
      budget_->memory_freed(bytes_);
  }
  charged_memory(const charged_memory&) = delete;
  charged_memory& operator=(const charged_memory&) = delete;
  void add(std::size_t bytes) {
    if (budget_ == nullptr)
      return;
    bytes_ += bytes;
    budget_->memory(bytes);
  }

private:
  compile_budget* budget_;
  std::size_t bytes_ = 0;
};

[[noreturn]] void fail_compile(const char* code, std::string message);

} // namespace troupe
