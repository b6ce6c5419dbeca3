// troupe generate: completes prompts and prints text or result lines.
#include "cli/cluster_session.hpp"
#include "cli/engine_settings.hpp"
#include "cli/line_io.hpp"
#include "cli/log.hpp"
#include "cli/requests.hpp"
#include "cli/verbs.hpp"
#include "runtime/request/result_line.hpp"
#include <algorithm>
#include <map>
#include <spdlog/spdlog.h>
#include <unistd.h>

namespace troupe {

namespace {

// What the embedded model can answer; shows without any argument that everything works.
constexpr const char* demonstration =
    "<｜begin▁of▁sentence｜><｜User｜>What is the meaning of \"lighthouse\"?<｜Assistant｜></think>";

std::string file_text(const std::string& path) {
  const file_handle file = open_input(path);
  std::string text(1, '\0');
  std::size_t size = 0;
  while (true) {
    text.resize(std::max<std::size_t>(2 * size, 1 << 16));
    const ssize_t n = ::read(file.fd(), text.data() + size, text.size() - size);
    if (n < 0)
      throw config_error(file.name(), "", "", "reading failed", "give a readable file to --prompt-file");
    if (n == 0)
      break;
    size += static_cast<std::size_t>(n);
    if (size > max_line_bytes)
      throw config_error(file.name(), "", "", "the prompt is longer than 64 MiB", "give a shorter prompt");
  }
  text.resize(size);
  return text;
}

std::vector<generation_request> requests_of(const generate_options& options) {
  std::vector<generation_request> requests;
  const auto add_text = [&](const std::string& text) {
    requests.push_back({.id = {}, .prompt = text, .prompt_ids = {}, .raw = options.raw, .logit_rows = {}});
  };
  for (const std::string& text : options.prompts)
    add_text(text);
  for (const std::string& path : options.prompt_files)
    add_text(file_text(path));
  for (const std::string& list : options.id_lists)
    requests.push_back(
        {.id = {}, .prompt = {}, .prompt_ids = parse_id_list("--ids", list), .raw = true, .logit_rows = {}});
  if (requests.empty())
    requests.push_back({.id = {}, .prompt = demonstration, .prompt_ids = {}, .raw = true, .logit_rows = {}});
  for (std::size_t i = 0; i < requests.size(); ++i)
    requests[i].id = std::to_string(i);
  return requests;
}

class list_source final : public request_source {
public:
  list_source(const std::vector<generation_request>& requests, const sampling_params& params)
      : requests_(requests), params_(params) {}
  state next(engine_request& out) override {
    if (next_ == requests_.size())
      return state::end;
    out = {requests_[next_++], params_};
    return state::ready;
  }

private:
  const std::vector<generation_request>& requests_;
  const sampling_params& params_;
  std::size_t next_ = 0;
};

// Prints results in the order of prompts and outputs, whatever the order in which they end.
class printer {
public:
  printer(bool json, bool streaming, std::size_t prompts, int outputs)
      : json_(json), streaming_(streaming), many_(prompts * outputs > 1), outputs_(outputs) {}

  // False if standard output cannot be written.
  bool take(const generation_event& event) {
    if (streaming_ && !event.text.empty() && !print(event.text))
      return false;
    if (!event.result)
      return true;
    ended_.emplace(std::pair{std::stoull(event.id), event.index}, *event.result);
    while (!ended_.empty() && ended_.begin()->first == next_) {
      const generation_result result = std::move(ended_.begin()->second);
      ended_.erase(ended_.begin());
      next_ = next_.second + 1 == outputs_ ? std::pair{next_.first + 1, 0} : std::pair{next_.first, next_.second + 1};
      if (!show(result))
        return false;
    }
    return true;
  }

  // What the end of the program finds unprinted: outputs behind one that was never computed.
  bool finish() {
    for (const auto& [key, result] : ended_)
      if (!show(result))
        return false;
    return true;
  }
  bool any_failed() const { return failed_; }
  bool print(std::string_view text) { return succeeded(out_.write_text(text)); }

private:
  bool show(const generation_result& r) {
    failed_ = failed_ || r.failure.has_value();
    if (json_)
      return print(result_line(r) + "\n");
    if (r.failure) {
      spdlog::error("prompt {}: {}", r.id, r.failure->message);
      return true;
    }
    spdlog::debug("prompt {}: {} prompt tokens, {} output tokens, first after {:.1f} ms, all after {:.1f} ms", r.id,
                  r.prompt_tokens, r.token_ids.size(), r.usage.ttft_ms, r.usage.total_ms);
    const std::string head =
        many_ ? "--- prompt " + r.id + (outputs_ > 1 ? ", output " + std::to_string(r.index) : "") + "\n" : "";
    return print(head + (streaming_ ? "" : r.text) + "\n");
  }

  line_writer out_{open_output("-")};
  bool json_, streaming_, many_, failed_ = false;
  int outputs_;
  std::pair<unsigned long long, int> next_{0, 0};
  std::map<std::pair<unsigned long long, int>, generation_result> ended_;
};

} // namespace

int run_generate(const generate_options& options) {
  sampling_params params = options.params;
  if (const status s = check_sampling_params(params); !s)
    throw config_error("command line", "", "", s.failure().message, "see troupe generate --help");
  const std::vector<generation_request> requests = requests_of(options);
  const bool show_demonstration = options.prompts.empty() && options.prompt_files.empty() && options.id_lists.empty();
  if (show_demonstration && !options.temperature_given)
    params.temperature = 0;

  const std::unique_ptr<engine_session> made = make_session(options.engine);
  engine_session& session = *made;
  const bool streaming = !options.json && requests.size() == 1 && params.n == 1 && ::isatty(STDOUT_FILENO) == 1;
  printer out(options.json, streaming, requests.size(), params.n);
  if (show_demonstration && !options.json && !out.print(demonstration))
    return exit_request_failed;
  list_source source(requests, params);
  const run_outcome outcome = run_requests(session, source, std::min(256, session.most_requests), streaming,
                                           [&out](const generation_event& e) { return out.take(e); });
  if (outcome.interrupted)
    return out.finish() ? exit_interrupted : exit_request_failed;
  return outcome.stopped || outcome.metrics_lost || out.any_failed() ? exit_request_failed : exit_ok;
}

} // namespace troupe
