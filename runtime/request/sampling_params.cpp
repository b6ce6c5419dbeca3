#include "runtime/request/sampling_params.hpp"
#include "runtime/tokenizer/utf8.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <span>

namespace troupe {

namespace {

template <class T> std::string shown(T v) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, v).ptr};
}

error out_of_range(const std::string& key, const std::string& value, const std::string& legal) {
  return {"invalid_params", key + " = " + value + " is out of range: " + legal};
}

// The first id outside the vocabulary, as an error.
std::optional<error> check_ids(const std::string& key, std::span<const std::int32_t> ids, std::int32_t vocab_size) {
  for (const std::int32_t id : ids)
    if (id < 0 || (vocab_size > 0 && id >= vocab_size))
      return out_of_range(key, shown(id),
                          vocab_size > 0 ? "token ids are 0.." + shown(vocab_size - 1) : "token ids are not negative");
  return std::nullopt;
}

status check_structured_output(const structured_output_args& a, std::int32_t vocab_size) {
  const auto refused = [](std::string text) { return error{"so_invalid_args", std::move(text)}; };
  if (a.schema_type.empty())
    return refused("so_args.schema_type is missing: json, regex or ebnf is needed");
  if (a.schema_type != "json" && a.schema_type != "regex" && a.schema_type != "ebnf")
    return refused("so_args.schema_type = \"" + replace_invalid_utf8(a.schema_type) +
                   "\" is out of range: json, regex or ebnf");
  if (auto e = check_ids("so_args.trigger_token_ids", a.trigger_token_ids, vocab_size))
    return refused(e->message);
  if (a.bound_token_id) {
    if (auto e = check_ids("so_args.bound_token_id", std::span(&*a.bound_token_id, 1), vocab_size))
      return refused(e->message);
    if (a.trigger_token_ids.empty())
      return refused("so_args.bound_token_id = " + shown(*a.bound_token_id) +
                     " needs trigger_token_ids: a trigger that it can force");
  }
  constexpr std::int32_t most = 1 << 20;
  if (a.max_whitespace < 0 || a.max_whitespace > most)
    return refused(out_of_range("so_args.max_whitespace", shown(a.max_whitespace), "0.." + shown(most)).message);
  if (a.indent && (*a.indent < 0 || *a.indent > 64))
    return refused(out_of_range("so_args.indent", shown(*a.indent), "0..64").message);
  return nothing{};
}

} // namespace

status check_sampling_params(const sampling_params& p, std::int32_t vocab_size) {
  if (!(p.temperature >= 0) || !std::isfinite(p.temperature))
    return out_of_range("temperature", shown(p.temperature), "a finite number >= 0 (0 = argmax)");
  if (!(p.top_p > 0 && p.top_p <= 1))
    return out_of_range("top_p", shown(p.top_p), "above 0, at most 1 (1 = off)");
  if (p.top_k != -1 && p.top_k < 1)
    return out_of_range("top_k", shown(p.top_k), "-1 (off) or 1..2147483647");
  if (!(p.min_p >= 0 && p.min_p <= 1))
    return out_of_range("min_p", shown(p.min_p), "0 (off) to 1");
  if (p.max_tokens < 1)
    return out_of_range("max_tokens", shown(p.max_tokens), "1..2147483647");
  if (p.min_tokens < 0 || p.min_tokens > p.max_tokens)
    return out_of_range("min_tokens", shown(p.min_tokens), "0..max_tokens (" + shown(p.max_tokens) + ")");
  if (p.n < 1 || p.n > max_branches)
    return out_of_range("n", shown(p.n), "1.." + shown(max_branches));
  if (p.top_logprobs < 0 || p.top_logprobs > max_top_logprobs)
    return out_of_range("top_logprobs", shown(p.top_logprobs), "0.." + shown(max_top_logprobs));
  if (std::ranges::any_of(p.stop, &std::string::empty))
    return out_of_range("stop", "\"\"", "a stop string has at least one byte");
  for (std::size_t i = 0; i < p.stop.size(); ++i)
    if (!is_valid_utf8(p.stop[i]))
      return out_of_range("stop", '"' + replace_invalid_utf8(p.stop[i]) + '"',
                          "a stop string is valid UTF-8, as the output is; this one could never match");
  if (auto e = check_ids("stop_token_ids", p.stop_token_ids, vocab_size))
    return *e;
  if (auto e = check_ids("golden_token_ids", p.golden_token_ids, vocab_size))
    return *e;
  std::set<std::int32_t> biased;
  for (const auto& [id, bias] : p.logit_bias) {
    if (auto e = check_ids("logit_bias", std::span{&id, 1}, vocab_size))
      return *e;
    if (!std::isfinite(bias))
      return out_of_range("logit_bias[" + shown(id) + "]", shown(bias), "a finite number");
    if (!biased.insert(id).second)
      return error{"invalid_params", "logit_bias names token id " + shown(id) + " twice: give one number per id"};
  }
  return p.so_args ? check_structured_output(*p.so_args, vocab_size) : nothing{};
}

} // namespace troupe
