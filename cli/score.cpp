// troupe score: log-probabilities of prompts, and fp32 logits of chosen rows.
#include "cli/engine_settings.hpp"
#include "cli/log.hpp"
#include "cli/progress.hpp"
#include "cli/request_lines.hpp"
#include "cli/verbs.hpp"
#include "cli/yoco_check.hpp"
#include "runtime/model/config.hpp"
#include "runtime/model/safetensors.hpp"
#include "runtime/request/result_line.hpp"
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

// The shortest text that reads back as the same number.
template <class T> std::string number(T v) {
  if (!std::isfinite(v))
    return "null";
  std::array<char, 48> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), v).ptr};
}

// The fields that --help names. The mean is taken in binary64, from the first token to the last.
std::string score_line(const generation_result& r) {
  std::string line = "{\"id\":" + json_quoted(r.id) + ",\"prompt_tokens\":" + std::to_string(r.prompt_tokens) +
                     ",\"prompt_logprobs\":[";
  double sum = 0;
  for (std::size_t i = 0; i < r.prompt_logprobs.size(); ++i) {
    sum -= static_cast<double>(r.prompt_logprobs[i]);
    line += (i > 0 ? "," : "") + number(r.prompt_logprobs[i]);
  }
  line += "],\"nll\":";
  if (r.prompt_logprobs.empty()) {
    line += "null,\"ppl\":null";
  } else {
    const double nll = sum / static_cast<double>(r.prompt_logprobs.size());
    line += number(nll) + ",\"ppl\":" + number(std::exp(nll));
  }
  line += ",\"error\":";
  if (r.failure)
    line += "{\"code\":" + json_quoted(r.failure->code) + ",\"message\":" + json_quoted(r.failure->message) + "}";
  else
    line += "null";
  return line + "}";
}

std::string bad_score_line(const bad_line& bad) {
  generation_result r;
  r.id = bad.id.value_or("");
  r.failure = bad.why;
  std::string line = score_line(r);
  if (!bad.id)
    line.replace(0, std::string_view("{\"id\":\"\"").size(), "{\"id\":null,\"line\":" + std::to_string(bad.line));
  return line;
}

class score_run final : public request_lines {
public:
  score_run(file_handle input, const LLM& engine, line_writer& out, bool keep_logits, bool keep_requests)
      : request_lines(std::move(input), engine), out_(out), keep_logits_(keep_logits), keep_requests_(keep_requests) {}

  bool receive(const generation_event& event) {
    if (!event.result || event.result->finish_reason == "abort")
      return true;
    ++done_;
    failed_count_ += event.result->failure ? 1 : 0;
    if (event.result->failure)
      requests_.erase(event.result->id);
    if (keep_logits_ && !event.result->failure && !event.result->logits.empty())
      logits_[event.result->id] = event.result->logits;
    return succeeded(out_.write_line(score_line(*event.result)));
  }

  // The requests that were answered, for the prompts in them.
  std::vector<generation_request> take_scored() {
    std::vector<generation_request> all;
    for (auto& [id, request] : requests_)
      all.push_back(std::move(request));
    return all;
  }

  std::int64_t done() const { return done_; }
  std::int64_t failed_count() const { return failed_count_; }

  status write_logits(const std::string& path, std::int64_t vocab_size) const {
    std::vector<host_tensor> tensors;
    for (const auto& [id, rows] : logits_)
      tensors.push_back({.name = id + ".logits",
                         .dtype = tensor_type::f32,
                         .shape = {static_cast<std::int64_t>(rows.size()) / vocab_size, vocab_size},
                         .bytes = std::as_bytes(std::span(rows))});
    return write_safetensors(path, tensors);
  }

protected:
  bool accept(engine_request& r) override {
    // Only the prompt matters: one token has to be drawn, by the cheapest rule.
    r.params = sampling_params{.temperature = 0,
                               .max_tokens = 1,
                               .logprobs = false,
                               .prompt_logprobs = true,
                               .logprobs_mode = r.params.logprobs_mode};
    r.request.seed_from_id = true;
    if (keep_requests_)
      requests_.insert_or_assign(r.request.id, r.request).first->second.logit_rows.clear();
    if (!keep_logits_)
      r.request.logit_rows.clear();
    return true;
  }

  bool report(const bad_line& bad) override {
    ++done_;
    ++failed_count_;
    return succeeded(out_.write_line(bad_score_line(bad)));
  }

private:
  line_writer& out_;
  bool keep_logits_, keep_requests_;
  std::map<std::string, std::vector<float>> logits_;
  std::map<std::string, generation_request> requests_; // by id, without those that failed
  std::int64_t done_ = 0, failed_count_ = 0;
};

// A flag must change something. (The environment and the file of --config speak to all verbs.)
void check_effects(const score_options& options) {
  for (const char* name : {"yoco", "yoco-keep"}) {
    const auto given = options.engine.given.find(name);
    const bool compared = options.yoco_check && given != options.engine.given.end() && given->first == "yoco-keep";
    if (given != options.engine.given.end() && !compared)
      throw config_error("command line", "--" + given->first, given->second,
                         options.yoco_check ? "this has no effect here: --yoco-check runs every mode"
                                            : "this has no effect here: score computes every row of its prompts",
                         options.yoco_check ? "leave it out"
                                            : "leave it out, or give --yoco-check to compare the modes");
  }
}

} // namespace

int run_score(const score_options& options) {
  check_effects(options);
  const engine_options engine_settings = resolve_engine_options(options.engine, process_environment());
  file_handle input = open_input(options.input);
  if (!options.logits_file.empty())
    check_replaceable(options.logits_file, {&input});
  line_writer out(open_output_anew(options.output, input));
  if (!options.logits_file.empty())
    check_replaceable(options.logits_file, {&out.file()});
  std::optional<engine_session> session(std::in_place, engine_settings, options.engine.metrics_file);

  score_run run(std::move(input), *session->engine, out, !options.logits_file.empty(), options.yoco_check);
  progress_line progress("score");
  const run_outcome outcome = run_requests(
      *session, run, 4 * engine_settings.max_num_seqs * engine_settings.engines, false,
      [&run](const generation_event& e) { return run.receive(e); }, [&] { progress.show(run.done(), 0, "results,"); });
  progress.clear();
  if (run.failed() && !run.reader().failure().empty())
    spdlog::error("{}", run.reader().failure());
  const bool finished = succeeded(out.finish());
  if (outcome.interrupted)
    return exit_interrupted;
  if (outcome.stopped || !finished)
    return exit_request_failed;
  if (!options.logits_file.empty() &&
      !succeeded(run.write_logits(options.logits_file, session->engine->config().vocab_size)))
    return exit_request_failed;
  const bool failed = run.failed() || outcome.metrics_lost || run.failed_count() > 0;
  const std::vector<generation_request> scored = run.take_scored();
  session.reset(); // one engine at a time
  const int checked = options.yoco_check ? check_yoco(engine_settings, scored) : exit_ok;
  return checked == exit_ok && failed ? exit_request_failed : checked;
}

} // namespace troupe
