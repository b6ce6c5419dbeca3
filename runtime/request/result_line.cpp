#include "runtime/request/result_line.hpp"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

namespace troupe {

namespace {

void put(std::string& s, float v) {
  if (!std::isfinite(v)) {
    s += "null";
    return;
  }
  char text[48];
  s.append(text, std::to_chars(text, text + sizeof text, v).ptr);
}

void put_ms(std::string& s, double v) {
  if (!std::isfinite(v)) {
    s += "null";
    return;
  }
  char text[400]; // a double of full size in positional notation
  s.append(text, std::to_chars(text, text + sizeof text, v, std::chars_format::fixed, 3).ptr);
}

void put(std::string& s, const std::pair<std::int32_t, float>& v) {
  s += '[' + std::to_string(v.first) + ',';
  put(s, v.second);
  s += ']';
}

void put(std::string& s, std::int32_t v) {
  s += std::to_string(v);
}

template <class T> void put(std::string& s, const std::vector<T>& values) {
  s += '[';
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0)
      s += ',';
    put(s, values[i]);
  }
  s += ']';
}

// Everything after the id.
std::string tail(const generation_result& r) {
  std::string s = "\"index\":" + std::to_string(r.index) + ",\"text\":" + json_quoted(r.text) + ",\"token_ids\":";
  put(s, r.token_ids);
  s += ",\"finish_reason\":" + json_quoted(r.finish_reason) + ",\"stop\":";
  if (r.stop_id)
    s += std::to_string(*r.stop_id);
  else
    s += r.stop_text.empty() ? "null" : json_quoted(r.stop_text);
  s += ",\"prompt_tokens\":" + std::to_string(r.prompt_tokens) +
       ",\"cached_tokens\":" + std::to_string(r.cached_tokens) + ",\"logprobs\":";
  put(s, r.logprobs);
  s += ",\"top_logprobs\":";
  put(s, r.top_logprobs);
  s += ",\"prompt_logprobs\":";
  put(s, r.prompt_logprobs);
  s += ",\"seq_seed\":" + std::to_string(r.seq_seed) + ",\"error\":";
  if (r.failure)
    s += "{\"code\":" + json_quoted(r.failure->code) + ",\"message\":" + json_quoted(r.failure->message) + '}';
  else
    s += "null";
  for (std::size_t i = 0; i < r.warnings.size(); ++i)
    s += (i == 0 ? ",\"warnings\":[" : ",") + json_quoted(r.warnings[i]);
  if (!r.warnings.empty())
    s += ']';
  const generation_usage& u = r.usage;
  s += ",\"usage\":{\"steps\":" + std::to_string(u.steps) + ",\"drafted\":" + std::to_string(u.drafted) +
       ",\"accepted\":" + std::to_string(u.accepted) + ",\"attempts\":" + std::to_string(u.attempts) +
       ",\"preemptions\":" + std::to_string(u.preemptions) + ",\"ttft_ms\":";
  put_ms(s, u.ttft_ms);
  s += ",\"total_ms\":";
  put_ms(s, u.total_ms);
  s += "}}";
  return s;
}

} // namespace

std::string json_quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string result_line(const generation_result& r) {
  return "{\"id\":" + json_quoted(r.id) + ',' + tail(r);
}

std::string result_line_without_id(std::int64_t line, const error& failure) {
  generation_result r;
  r.finish_reason = "error";
  r.failure = failure;
  return "{\"id\":null,\"line\":" + std::to_string(line) + ',' + tail(r);
}

} // namespace troupe
