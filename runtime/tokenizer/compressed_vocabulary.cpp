#include "runtime/tokenizer/compressed_vocabulary.hpp"
#include "runtime/base/result.hpp"
#include "runtime/tokenizer/normal_form.hpp"
#include "runtime/tokenizer/utf8.hpp"
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <unordered_map>

namespace troupe {

namespace {

constexpr const char* table_name = "engram_compressed_ids.i32";

std::string key_of(const tokenizer& t, std::int32_t id) {
  const std::int32_t one[] = {id};
  const std::string text = t.decode(one);
  if (text.find(replacement_character) != std::string::npos)
    return std::string(t.spelling(id));
  const std::string normal = token_normal_form(text);
  return normal.empty() ? text : normal;
}

} // namespace

std::vector<std::int32_t> derive_compressed_vocabulary(const tokenizer& t) {
  std::unordered_map<std::string, std::int32_t> ids;
  std::vector<std::int32_t> out;
  out.reserve(static_cast<std::size_t>(t.vocab_size()));
  for (std::int32_t id = 0; id < t.vocab_size(); ++id)
    out.push_back(ids.emplace(key_of(t, id), static_cast<std::int32_t>(ids.size())).first->second);
  return out;
}

std::int32_t distinct_ids(std::span<const std::int32_t> table) {
  return table.empty() ? 0 : *std::max_element(table.begin(), table.end()) + 1;
}

std::vector<std::int32_t> read_compressed_vocabulary(const std::string& path, std::int32_t vocab_size) {
  constexpr const char* remedy =
      "copy the file from the checkpoint again, or delete it to have it derived from tokenizer.json";
  const auto expected = static_cast<std::uintmax_t>(vocab_size) * 4;
  std::error_code failure;
  const std::uintmax_t size = std::filesystem::file_size(path, failure);
  std::ifstream in(path, std::ios::binary);
  if (failure || !in)
    throw config_error(path, "", "", "cannot be read", remedy);
  if (size != expected)
    throw config_error(path, "size", std::to_string(size) + " bytes",
                       "must be " + std::to_string(expected) + " bytes, four per vocabulary id", remedy);
  std::vector<unsigned char> bytes(expected);
  if (!in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(expected)))
    throw config_error(path, "", "", "cannot be read to its end", remedy);
  std::vector<std::int32_t> out(static_cast<std::size_t>(vocab_size));
  std::int32_t next = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const unsigned char* b = &bytes[i * 4];
    out[i] = static_cast<std::int32_t>(b[0] | static_cast<std::uint32_t>(b[1]) << 8 |
                                       static_cast<std::uint32_t>(b[2]) << 16 | static_cast<std::uint32_t>(b[3]) << 24);
    if (out[i] < 0 || out[i] > next)
      throw config_error(path, "entry " + std::to_string(i), std::to_string(out[i]),
                         "must be from 0 to " + std::to_string(next) + " (new ids appear in order)", remedy);
    if (out[i] == next)
      ++next;
  }
  return out;
}

std::vector<std::int32_t> compressed_vocabulary(const tokenizer& t, const std::string& checkpoint_folder,
                                                std::int32_t configured_size) {
  const std::string shipped = (std::filesystem::path(checkpoint_folder) / table_name).string();
  std::error_code ignored;
  const bool exists = std::filesystem::exists(shipped, ignored);
  std::vector<std::int32_t> table =
      exists ? read_compressed_vocabulary(shipped, t.vocab_size()) : derive_compressed_vocabulary(t);
  if (const std::int32_t size = distinct_ids(table); size != configured_size)
    throw config_error(exists ? shipped : (std::filesystem::path(checkpoint_folder) / "config.json").string(),
                       "engram_compressed_vocab_size", std::to_string(configured_size),
                       (exists ? "the table has " : "tokenizer.json gives ") + std::to_string(size) + " distinct ids",
                       "use config.json, tokenizer.json and the table of one checkpoint");
  return table;
}

} // namespace troupe
