// Steps computed by the model on a device: the plan's rows through the model, its sampling rules through the device's
// sampler (exactness.md §4-5).
#pragma once
#include "devices/device.hpp"
#include "runtime/model/context_group.hpp"
#include "runtime/model/runner.hpp"
#include "runtime/scheduler/step_engine.hpp"
#include <memory>
#include <span>
#include <vector>

namespace troupe {

// A row of a step whose logits are wanted, and what for.
struct logit_job {
  std::int32_t sequence = 0;      // index in the plan
  std::int32_t row = 0;           // of the step
  std::int32_t position = 0;      // of the row, the lowest possible
  std::int32_t prompt_token = -1; // the token whose log-probability is wanted (prompt_logprobs)
  bool sample = false;            // draws a token
  bool logits = false;            // goes into sequence_result::logits
};

// All rows of a plan whose logits are wanted, by sequence, then position; `all`: every row. order: of the sequences in
// the step, empty = the plan's.
std::vector<logit_job> logit_jobs(const step_plan& plan, std::span<const std::int32_t> order = {}, bool all = false);

// Ids that end a sequence and must not be drawn while fewer than min_tokens are out: EOS and stop ids.
void append_suppressed(const sequence_spec& spec, std::vector<std::int32_t>& out);

class model_engine final : public step_engine {
public:
  // experts: null = computed by this engine; else kept here and used by the runner. context: null = alone; else this is
  // one rank of a group whose engines all run the same steps: long prefills are shared, everything else is computed by
  // each.
  model_engine(std::shared_ptr<const model_weights> weights, std::shared_ptr<device> dev, const runner_options& options,
               std::unique_ptr<expert_backend> experts = nullptr, std::unique_ptr<context_group> context = nullptr);
  ~model_engine() override;

  void launch(const step_plan& plan) override;
  bool finished() override;
  void collect(step_result& out) override;

private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

} // namespace troupe
