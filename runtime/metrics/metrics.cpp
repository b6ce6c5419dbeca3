#include "runtime/metrics/metrics.hpp"

namespace troupe {

void request_metrics::take(const branch_record& r) {
  stop += r.finish_reason == "stop" ? 1 : 0;
  length += r.finish_reason == "length" ? 1 : 0;
  abort += r.finish_reason == "abort" ? 1 : 0;
  error += r.finish_reason == "error" ? 1 : 0;
  if (r.finish_reason == "abort")
    ++abort_causes[r.cause];
  if (r.finish_reason == "error")
    ++error_codes[r.cause];
  request_prompt_tokens.observe(static_cast<double>(r.prompt_tokens));
  request_generation_tokens.observe(static_cast<double>(r.output_tokens));
  params_max_tokens.observe(static_cast<double>(r.max_tokens));
  end_to_end.observe(r.end);
  if (r.output_tokens == 0)
    return;
  time_to_first_token.observe(r.first_token);
  inter_token_latency.add(r.gaps);
  const double decoding = r.last_token - r.first_token;
  decode_time.observe(decoding);
  if (r.output_tokens > 1)
    time_per_output_token.observe(decoding / static_cast<double>(r.output_tokens - 1));
}

void request_metrics::refuse(const std::string& code, std::int32_t branches) {
  error_codes[code] += static_cast<std::uint64_t>(branches);
}

void engine_metrics::take_step(bool prefill, std::int64_t rows, double run_seconds) {
  ++(prefill ? prefill_steps : decode_steps);
  iteration_tokens.observe(static_cast<double>(rows));
  run_time.observe(run_seconds);
}

} // namespace troupe
