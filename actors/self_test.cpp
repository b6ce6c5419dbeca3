#include "actors/self_test.hpp"
#include "runtime/base/device_error.hpp"
#include "runtime/base/sha256.hpp"
#include <memory>
#include <string_view>

namespace troupe {

namespace {

constexpr std::int32_t prompt_rows = 8;

std::int32_t id_at(std::int32_t position) {
  return 3 + 7 * position; // any that every vocabulary has
}

// Rows [first, first + rows) of the one sequence.
step_plan plan_of(const scheduler_limits& l, const std::shared_ptr<const sequence_spec>& spec, step_kind kind,
                  std::int32_t first, std::int32_t rows) {
  step_plan p;
  p.kind = kind;
  planned_sequence& s = p.sequences.emplace_back();
  s.spec = spec;
  s.slot = slot_id(1);
  s.start = first;
  s.rows = rows;
  s.blocks = 1;
  s.sample = true;
  for (std::int32_t at = first; at < first + rows; ++at)
    p.tokens.push_back(id_at(at));
  p.blocks.push_back(1);
  for (std::int32_t at = first - l.history; at < first; ++at)
    p.history.push_back(at < 0 ? -1 : id_at(at));
  return p;
}

} // namespace

std::string self_test(step_engine& engine, const scheduler_limits& limits) {
  if (limits.max_num_batched_tokens < prompt_rows || limits.max_model_len < prompt_rows + 2)
    return {};
  auto spec = std::make_shared<sequence_spec>();
  spec->id = sequence_id(1);
  spec->params.temperature = 0;
  spec->prompt_tokens = prompt_rows;
  spec->logit_rows = {prompt_rows - 1, prompt_rows};
  sha256 all;
  for (const step_plan& plan : {plan_of(limits, spec, step_kind::prefill, 0, prompt_rows),
                                plan_of(limits, spec, step_kind::decode, prompt_rows, 1)}) {
    step_result result;
    engine.launch(plan);
    engine.collect(result);
    if (!result.failure.empty())
      throw device_error(result.failure);
    for (const sequence_result& s : result.sequences)
      all.update(std::string_view(reinterpret_cast<const char*>(s.logits.data()), s.logits.size() * sizeof(float)));
  }
  return to_hex(all.finish());
}

} // namespace troupe
