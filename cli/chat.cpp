// troupe chat: one line a turn, from a terminal or a pipe.
#include "cli/engine_settings.hpp"
#include "cli/line_io.hpp"
#include "cli/log.hpp"
#include "cli/requests.hpp"
#include "cli/verbs.hpp"
#include "runtime/recipe/plain_turns.hpp"
#include "runtime/tokenizer/utf8.hpp"
#include <array>
#include <spdlog/spdlog.h>
#include <unistd.h>

namespace troupe {

namespace {

class single_request final : public request_source {
public:
  explicit single_request(engine_request r) : request_(std::move(r)) {}
  state next(engine_request& out) override {
    if (taken_)
      return state::end;
    taken_ = true;
    out = request_;
    return state::ready;
  }

private:
  engine_request request_;
  bool taken_ = false;
};

class chat {
public:
  chat(const chat_options& options, engine_session& session, const turn_tokens& tokens)
      : options_(options), session_(session), tokens_(tokens) {
    reset();
  }

  int run() {
    std::string line;
    while (true) {
      if (interactive_ && !print("> "))
        return exit_request_failed;
      if (!read(line))
        return exit_code_;
      if (line == "/exit")
        return failed_ ? exit_request_failed : exit_ok;
      if (line == "/reset")
        reset();
      else if (line.find_first_not_of(" \t") != std::string::npos && !turn(line))
        return exit_code_;
    }
  }

private:
  void reset() {
    turns_.clear();
    if (!options_.system.empty())
      turns_.push_back({plain_turn::role::system, options_.system});
  }

  // False at the end of input or on Ctrl-C; exit_code_ is then set.
  bool read(std::string& line) {
    while (true) {
      if (session_.signals.count() > 0)
        return leave(exit_interrupted);
      switch (input_.next(line)) {
      case line_reader::state::line:
        if (line.ends_with('\r'))
          line.pop_back();
        return true;
      case line_reader::state::too_long:
        spdlog::error("the line is longer than 64 MiB and was left out");
        continue;
      case line_reader::state::failed:
        spdlog::error("{}", input_.failure());
        return leave(exit_request_failed);
      case line_reader::state::end:
        return leave(failed_ ? exit_request_failed : exit_ok);
      case line_reader::state::waiting:
        session_.signals.wait(std::array{input_.fd()}, -1);
      }
    }
  }

  // One question and its answer; false if the session has to end.
  bool turn(const std::string& text) {
    if (!is_valid_utf8(text))
      spdlog::warn("the line holds bytes that are not UTF-8; each bad sequence counts as U+FFFD");
    turns_.push_back({plain_turn::role::user, text});
    engine_request r{
        .request = {.id = {},
                    .prompt = {},
                    .prompt_ids = render_plain_turns(session_.engine->vocabulary(), tokens_, turns_, options_.think),
                    .raw = true,
                    .logit_rows = {}},
        .params = options_.params};
    single_request source(std::move(r));
    std::optional<generation_result> end;
    const run_outcome outcome = run_requests(session_, source, 1, true, [&](const generation_event& e) {
      if (e.result)
        end = e.result;
      return print(e.text);
    });
    failed_ = failed_ || outcome.metrics_lost;
    if (outcome.interrupted)
      return leave(exit_interrupted);
    if (outcome.stopped || !end)
      return leave(exit_request_failed);
    if (end->failure) {
      failed_ = true;
      turns_.pop_back();
      spdlog::error("{}; the turn was left out, /reset starts anew", end->failure->message);
      return true;
    }
    turns_.push_back(
        {plain_turn::role::assistant,
         answer_without_reasoning(session_.engine->vocabulary(), tokens_, end->token_ids, end->text, options_.think)});
    if (!print("\n"))
      return leave(exit_request_failed);
    return true;
  }

  bool print(const std::string& text) { return succeeded(output_.write_text(text)); }

  bool leave(int code) {
    exit_code_ = code;
    return false;
  }

  const chat_options& options_;
  engine_session& session_;
  turn_tokens tokens_;
  std::vector<plain_turn> turns_;
  line_reader input_{open_input("-")};
  line_writer output_{open_output("-")};
  bool interactive_ = ::isatty(STDIN_FILENO) == 1, failed_ = false;
  int exit_code_ = exit_ok;
};

} // namespace

int run_chat(const chat_options& options) {
  if (const status s = check_sampling_params(options.params); !s)
    throw config_error("command line", "", "", s.failure().message, "see troupe chat --help");
  if (options.params.n != 1)
    throw config_error("command line", "--n", std::to_string(options.params.n), "a conversation has one answer a turn",
                       "leave --n out");
  engine_session session(resolve_engine_options(options.engine, process_environment()), options.engine.metrics_file);
  const result<turn_tokens> tokens = find_turn_tokens(session.engine->vocabulary());
  if (!tokens)
    throw config_error("tokenizer.json", "", "", tokens.failure().message, "use troupe generate with this model");
  return chat(options, session, *tokens).run();
}

} // namespace troupe
