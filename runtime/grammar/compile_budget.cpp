#include "runtime/grammar/compile_budget.hpp"

namespace troupe {

namespace {

[[noreturn]] void over(const char* what, std::size_t limit) {
  throw grammar_failure{{"so_too_complex", "the constraint needs more than " + std::to_string(limit) + " " + what +
                                               "; make it smaller, above all its nested repetitions and alternatives"},
                        false};
}

} // namespace

thread_local compile_budget* budget_in_force::current = nullptr;

void charge_work(std::size_t units) {
  if (budget_in_force::current != nullptr)
    budget_in_force::current->work(units);
}

void charge_memory(std::size_t bytes) {
  if (budget_in_force::current != nullptr)
    budget_in_force::current->memory(bytes);
}

std::size_t most_rule_states() {
  return budget_in_force::current != nullptr ? budget_in_force::current->limits().states_per_rule
                                             : compile_limits{}.states_per_rule;
}

void grammar_failure::place(const std::string& where) {
  if (!placed)
    why.message += "; the limit was passed at " + where;
  placed = true;
}

void fail_compile(const char* code, std::string message) {
  throw grammar_failure{{code, std::move(message)}};
}

void compile_budget::states(std::size_t n) {
  work(n);
  if ((states_ += n) > limits_.states_total)
    over("automaton states", limits_.states_total);
}

void compile_budget::pairs(std::size_t n) {
  work(n);
  if ((pairs_ += n) > limits_.automaton_pairs)
    over("pairs of automaton states", limits_.automaton_pairs);
}

void compile_budget::memory(std::size_t bytes) {
  if ((memory_ += bytes) > limits_.memory_bytes)
    over("bytes of memory while it is compiled", limits_.memory_bytes);
}

void compile_budget::check_time() {
  next_check_ = work_ + 4096;
  if (out_of_time_ && out_of_time_())
    fail_compile("so_timeout", "compiling the constraint took longer than its time limit or was cancelled; make the "
                               "constraint smaller or raise so_timeout_s");
}

} // namespace troupe
