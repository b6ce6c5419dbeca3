#include "runtime/tokenizer/tokenizer.hpp"
#include "runtime/base/result.hpp"
#include "runtime/tokenizer/byte_characters.hpp"
#include "runtime/tokenizer/pretokenize.hpp"
#include "runtime/tokenizer/utf8.hpp"
#include <unordered_set>

namespace troupe {

namespace {

constexpr const char* copy_again = "the file is damaged; copy it from the checkpoint again";

// Base and added tokens in one list by id, with all that must hold between them.
class token_list {
public:
  struct token {
    std::string_view spelling;
    bool used = false, added = false, special = false;
  };

  token_list(const tokenizer_file& file, const std::string& name) : name_(name) {
    const std::size_t count = file.vocabulary.size() + file.added.size();
    tokens_.resize(count);
    ids_.reserve(count);
    for (const auto& [spelling, id] : file.vocabulary)
      place("model.vocab." + spelling, spelling, id);
    for (std::size_t i = 0; i < file.added.size(); ++i)
      add(file.added[i], "added_tokens[" + std::to_string(i) + "]");
    while (!tokens_.empty() && !tokens_.back().used)
      tokens_.pop_back(); // added tokens that repeat base tokens
    for (std::size_t id = 0; id < tokens_.size(); ++id)
      if (!tokens_[id].used)
        refuse("model.vocab", "", "no token has id " + std::to_string(id) + ", but a larger id is in use");
  }

  const std::vector<token>& tokens() const { return tokens_; }

  std::optional<std::int32_t> find(std::string_view spelling) const {
    const auto at = ids_.find(spelling);
    return at == ids_.end() ? std::nullopt : std::optional(at->second);
  }

  std::int32_t base(std::string_view spelling, const std::string& key) const {
    const auto at = ids_.find(spelling);
    if (at == ids_.end())
      refuse(key, std::string(spelling), "is not in the vocabulary");
    return at->second;
  }

  // A control token that must exist as an added token under this id.
  std::int32_t control(const char* what, std::string_view spelling, std::int32_t id) const {
    const auto found = find(spelling);
    if (!found || !tokens_[static_cast<std::size_t>(*found)].added)
      refuse("added_tokens", std::string(spelling), std::string("the ") + what + " token is missing");
    if (*found != id)
      refuse("added_tokens", std::string(spelling),
             std::string("the ") + what + " token has id " + std::to_string(*found) + " instead of " +
                 std::to_string(id));
    return id;
  }

  [[noreturn]] void refuse(std::string key, std::string value, std::string why) const {
    throw config_error(name_, std::move(key), std::move(value), std::move(why), copy_again);
  }

private:
  void place(const std::string& key, std::string_view spelling, std::int32_t id) {
    if (static_cast<std::size_t>(id) >= tokens_.size())
      refuse(key, std::to_string(id), "the id is larger than the number of tokens");
    token& t = tokens_[static_cast<std::size_t>(id)];
    if (t.used)
      refuse(key, std::to_string(id), "the id is taken by " + std::string(t.spelling));
    if (!ids_.emplace(spelling, id).second)
      refuse(key, std::to_string(id), "the token occurs twice");
    t = {spelling, true, false, false};
  }

  void add(const tokenizer_file::added_token& a, const std::string& key) {
    const auto known = find(a.content);
    if (!known)
      place(key, a.content, a.id);
    else if (*known != a.id)
      refuse(key, std::to_string(a.id), a.content + " has id " + std::to_string(*known) + " elsewhere in the file");
    token& t = tokens_[static_cast<std::size_t>(a.id)];
    if (t.added)
      refuse(key, a.content, "the added token occurs twice");
    t.added = true;
    t.special = a.special;
  }

  const std::string& name_;
  std::vector<token> tokens_;
  std::unordered_map<std::string_view, std::int32_t> ids_;
};

std::vector<merge_rule> merge_rules(const tokenizer_file& file, const token_list& tokens) {
  if (file.merges.size() > bpe::max_merges)
    tokens.refuse("model.merges", "", "more than " + std::to_string(bpe::max_merges) + " merges");
  std::vector<merge_rule> out;
  out.reserve(file.merges.size());
  std::unordered_set<std::uint64_t> pairs(file.merges.size());
  std::string merged;
  for (std::size_t rank = 0; rank < file.merges.size(); ++rank) {
    const auto& [left, right] = file.merges[rank];
    const auto key = [rank] { return "model.merges[" + std::to_string(rank) + "]"; };
    merged.assign(left).append(right);
    const auto l = tokens.find(left), r = tokens.find(right), m = tokens.find(merged);
    if (!l || !r || !m)
      tokens.refuse(key(), left + " " + right, (!l ? left : !r ? right : merged) + " is not in the vocabulary");
    if (!pairs.insert(static_cast<std::uint64_t>(*l) << 32 | static_cast<std::uint64_t>(*r)).second)
      tokens.refuse(key(), left + " " + right, "the merge occurs twice");
    out.push_back({*l, *r, *m});
  }
  return out;
}

} // namespace

void tokenizer::text_list::add(std::string_view s) {
  text.insert(text.end(), s.begin(), s.end());
  start.push_back(text.size());
}

std::string_view tokenizer::text_list::at(std::int32_t id) const {
  const auto i = static_cast<std::size_t>(id);
  return {text.data() + start[i], start[i + 1] - start[i]};
}

tokenizer tokenizer::load(const std::string& path) {
  return tokenizer(read_tokenizer_file(path), path);
}

tokenizer::tokenizer(const tokenizer_file& file, const std::string& name) {
  const token_list list(file, name);
  std::array<std::int32_t, 256> byte_ids{};
  const auto characters = byte_characters();
  for (std::size_t b = 0; b < 256; ++b) {
    std::string spelling;
    append_utf8(spelling, characters[b]);
    byte_ids[b] = list.base(spelling, "model.vocab");
  }
  bos_id_ = list.control("BOS", "<｜begin▁of▁sentence｜>", 0);
  eos_id_ = list.control("EOS", "<｜end▁of▁sentence｜>", 1);
  pad_id_ = list.control("padding", "<｜▁pad▁｜>", 2);
  for (const token_list::token& t : list.tokens()) {
    spellings_.add(t.spelling);
    bytes_.add(bytes_of_spelling(t.spelling));
    special_.push_back(t.special ? 2 : t.added ? 1 : 0);
  }
  for (const tokenizer_file::added_token& a : file.added)
    (a.normalized ? second_pass_ : first_pass_).add(a.content, a.id);
  bpe_ = bpe(byte_ids, merge_rules(file, list));
  id_of_.reserve(special_.size());
  std::vector<std::string_view> pieces;
  for (std::int32_t id = 0; id < vocab_size(); ++id) {
    id_of_.emplace(spellings_.at(id), id);
    pieces.push_back(bytes_.at(id));
  }
  bpe_.index_whole_pieces(pieces);
}

std::optional<std::int32_t> tokenizer::id_of(std::string_view spelling) const {
  const auto at = id_of_.find(spelling);
  return at == id_of_.end() ? std::nullopt : std::optional(at->second);
}

void tokenizer::encode_plain(std::string_view text, bpe_scratch& scratch, std::vector<std::int32_t>& out) const {
  pretokenizer pieces(text);
  for (std::string_view piece; pieces.next(piece);)
    bpe_.encode(piece, scratch, out);
}

std::vector<std::int32_t> tokenizer::encode(std::string_view utf8, encode_mode mode) const {
  std::string replaced;
  if (!is_valid_utf8(utf8)) {
    replaced = replace_invalid_utf8(utf8);
    utf8 = replaced;
  }
  std::vector<std::int32_t> out;
  out.reserve(utf8.size() / 4 + 4);
  bpe_scratch scratch;
  if (mode == encode_mode::plain) {
    encode_plain(utf8, scratch, out);
    return out;
  }
  // Each pass searches only between the matches of the one before.
  for (std::size_t i = 0; i < utf8.size();) {
    const auto outer = first_pass_.find(utf8, i);
    const std::string_view between = utf8.substr(i, outer.start - i);
    for (std::size_t j = 0; j < between.size();) {
      const auto inner = second_pass_.find(between, j);
      encode_plain(between.substr(j, inner.start - j), scratch, out);
      if (inner.id >= 0)
        out.push_back(inner.id);
      j = inner.start + inner.length;
    }
    if (outer.id >= 0)
      out.push_back(outer.id);
    i = outer.start + outer.length;
  }
  return out;
}

std::string tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::string raw;
  for (const std::int32_t id : ids)
    if (!(skip_special && is_special(id)))
      raw.append(bytes(id));
  return replace_invalid_utf8(raw);
}

} // namespace troupe
