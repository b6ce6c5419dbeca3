#include "cli/request_lines.hpp"
#include "runtime/base/sha256.hpp"
#include "runtime/recipe/plain_turns.hpp"
#include "runtime/request/json_request.hpp"
#include "runtime/request/result_line.hpp"

namespace troupe {

namespace {

result<std::vector<std::int32_t>> render(const tokenizer& vocabulary, const std::vector<chat_message>& messages) {
  const result<turn_tokens> tokens = find_turn_tokens(vocabulary);
  if (!tokens)
    return tokens.failure();
  std::vector<plain_turn> turns;
  for (const chat_message& m : messages)
    turns.push_back({m.role == "system" ? plain_turn::role::system
                     : m.role == "user" ? plain_turn::role::user
                                        : plain_turn::role::assistant,
                     m.content});
  return render_plain_turns(vocabulary, *tokens, turns, false);
}

} // namespace

std::string id_key(const std::string& id) {
  const std::string digest = id.size() < 64 ? std::string() : to_hex(sha256_of(id));
  return digest.empty() ? id : digest; // 64 characters, so no short id is like it
}

std::string bad_line_text(const bad_line& bad) {
  if (!bad.id)
    return result_line_without_id(bad.line, bad.why);
  generation_result r;
  r.id = *bad.id;
  r.finish_reason = "error";
  r.failure = bad.why;
  return result_line(r);
}

result<engine_request> request_lines::request_of(const std::string& line, bad_line& bad) {
  parsed_line parsed = parse_request_line(line, bad.line, engine_.vocabulary().vocab_size());
  if (!parsed.id)
    return parsed.request.failure();
  if (!seen_.insert(id_key(*parsed.id)).second)
    return error{"invalid_request",
                 "id = " + json_quoted(*parsed.id) + " was used by an earlier line: every request needs its own id"};
  bad.id = parsed.id;
  if (!parsed.request)
    return parsed.request.failure();
  json_request& r = *parsed.request;
  engine_request out{.request = {.id = *parsed.id,
                                 .prompt = std::move(r.prompt),
                                 .prompt_ids = std::move(r.prompt_ids),
                                 .raw = false,
                                 .logit_rows = std::move(r.rows),
                                 .priority = r.priority,
                                 .deadline_steps = r.deadline_steps,
                                 .cache_salt = std::move(r.cache_salt),
                                 .chunk_checkpoints = std::move(r.chunk_checkpoints)},
                     .params = std::move(r.params)};
  if (r.messages) {
    result<std::vector<std::int32_t>> ids = render(engine_.vocabulary(), *r.messages);
    if (!ids)
      return ids.failure();
    out.request.prompt_ids = std::move(*ids);
  }
  return out;
}

request_source::state request_lines::next(engine_request& out) {
  std::string line;
  while (!failed_ && !ended_) {
    bad_line bad;
    result<engine_request> request = error{"line_too_long", "the line is longer than 64 MiB"};
    switch (in_.next(line)) {
    case line_reader::state::waiting:
      return state::waiting;
    case line_reader::state::end:
      return state::end;
    case line_reader::state::failed:
      failed_ = true;
      return state::end;
    case line_reader::state::too_long:
      bad.line = in_.line_number();
      break;
    case line_reader::state::line:
      if (line.find_first_not_of(" \t\r") == std::string::npos)
        continue;
      bad.line = in_.line_number();
      request = request_of(line, bad);
    }
    if (!request) {
      bad.why = request.failure();
      failed_ = !report(bad);
      continue;
    }
    if (accept(*request)) {
      out = std::move(*request);
      return state::ready;
    }
  }
  return state::end;
}

} // namespace troupe
