// Turns step plans into step results: the model's forward, then the sampler, on one device. What an executor drives.
#pragma once
#include "devices/device.hpp"
#include "runtime/model/runner.hpp"
#include "runtime/scheduler/plan.hpp"
#include <memory>
#include <vector>

namespace troupe {

class model_step_engine {
public:
  // The device must outlive this. options.max_logit_rows bounds the rows that are sampled at a time.
  model_step_engine(std::shared_ptr<const model_weights> weights, device& dev, const runner_options& options,
                    expert_backend* experts = nullptr);

  // Rows with NaN or no usable logit end only their own sequence (sequence_result::failure). Throws device_error.
  step_result run(const step_plan& plan);

private:
  // One row of logits that somebody wants: to draw from, to score a prompt token with, or to hand out.
  struct wanted_row {
    std::int32_t row = 0;      // of the step
    std::int32_t sequence = 0; // of the plan
    std::int32_t forced = -1;  // the token to score; -1: draw
    bool draw = false, score = false, give = false;
  };
  void collect(const step_plan& plan);
  void sample(const step_plan& plan, std::size_t first, std::size_t count, step_result& out);
  void take(const step_plan& plan, std::size_t first, std::size_t count, step_result& out);
  void params_of(const planned_sequence& s, const wanted_row& w, sample_row_params& p);

  device& dev_;
  model_runner runner_;
  int max_logit_rows_, vocab_, max_top_ = 0;
  step_rows rows_;
  // Reused from step to step.
  std::vector<wanted_row> wanted_;
  std::vector<std::int32_t> logit_rows_, suppressed_, token_, status_;
  std::vector<sample_row_params> params_;
  std::vector<std::pair<std::int32_t, float>> bias_, top_;
  std::vector<float> logprob_;
  buffer params_on_device_, bias_on_device_, suppressed_on_device_, token_on_device_, logprob_on_device_, top_on_device_, status_on_device_;
};

} // namespace troupe
