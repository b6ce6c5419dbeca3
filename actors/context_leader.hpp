// Rank 0 of a context-parallel group: the engine that an executor drives when other executors compute with it. They get
// the same steps; the ranks meet inside a step (runtime/model/context_group.hpp), and only this one's result counts.
#pragma once
#include "actors/context_exchange.hpp"
#include "cluster/messages.hpp"
#include "runtime/scheduler/step_engine.hpp"
#include <memory>
#include <vector>

namespace troupe {

// The other ranks of an engine. Filled before the first step.
struct context_team {
  std::shared_ptr<context_meeting> meeting;
  std::vector<executor_actor> followers; // ranks 1, 2, ...
};

class context_leader final : public step_engine {
public:
  context_leader(std::shared_ptr<step_engine> own, std::shared_ptr<context_team> team)
      : own_(std::move(own)), team_(std::move(team)) {}
  void launch(const step_plan& plan) override;
  bool finished() override { return own_->finished(); }
  void collect(step_result& out) override { own_->collect(out); }

private:
  std::shared_ptr<step_engine> own_;
  std::shared_ptr<context_team> team_;
};

} // namespace troupe
