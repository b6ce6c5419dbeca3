// troupe tokenize: JSON lines of text to JSON lines of token ids, and back.
#include "cli/engine_settings.hpp"
#include "cli/line_io.hpp"
#include "cli/log.hpp"
#include "cli/verbs.hpp"
#include "runtime/tokenizer/streaming.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include <nlohmann/json.hpp>
#include <optional>
#include <poll.h>
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

std::string default_tokenizer_file() {
  const environment_map environment = process_environment();
  for (const char* name : {"DEEPINFER_HF_MODEL_DIR", "TROUPE_MODEL"})
    if (const auto found = environment.find(name); found != environment.end() && !found->second.empty())
      return found->second + "/tokenizer.json";
  return default_model_folder() + "/tokenizer.json";
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  if (c >= 'A' && c <= 'F')
    return c - 'A' + 10;
  return -1;
}

std::optional<std::string> bytes_of_hex(const std::string& text) {
  if (text.size() % 2 != 0)
    return std::nullopt;
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = hex_digit(text[i]), low = hex_digit(text[i + 1]);
    if (high < 0 || low < 0)
      return std::nullopt;
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

result<json> encode_line(const tokenizer& t, const json& in) {
  const bool has_text = in.contains("text"), has_bytes = in.contains("bytes_hex");
  if (has_text == has_bytes)
    return error{"invalid_request", "give either text or bytes_hex"};
  const json& value = in[has_text ? "text" : "bytes_hex"];
  if (!value.is_string())
    return error{"invalid_request",
                 std::string(has_text ? "text" : "bytes_hex") + " = " + value.dump() + ": this is not a string"};
  std::optional<std::string> bytes = value.get<std::string>();
  if (has_bytes)
    bytes = bytes_of_hex(*bytes);
  if (!bytes)
    return error{"invalid_request",
                 "bytes_hex = " + value.dump() + ": this is not an even number of hexadecimal digits"};
  return json{{"ids", t.encode(*bytes, encode_mode::full)}};
}

// Numbers outside the vocabulary, whatever their size, decode to nothing.
std::optional<std::vector<std::int32_t>> ids_of(const json& list) {
  if (!list.is_array())
    return std::nullopt;
  std::vector<std::int32_t> ids;
  for (const json& v : list) {
    if (!v.is_number_integer())
      return std::nullopt;
    const auto number = v.get<std::int64_t>();
    ids.push_back(number < 0 || number > INT32_MAX ? -1 : static_cast<std::int32_t>(number));
  }
  return ids;
}

result<json> decode_line(const tokenizer& t, const json& in) {
  const std::optional<std::vector<std::int32_t>> ids = in.contains("ids") ? ids_of(in["ids"]) : std::nullopt;
  if (!ids)
    return error{"invalid_request", "ids must be a list of whole numbers"};
  json steps = json::array();
  streaming_decoder decoder(t);
  for (const std::int32_t id : *ids) {
    const std::string text = decoder.push(id);
    steps.push_back(text.empty() ? json(nullptr) : json(text));
  }
  return json{{"text", t.decode(*ids)},
              {"text_skip_special", t.decode(*ids, true)},
              {"steps", steps},
              {"pending", decoder.pending()}};
}

json failed_line(const json& id, std::int64_t number, const error& e) {
  json out{{"id", id}};
  if (id.is_null())
    out["line"] = number;
  out["error"] = {{"code", e.code}, {"message", e.message}};
  return out;
}

json answer(const tokenizer& t, bool decode, const std::string& line, std::int64_t number, bool& ok) {
  ok = false;
  json in;
  try {
    in = json::parse(line);
  } catch (const json::exception& e) {
    return failed_line(nullptr, number, {"bad_json", "line " + std::to_string(number) + " is not JSON: " + e.what()});
  }
  if (!in.is_object())
    return failed_line(nullptr, number, {"bad_json", "line " + std::to_string(number) + " is not a JSON object"});
  const json id = in.contains("id") ? in["id"] : json(nullptr);
  const result<json> fields = decode ? decode_line(t, in) : encode_line(t, in);
  if (!fields)
    return failed_line(id, number, fields.failure());
  ok = true;
  json out{{"id", id}};
  out.update(*fields);
  return out;
}

} // namespace

int run_tokenize(const tokenize_options& options) {
  const tokenizer t =
      tokenizer::load(options.tokenizer_file.empty() ? default_tokenizer_file() : options.tokenizer_file);
  line_reader in(open_input(options.input));
  line_writer out(open_output_anew(options.output, in.file()));
  int exit_code = exit_ok;
  std::string line;
  while (true) {
    bool ok = false;
    json answered;
    switch (in.next(line)) {
    case line_reader::state::waiting: {
      pollfd p{in.fd(), POLLIN, 0};
      ::poll(&p, 1, -1);
      continue;
    }
    case line_reader::state::line:
      if (line.find_first_not_of(" \t\r") == std::string::npos)
        continue;
      answered = answer(t, options.decode, line, in.line_number(), ok);
      break;
    case line_reader::state::too_long:
      answered = failed_line(nullptr, in.line_number(), {"line_too_long", "the line is longer than 64 MiB"});
      break;
    case line_reader::state::failed:
      spdlog::error("{}", in.failure());
      return exit_request_failed;
    case line_reader::state::end:
      return succeeded(out.finish()) ? exit_code : exit_request_failed;
    }
    if (!ok)
      exit_code = exit_request_failed;
    if (!succeeded(out.write_line(answered.dump(-1, ' ', false, json::error_handler_t::replace))))
      return exit_request_failed;
  }
}

} // namespace troupe
