// troupe tokenize: JSON lines of text to JSON lines of token ids, and back.
#include "cli/engine_settings.hpp"
#include "cli/json_lines.hpp"
#include "cli/verbs.hpp"
#include "runtime/tokenizer/streaming.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include <nlohmann/json.hpp>
#include <optional>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

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

} // namespace

int run_tokenize(const tokenize_options& options) {
  const tokenizer t =
      tokenizer::load(options.tokenizer_file.empty() ? default_tokenizer_file() : options.tokenizer_file);
  return answer_json_lines(options.input, options.output, [&](const json& line) {
    return options.decode ? decode_line(t, line) : encode_line(t, line);
  });
}

} // namespace troupe
