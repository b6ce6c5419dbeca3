#include "runtime/request/json_request.hpp"
#include "runtime/request/chunk_checkpoints.hpp"

#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace troupe {

namespace {

using nlohmann::json;

// Thrown inside this file only: the readers below stop at the first fault.
struct fault {
  error what;
};

std::string shown(const json& v) {
  std::string text = v.dump(-1, ' ', false, json::error_handler_t::replace);
  constexpr std::size_t longest = 60;
  if (text.size() > longest) {
    std::size_t cut = longest;
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) // not inside a UTF-8 sequence
      --cut;
    text = text.substr(0, cut) + "...";
  }
  return text;
}

[[noreturn]] void fail(const char* code, std::string message) {
  throw fault{{code, std::move(message)}};
}
[[noreturn]] void wrong_type(const std::string& key, const json& v, const std::string& wanted) {
  fail("invalid_params", key + " = " + shown(v) + " has the wrong type: " + wanted + " is expected");
}
[[noreturn]] void out_of_range(const std::string& key, const json& v, const std::string& legal) {
  fail("invalid_params", key + " = " + shown(v) + " is out of range: " + legal);
}

constexpr int deepest = 64; // printing and destroying a document recurse

// First pass over a line: nesting and duplicate keys, of which a document would silently keep one.
struct shape_check : nlohmann::json_sax<json> {
  std::vector<std::set<std::string>> keys; // of the open objects
  std::string twice;
  int depth = 0;
  bool too_deep = false;

  bool open() {
    too_deep = ++depth > deepest;
    return !too_deep;
  }
  bool close() {
    --depth;
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    keys.emplace_back();
    return open();
  }
  bool key(string_t& k) override {
    if (!keys.back().insert(k).second)
      twice = k;
    return twice.empty();
  }
  bool end_object() override {
    keys.pop_back();
    return close();
  }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }
};

json parse_json(std::string_view text) {
  shape_check shape;
  json::sax_parse(text, &shape);
  if (shape.too_deep)
    fail("invalid_json", "not a JSON object of this format: nested deeper than " + std::to_string(deepest));
  if (!shape.twice.empty())
    fail("invalid_json", "key " + json(shape.twice).dump() + " occurs twice in one object");
  json doc;
  try {
    doc = json::parse(text);
  } catch (const json::exception& e) {
    std::string why = e.what(); // "[json.exception.parse_error.101] parse error at line ...": keep what follows the tag
    if (const std::size_t end = why.find("] "); end != std::string::npos)
      why.erase(0, end + 2);
    fail("invalid_json", "not a JSON object: " + why);
  }
  if (!doc.is_object())
    fail("invalid_json", "not a JSON object: the line holds " + shown(doc));
  return doc;
}

void only_keys(const json& object, const std::string& where, std::initializer_list<const char*> legal) {
  for (const auto& [key, value] : object.items())
    if (std::none_of(legal.begin(), legal.end(), [&k = key](const char* l) { return k == l; })) {
      std::string list;
      for (const char* l : legal)
        list += (list.empty() ? "" : ", ") + std::string{l};
      fail("invalid_request", "unknown key " + json(key).dump() + where + "; known keys: " + list);
    }
}

float to_float(const std::string& key, const json& v) {
  if (!v.is_number())
    wrong_type(key, v, "a number");
  const double d = v.get<double>();
  if (!(std::fabs(d) <= static_cast<double>(std::numeric_limits<float>::max())))
    out_of_range(key, v, "the number must fit into binary32");
  return static_cast<float>(d); // the one rounding
}

std::int32_t to_int(const std::string& key, const json& v) {
  if (!v.is_number_integer())
    wrong_type(key, v, "an integer");
  constexpr std::int64_t low = std::numeric_limits<std::int32_t>::min(),
                         high = std::numeric_limits<std::int32_t>::max();
  if ((v.is_number_unsigned() && v.get<std::uint64_t>() > static_cast<std::uint64_t>(high)) ||
      v.get<std::int64_t>() < low)
    out_of_range(key, v, "an integer of 32 bits");
  return v.get<std::int32_t>();
}

bool to_bool(const std::string& key, const json& v) {
  if (!v.is_boolean())
    wrong_type(key, v, "true or false");
  return v.get<bool>();
}

std::string to_text(const std::string& key, const json& v) {
  if (!v.is_string())
    wrong_type(key, v, "a string");
  return v.get<std::string>();
}

std::vector<std::int32_t> to_ints(const std::string& key, const json& v) {
  if (!v.is_array())
    wrong_type(key, v, "a list of integers");
  std::vector<std::int32_t> out;
  out.reserve(v.size());
  for (std::size_t i = 0; i < v.size(); ++i)
    out.push_back(to_int(key + '[' + std::to_string(i) + ']', v[i]));
  return out;
}

std::vector<std::string> to_texts(const std::string& key, const json& v) {
  if (v.is_string())
    return {v.get<std::string>()};
  if (!v.is_array())
    wrong_type(key, v, "a string or a list of strings");
  std::vector<std::string> out;
  for (std::size_t i = 0; i < v.size(); ++i)
    out.push_back(to_text(key + '[' + std::to_string(i) + ']', v[i]));
  return out;
}

std::uint64_t to_seed(const json& v) {
  if (!v.is_number())
    wrong_type("seq_seed", v, "an integer");
  if (v.is_number_integer() && v == 0) // "-0" is read as a signed number
    return 0;
  if (!v.is_number_unsigned()) // negative, a fraction, or beyond 64 bits
    out_of_range("seq_seed", v, "an integer from 0 to 18446744073709551615");
  return v.get<std::uint64_t>();
}

// {"id": bias}
std::vector<std::pair<std::int32_t, float>> to_bias(const json& v) {
  if (!v.is_object())
    wrong_type("logit_bias", v, "an object of token id: number");
  std::vector<std::pair<std::int32_t, float>> out;
  for (const auto& [key, value] : v.items()) {
    std::int32_t id = 0;
    const auto [end, status] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (status != std::errc{} || end != key.data() + key.size())
      fail("invalid_params", "logit_bias: key " + json(key).dump() + " is no token id");
    out.emplace_back(id, to_float("logit_bias[" + key + ']', value));
  }
  std::sort(out.begin(), out.end()); // the order of an object's keys means nothing
  return out;
}

// Keys that mean something elsewhere get a word of their own.
void check_structured_keys(const json& v) {
  if (v.contains("serialized"))
    fail("so_invalid_args", "so_args.serialized: precompiled constraints are not taken; give schema_type and schema");
  if (v.contains("bound_token_ids"))
    fail("so_invalid_args", "so_args.bound_token_ids is an old name: give bound_token_id, one id");
  only_keys(v, " in so_args",
            {"schema_type", "schema", "trigger_token_ids", "bound_token_id", "strict", "any_whitespace",
             "max_whitespace", "indent", "any_order", "infer_type", "lenient", "dot_excludes_newline"});
}

// A key that has no effect on this kind of constraint is a mistake, whatever its value. Unknown kinds are refused
// later.
void check_keys_of_kind(const json& v, const std::string& kind) {
  if (kind != "json" && kind != "regex" && kind != "ebnf")
    return;
  const auto only_for = [&](const std::string& owner, std::initializer_list<const char*> keys) {
    for (const std::string key : keys)
      if (kind != owner && v.contains(key) && !v[key].is_null())
        fail("so_invalid_args", "so_args." + key + " = " + v[key].dump() + " has no effect with schema_type " + kind +
                                    ", it belongs to " + owner + "; leave it out");
  };
  only_for("json", {"strict", "any_whitespace", "max_whitespace", "indent", "any_order", "infer_type", "lenient"});
  only_for("regex", {"dot_excludes_newline"});
}

// A schema is text, not an object: the order of its keys and the digits of its numbers mean something.
structured_output_args to_structured(const json& v) {
  if (!v.is_object())
    wrong_type("so_args", v, "an object");
  check_structured_keys(v);
  structured_output_args a;
  for (const auto& [name, value] : v.items()) {
    const std::string key = "so_args." + name;
    if (value.is_null() && (name == "trigger_token_ids" || name == "bound_token_id" || name == "indent"))
      continue;
    if (name == "schema_type")
      a.schema_type = to_text(key, value);
    else if (name == "schema")
      a.schema = to_text(key, value);
    else if (name == "trigger_token_ids")
      a.trigger_token_ids = to_ints(key, value);
    else if (name == "bound_token_id")
      a.bound_token_id = to_int(key, value);
    else if (name == "max_whitespace")
      a.max_whitespace = to_int(key, value);
    else if (name == "indent")
      a.indent = to_int(key, value);
    else
      (name == "strict"           ? a.strict
       : name == "any_whitespace" ? a.any_whitespace
       : name == "any_order"      ? a.any_order
       : name == "infer_type"     ? a.infer_type
       : name == "lenient"        ? a.lenient
                                  : a.dot_excludes_newline) = to_bool(key, value);
  }
  if (!v.contains("schema"))
    fail("so_invalid_args", "so_args.schema is missing: the text of the constraint is needed");
  check_keys_of_kind(v, a.schema_type);
  return a;
}

// Every fault in there is one of the constraint.
structured_output_args to_constraint(const json& v) {
  try {
    return to_structured(v);
  } catch (fault& f) {
    f.what.code = "so_invalid_args";
    throw;
  }
}

sampling_params to_params(const json& v, std::int32_t vocab_size) {
  if (!v.is_object())
    wrong_type("params", v, "an object");
  only_keys(v, " in params",
            {"temperature", "top_p", "top_k", "min_p", "max_tokens", "min_tokens", "ignore_eos", "stop",
             "stop_token_ids", "n", "logprobs", "top_logprobs", "prompt_logprobs", "logprobs_mode", "seq_seed",
             "so_args", "golden_token_ids", "logit_bias"});
  sampling_params p;
  for (const auto& [key, value] : v.items()) {
    if (value.is_null() && (key == "seq_seed" || key == "so_args" || key == "golden_token_ids" || key == "stop" ||
                            key == "stop_token_ids" || key == "logit_bias"))
      continue; // "none", which is the default
    if (key == "temperature")
      p.temperature = to_float(key, value);
    else if (key == "top_p")
      p.top_p = to_float(key, value);
    else if (key == "top_k")
      p.top_k = to_int(key, value);
    else if (key == "min_p")
      p.min_p = to_float(key, value);
    else if (key == "max_tokens")
      p.max_tokens = to_int(key, value);
    else if (key == "min_tokens")
      p.min_tokens = to_int(key, value);
    else if (key == "ignore_eos")
      p.ignore_eos = to_bool(key, value);
    else if (key == "stop")
      p.stop = to_texts(key, value);
    else if (key == "stop_token_ids")
      p.stop_token_ids = to_ints(key, value);
    else if (key == "n")
      p.n = to_int(key, value);
    else if (key == "logprobs")
      p.logprobs = to_bool(key, value);
    else if (key == "top_logprobs")
      p.top_logprobs = to_int(key, value);
    else if (key == "prompt_logprobs")
      p.prompt_logprobs = to_bool(key, value);
    else if (key == "logprobs_mode") {
      const std::string mode = to_text(key, value);
      if (mode != "raw" && mode != "processed")
        out_of_range(key, value, "raw or processed");
      p.logprobs_mode = mode == "raw" ? logprobs_source::raw : logprobs_source::processed;
    } else if (key == "seq_seed")
      p.seq_seed = to_seed(value);
    else if (key == "so_args")
      p.so_args = to_constraint(value);
    else if (key == "golden_token_ids")
      p.golden_token_ids = to_ints(key, value);
    else if (key == "logit_bias")
      p.logit_bias = to_bias(value);
  }
  if (const status s = check_sampling_params(p, vocab_size); !s)
    throw fault{s.failure()};
  return p;
}

std::vector<chat_message> to_messages(const json& v) {
  if (!v.is_array())
    wrong_type("messages", v, "a list of {role, content}");
  if (v.empty())
    fail("invalid_request", "messages = [] is out of range: at least one message");
  std::vector<chat_message> out;
  for (std::size_t i = 0; i < v.size(); ++i) {
    const std::string at = "messages[" + std::to_string(i) + ']';
    if (!v[i].is_object())
      wrong_type(at, v[i], "an object {role, content}");
    only_keys(v[i], " in " + at, {"role", "content"});
    if (!v[i].contains("role") || !v[i].contains("content"))
      fail("invalid_request", at + ": role and content are both needed");
    chat_message m{to_text(at + ".role", v[i]["role"]), to_text(at + ".content", v[i]["content"])};
    if (m.role != "system" && m.role != "user" && m.role != "assistant")
      out_of_range(at + ".role", v[i]["role"], "system, user or assistant");
    out.push_back(std::move(m));
  }
  return out;
}

json_request to_request(const json& v, std::int32_t vocab_size) {
  only_keys(v, "",
            {"id", "prompt", "prompt_ids", "messages", "params", "rows", "priority", "deadline_steps", "cache_salt",
             "chunk_checkpoints"});
  if (v.contains("prompt") + v.contains("prompt_ids") + v.contains("messages") != 1)
    fail("invalid_request", "exactly one of prompt, prompt_ids and messages is needed");
  json_request r;
  if (v.contains("prompt"))
    r.prompt = to_text("prompt", v["prompt"]);
  if (v.contains("prompt_ids")) {
    r.prompt_ids = to_ints("prompt_ids", v["prompt_ids"]);
    if (r.prompt_ids->empty())
      fail("invalid_request", "prompt_ids = [] is out of range: at least one token id");
    for (std::size_t i = 0; i < r.prompt_ids->size(); ++i)
      if (const std::int32_t id = (*r.prompt_ids)[i]; id < 0 || (vocab_size > 0 && id >= vocab_size))
        fail("invalid_request", "prompt_ids[" + std::to_string(i) + "] = " + std::to_string(id) + " is out of range: " +
                                    (vocab_size > 0 ? "token ids are 0.." + std::to_string(vocab_size - 1)
                                                    : "token ids are not negative"));
  }
  if (v.contains("messages"))
    r.messages = to_messages(v["messages"]);
  if (v.contains("params"))
    r.params = to_params(v["params"], vocab_size);
  if (v.contains("priority"))
    r.priority = to_int("priority", v["priority"]);
  if (v.contains("deadline_steps") && !v["deadline_steps"].is_null()) {
    r.deadline_steps = to_int("deadline_steps", v["deadline_steps"]);
    if (r.deadline_steps < 1)
      out_of_range("deadline_steps", v["deadline_steps"], "at least 1, or leave it out");
  }
  if (v.contains("cache_salt") && !v["cache_salt"].is_null()) {
    r.cache_salt = to_text("cache_salt", v["cache_salt"]);
    if (r.cache_salt.empty())
      fail("invalid_request", "cache_salt = \"\" is out of range: at least one character, or leave it out");
  }
  if (v.contains("chunk_checkpoints") && !v["chunk_checkpoints"].is_null()) {
    r.chunk_checkpoints = to_ints("chunk_checkpoints", v["chunk_checkpoints"]);
    if (const status good = check_chunk_checkpoints(r.chunk_checkpoints); !good)
      throw fault{good.failure()};
  }
  if (v.contains("rows")) {
    r.rows = to_ints("rows", v["rows"]);
    for (std::size_t i = 0; i < r.rows.size(); ++i)
      if (r.rows[i] < 0)
        fail("invalid_request", "rows[" + std::to_string(i) + "] = " + std::to_string(r.rows[i]) +
                                    " is out of range: positions count from 0");
  }
  return r;
}

} // namespace

parsed_line parse_request_line(std::string_view line, std::int64_t number, std::int32_t vocab_size) {
  parsed_line out{std::nullopt, error{}};
  try {
    const json v = parse_json(line);
    if (!v.contains("id")) {
      out.id = std::to_string(number);
    } else {
      std::string id = to_text("id", v["id"]);
      if (id.empty())
        fail("invalid_request", "id = \"\" is out of range: at least one character");
      out.id = std::move(id);
    }
    out.request = to_request(v, vocab_size);
  } catch (const fault& f) {
    out.request = f.what;
  }
  return out;
}

result<sampling_params> parse_sampling_params(std::string_view text, std::int32_t vocab_size) {
  try {
    return to_params(parse_json(text), vocab_size);
  } catch (const fault& f) {
    return f.what;
  }
}

} // namespace troupe
