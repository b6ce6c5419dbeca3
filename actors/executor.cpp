#include "actors/executor.hpp"
#include <chrono>
#include <exception>
#include <sched.h>

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

double ms_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// Never throws: whatever goes wrong in the device voids the step and says why.
void run_step(step_engine& engine, const step_plan& plan, step_result& out) {
  out.number = plan.number;
  out.failure.clear();
  out.expert_counts.clear();
  try {
    const auto start = std::chrono::steady_clock::now();
    engine.forward(plan);
    const auto computed = std::chrono::steady_clock::now();
    engine.sample(plan, out);
    out.forward_ms = ms_between(start, computed);
    out.sample_ms = ms_between(computed, std::chrono::steady_clock::now());
  } catch (const std::exception& e) {
    out.sequences.clear();
    out.failure = e.what();
    if (out.failure.empty())
      out.failure = "unknown device error";
  }
}

void report_load(executor_actor::stateful_pointer<executor_state> self, const step_result& r) {
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

} // namespace

executor_actor::behavior_type executor(executor_actor::stateful_pointer<executor_state> self, std::uint32_t rank,
                                       std::shared_ptr<step_engine> engine, placement_actor placement, int core) {
  pin_this_thread(core);
  auto& st = state_of(self);
  st.rank = rank;
  st.engine = std::move(engine);
  st.placement = std::move(placement);
  return {
      [=](const step& s) {
        run_step(*state_of(self).engine, *s.plan, *s.result);
        report_load(self, *s.result);
        return step_done{s.number};
      },
      [=](const stop&) { self->quit(); },
  };
}

} // namespace troupe
