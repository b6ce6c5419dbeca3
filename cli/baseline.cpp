// troupe baseline: exact perplexity baselines, made and checked.
#include "runtime/request/baseline.hpp"
#include "cli/engine_settings.hpp"
#include "cli/log.hpp"
#include "cli/progress.hpp"
#include "cli/request_lines.hpp"
#include "cli/verbs.hpp"
#include "runtime/base/pending_file.hpp"
#include "runtime/model/checkpoint_digest.hpp"
#include "runtime/request/result_line.hpp"
#include <algorithm>
#include <map>
#include <poll.h>
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

using baseline_modes = std::map<std::string, baseline_mode>; // by id

// Runs the samples of a file and keeps what it finds.
class baseline_run final : public request_lines {
public:
  // stored: how samples are to be made that a baseline holds; other ones by default_mode, or by decode if they bring
  // the tokens to force.
  baseline_run(file_handle input, const LLM& engine, const baseline_fingerprint& fingerprint, baseline_modes stored,
               baseline_mode default_mode)
      : request_lines(std::move(input), engine), engine_(engine), fingerprint_(fingerprint), stored_(std::move(stored)),
        default_mode_(default_mode) {}

  bool receive(const generation_event& event) {
    if (!event.result || event.result->finish_reason == "abort")
      return true;
    const generation_result& r = *event.result;
    ++done_;
    const sample_plan plan = std::move(plans_.extract(r.id).mapped());
    if (r.failure)
      return fail(r.id, r.failure->message);
    const bool decode = plan.mode == baseline_mode::decode;
    std::vector<float> logprobs = decode ? r.logprobs : r.prompt_logprobs;
    const std::size_t wanted = plan.tokens.size() - static_cast<std::size_t>(decode ? plan.n_prompt : 1);
    if (logprobs.size() > wanted) // a token is always drawn, even if none was to be forced
      logprobs.resize(wanted);
    if (logprobs.size() < wanted)
      return fail(r.id, "the engine ended after " + std::to_string(logprobs.size()) + " of " + std::to_string(wanted) +
                            " tokens: prompt and golden_token_ids are longer than max_model_len");
    baseline_fingerprint fingerprint = fingerprint_;
    if (!decode) // log-probabilities of a prompt need all of its rows
      fingerprint.yoco = "off", fingerprint.yoco_keep = 0;
    found_.push_back(
        make_baseline_sample(r.id, plan.mode, plan.n_prompt, plan.tokens, std::move(logprobs), fingerprint));
    return true;
  }

  std::int64_t done() const { return done_; }
  std::int64_t failed_count() const { return failed_count_; }
  // Sorted by id.
  std::vector<baseline_sample> take_found() {
    std::ranges::sort(found_, {}, &baseline_sample::id);
    return std::move(found_);
  }

protected:
  bool accept(engine_request& r) override {
    result<std::vector<std::int32_t>> prompt = engine_.prompt_ids(r.request);
    if (!prompt) {
      fail(r.request.id, prompt.failure().message);
      return false;
    }
    std::vector<std::int32_t> forced = r.params.golden_token_ids;
    const auto stored = stored_.find(r.request.id);
    const baseline_mode mode = !forced.empty()           ? baseline_mode::decode
                               : stored != stored_.end() ? stored->second
                                                         : default_mode_;
    sample_plan plan{mode, static_cast<std::int32_t>(prompt->size()), *prompt};
    if (mode == baseline_mode::decode && forced.empty() && prompt->size() > 1) {
      forced.assign(prompt->begin() + 1, prompt->end());
      plan.n_prompt = 1;
      prompt->resize(1);
    } else {
      plan.tokens.insert(plan.tokens.end(), forced.begin(), forced.end());
    }
    r.params = sampling_params{.temperature = 0,
                               .max_tokens = std::max(1, static_cast<std::int32_t>(forced.size())),
                               .ignore_eos = true,
                               .prompt_logprobs = mode == baseline_mode::prefill,
                               .golden_token_ids = std::move(forced)};
    r.request = {
        .id = r.request.id, .prompt = {}, .prompt_ids = std::move(*prompt), .logit_rows = {}, .seed_from_id = true};
    plans_.emplace(r.request.id, std::move(plan));
    return true;
  }

  bool report(const bad_line& bad) override {
    ++done_;
    return fail(bad.id.value_or("line " + std::to_string(bad.line)), bad.why.message);
  }

private:
  struct sample_plan {
    baseline_mode mode;
    std::int32_t n_prompt;
    std::vector<std::int32_t> tokens; // prompt and targets
  };

  bool fail(const std::string& id, const std::string& why) {
    ++failed_count_;
    spdlog::error("sample {}: {}", json_quoted(id), why);
    return true;
  }

  const LLM& engine_;
  const baseline_fingerprint& fingerprint_;
  baseline_modes stored_;
  baseline_mode default_mode_;
  std::map<std::string, sample_plan> plans_; // of the samples that run
  std::vector<baseline_sample> found_;
  std::int64_t done_ = 0, failed_count_ = 0;
};

// A stored baseline. Throws config_error for a line that is none and for an order that make never writes.
std::vector<baseline_sample> read_baseline(const std::string& path) {
  line_reader in(open_input(path));
  std::vector<baseline_sample> samples;
  std::string line;
  const auto refuse = [&](const std::string& why) {
    throw config_error(in.file().name(), "line " + std::to_string(in.line_number()), "", why,
                       "give a file that troupe baseline make has written");
  };
  while (true) {
    switch (in.next(line)) {
    case line_reader::state::waiting: {
      pollfd p{in.fd(), POLLIN, 0};
      ::poll(&p, 1, -1);
      continue;
    }
    case line_reader::state::end:
      if (samples.empty())
        throw config_error(in.file().name(), "", "", "the file holds no sample",
                           "give a file that troupe baseline make has written");
      return samples;
    case line_reader::state::failed:
      throw config_error(in.file().name(), "", "", in.failure(), "give a readable file");
    case line_reader::state::too_long:
      refuse("the line is longer than 64 MiB");
      break;
    case line_reader::state::line:
      result<baseline_sample> sample = parse_baseline_line(line);
      if (!sample)
        refuse(sample.failure().message);
      if (!samples.empty() && sample->id <= samples.back().id)
        refuse(sample->id == samples.back().id ? "the id " + json_quoted(sample->id) + " occurs twice"
                                               : "lines are not sorted by id");
      samples.push_back(std::move(*sample));
    }
  }
}

int write_baseline(const std::string& path, std::span<const baseline_sample> samples) {
  std::string text;
  for (const baseline_sample& s : samples)
    text += baseline_line(s) + "\n";
  if (path != "-")
    return succeeded(write_whole_file(path, text)) ? exit_ok : exit_request_failed;
  line_writer out(open_output("-"));
  return succeeded(out.write_text(text)) && succeeded(out.finish()) ? exit_ok : exit_request_failed;
}

int report_check(const std::vector<baseline_sample>& stored, const std::vector<baseline_sample>& found) {
  const baseline_report report = compare_baselines(stored, found);
  line_writer out(open_output("-"));
  bool written = true;
  for (const std::string& failure : report.failures)
    written = succeeded(out.write_line(failure)) && written;
  written = succeeded(out.write_line(report.summary)) && written;
  return written && report.failures.empty() ? exit_ok : exit_request_failed;
}

} // namespace

int run_baseline(const baseline_options& options) {
  const bool check = options.action == "check";
  if (check && !options.mode.empty())
    throw config_error("command line", "--mode", options.mode, "a baseline says itself how its samples were made",
                       "leave the option out");
  const engine_options engine_settings = resolve_engine_options(options.engine, process_environment());
  file_handle input = open_input(options.input);
  std::vector<baseline_sample> stored;
  if (check)
    stored = read_baseline(options.baseline);
  else if (options.baseline != "-")
    check_replaceable(options.baseline, {&input});

  engine_session session(engine_settings, options.engine.metrics_file);
  const auto [yoco, yoco_keep] = resolved_yoco(engine_settings, session.engine->config());
  const baseline_fingerprint fingerprint{.checkpoint = checkpoint_digest(engine_settings.model),
                                         .numerics = session.engine->numerics_id(),
                                         .roundings = engine_settings.roundings,
                                         .yoco = yoco,
                                         .yoco_keep = yoco_keep};
  baseline_modes modes;
  for (const baseline_sample& s : stored)
    modes.emplace(s.id, s.mode);
  baseline_run run(std::move(input), *session.engine, fingerprint, std::move(modes),
                   options.mode == "decode" ? baseline_mode::decode : baseline_mode::prefill);
  progress_line progress("baseline");
  const run_outcome outcome = run_requests(
      session, run, 4 * engine_settings.max_num_seqs * engine_settings.engines, false,
      [&run](const generation_event& e) { return run.receive(e); }, [&] { progress.show(run.done(), 0, "samples,"); });
  progress.clear();
  if (run.failed() && !run.reader().failure().empty())
    spdlog::error("{}", run.reader().failure());
  if (outcome.interrupted)
    return exit_interrupted;
  const bool failed = run.failed() || outcome.stopped || outcome.metrics_lost || run.failed_count() > 0;
  if (check) {
    const int code = report_check(stored, run.take_found());
    return failed ? exit_request_failed : code;
  }
  if (failed) {
    spdlog::error("{}: not written, because samples failed", options.baseline);
    return exit_request_failed;
  }
  return write_baseline(options.baseline, run.take_found());
}

} // namespace troupe
