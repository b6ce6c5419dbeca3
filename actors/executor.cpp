#include "actors/executor.hpp"
#include <algorithm>
#include <exception>
#include <sched.h>
#include <thread>
#include <utility>

namespace troupe {

namespace {

void pin_this_thread(int core) {
  if (core < 0)
    return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core), &set);
  ::sched_setaffinity(0, sizeof set, &set); // best effort: a container may forbid it
}

using self_ptr = executor_actor::stateful_pointer<executor_state>;
using clock_type = std::chrono::steady_clock;

constexpr auto look_for = std::chrono::microseconds(5); // at the device, between two looks into the mailbox

// Calls the device; whatever goes wrong there voids the step and says why.
template <class F> bool on_device(step_result& out, const F& call) {
  try {
    call();
    return true;
  } catch (const std::exception& e) {
    out.sequences.clear();
    out.expert_counts.clear();
    out.failure = *e.what() != '\0' ? e.what() : "unknown device error";
    return false;
  }
}

void report_load(self_ptr self, const step_result& r) {
  auto& st = state_of(self);
  if (r.expert_counts.empty())
    return;
  st.counts.insert(st.counts.end(), r.expert_counts.begin(), r.expert_counts.end());
  if (++st.counted_steps < load_period_steps)
    return;
  tell(self, st.placement, load{st.rank, st.counted_steps, pack_u32(st.counts)});
  st.counts.clear();
  st.counted_steps = 0;
}

bool oldest_is_over(executor_state& st) {
  return !st.out.empty() && (st.out.front().refused || st.engine->finished());
}

void answer_oldest(self_ptr self) {
  auto& st = state_of(self);
  executor_state::launched done = std::move(st.out.front());
  st.out.pop_front();
  step_result& r = *done.result;
  if (!done.refused)
    on_device(r, [&] { st.engine->collect(r); });
  const auto now = clock_type::now();
  r.ms = std::chrono::duration<double, std::milli>(now - std::max(done.start, st.freed)).count();
  st.freed = now;
  report_load(self, r);
  done.answer.deliver(step_done{done.number});
}

// Answers what is over; if something is still out, the device is looked at again after the messages that wait.
void answer_finished(self_ptr self) {
  auto& st = state_of(self);
  while (oldest_is_over(st))
    answer_oldest(self);
  if (!st.out.empty() && !std::exchange(st.checking, true))
    tell(self, self, device_check{});
}

void look_at_device(self_ptr self) {
  auto& st = state_of(self);
  st.checking = false;
  const auto until = clock_type::now() + look_for;
  while (!oldest_is_over(st) && clock_type::now() < until)
    ;
  if (!oldest_is_over(st))
    std::this_thread::yield(); // who makes the next plan may need this core
  answer_finished(self);
}

caf::typed_response_promise<step_done> launch(self_ptr self, const step& s) {
  auto& st = state_of(self);
  executor_state::launched l{
      s.number, s.plan, s.result, false, clock_type::now(), self->make_response_promise<step_done>()};
  step_result& r = *s.result;
  r.number = s.number;
  r.failure.clear();
  r.draft_ms = 0;
  l.refused = !on_device(r, [&] { st.engine->launch(*s.plan); });
  st.out.push_back(l);
  answer_finished(self);
  return l.answer;
}

} // namespace

executor_actor::behavior_type executor(self_ptr self, std::uint32_t rank, std::shared_ptr<step_engine> engine,
                                       placement_actor placement, int core) {
  pin_this_thread(core);
  auto& st = state_of(self);
  st.rank = rank;
  st.engine = std::move(engine);
  st.placement = std::move(placement);
  return {
      [=](const step& s) { return launch(self, s); },
      [=](const device_check&) { look_at_device(self); },
      [=](const stop&) { self->quit(); },
  };
}

} // namespace troupe
