// Reader of tokenizer.json: takes the byte-level BPE files of the DeepSeek-V3.1/V4/V4.1 family and refuses all else,
// because a setting that is silently ignored would give wrong ids.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

struct tokenizer_file {
  struct added_token {
    std::int32_t id;
    std::string content;
    bool special, normalized;
  };
  std::vector<std::pair<std::string, std::int32_t>>
      vocabulary;                                          // base tokens: spelling in byte characters, id; file order
  std::vector<std::pair<std::string, std::string>> merges; // by rank
  std::vector<added_token> added;                          // file order
};

// Both throw config_error for unreadable, damaged or unsupported files. `name` is the file's name in messages.
tokenizer_file read_tokenizer_file(const std::string& path);
tokenizer_file parse_tokenizer_file(std::string_view json_text, const std::string& name);

} // namespace troupe
