// Text to token ids and back, exact to the reference engine (tokenizer_recipe.md 1.3-1.6).
#pragma once
#include "runtime/tokenizer/added_tokens.hpp"
#include "runtime/tokenizer/bpe.hpp"
#include "runtime/tokenizer/tokenizer_file.hpp"
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe {

enum class encode_mode {
  full,  // added tokens spelled out in the text become their ids: raw prompts
  plain, // the text is only text: everything a client supplies inside a conversation
};

// Immutable after loading; shared by all threads. Moves, does not copy.
class tokenizer {
public:
  // Throws config_error for a file that is unreadable, damaged or not of the DeepSeek-V4.1 family. `name` stands in
  // messages.
  static tokenizer load(const std::string& path);
  tokenizer(const tokenizer_file& file, const std::string& name);
  tokenizer(tokenizer&&) = default;
  tokenizer& operator=(tokenizer&&) = default;

  // Adds no BOS. Any bytes: invalid UTF-8 counts as U+FFFD, by maximal subparts.
  std::vector<std::int32_t> encode(std::string_view utf8, encode_mode mode) const;

  // Unknown ids give no text; bytes that are not valid UTF-8 come out as U+FFFD.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;

  // One more than the largest id; every id below it has a token.
  std::int32_t vocab_size() const { return static_cast<std::int32_t>(special_.size()); }
  // By spelling: added tokens as they are, base tokens in byte characters ("Ġthe").
  std::optional<std::int32_t> id_of(std::string_view spelling) const;
  // Spelling and bytes of a token; empty for ids outside the vocabulary.
  std::string_view spelling(std::int32_t id) const { return in_range(id) ? spellings_.at(id) : std::string_view{}; }
  std::string_view bytes(std::int32_t id) const { return in_range(id) ? bytes_.at(id) : std::string_view{}; }
  bool is_special(std::int32_t id) const { return in_range(id) && special_[static_cast<std::size_t>(id)] == 2; }
  bool is_added(std::int32_t id) const { return in_range(id) && special_[static_cast<std::size_t>(id)] != 0; }

  std::int32_t bos_id() const { return bos_id_; }
  std::int32_t eos_id() const { return eos_id_; }
  std::int32_t pad_id() const { return pad_id_; }

private:
  // One text per token, in one block of memory whose address survives a move.
  struct text_list {
    std::vector<char> text;
    std::vector<std::size_t> start{0};
    void add(std::string_view s);
    std::string_view at(std::int32_t id) const;
  };

  bool in_range(std::int32_t id) const { return id >= 0 && id < vocab_size(); }
  void encode_plain(std::string_view text, bpe_scratch& scratch, std::vector<std::int32_t>& out) const;

  text_list spellings_, bytes_;
  std::vector<std::uint8_t> special_;                        // 0 base, 1 added, 2 added and special
  std::unordered_map<std::string_view, std::int32_t> id_of_; // views into spellings_
  added_token_matcher first_pass_, second_pass_;             // tokens not normalized, normalized
  bpe bpe_;
  std::int32_t bos_id_ = 0, eos_id_ = 0, pad_id_ = 0;
};

} // namespace troupe
