// The texts of a vocabulary as a trie over bytes (structured_output.md §5, §8.4), built once per tokenizer.
#pragma once
#include "runtime/grammar/byte_dfa.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace troupe {

class loop_table;

inline constexpr std::size_t most_token_bytes = 1023; // of one text

// The nodes in depth-first order; children by byte. A node's subtree is [node, end of node).
class token_trie {
public:
  struct entry {
    std::string_view text; // not empty
    std::int32_t id;
  };
  token_trie() = default;
  explicit token_trie(std::vector<entry> entries); // by id

  std::uint32_t size() const { return static_cast<std::uint32_t>(nodes_.size()) - 1; }
  unsigned char byte(std::uint32_t node) const { return nodes_[node].byte; }
  std::uint32_t depth(std::uint32_t node) const { return nodes_[node].depth; } // 1 for the first byte of a text
  std::uint32_t end(std::uint32_t node) const { return nodes_[node].end; }
  std::uint32_t children(std::uint32_t node) const { return nodes_[node].children; } // 255: perhaps more
  // Entries whose text ends at this node, as a range of `ids`.
  std::uint32_t first_id(std::uint32_t node) const { return nodes_[node].first_id; }
  std::uint32_t last_id(std::uint32_t node) const { return nodes_[node + 1].first_id; }
  // All ids by text: those of a subtree are [first_id(node), first_id(end(node))).
  std::span<const std::int32_t> ids() const { return ids_; }
  std::uint32_t longest() const { return longest_; } // bytes
  std::size_t bytes() const { return nodes_.size() * sizeof(packed_node) + ids_.size() * 4; }

private:
  struct packed_node { // together, since a walk that skips subtrees finds nearly every node outside of the caches
    std::uint32_t end, first_id;
    std::uint16_t depth;
    unsigned char byte, children; // 255 of them: perhaps more
  };
  std::vector<packed_node> nodes_ = {{}}; // and one more behind the last, for its first_id
  std::vector<std::int32_t> ids_;
  std::uint32_t longest_ = 0;
};

// Shared by all grammars of an engine and by all threads.
class token_vocabulary {
public:
  // texts[id]: what the token reads; empty for ids that are never text (special ones, ids without an entry).
  // `size`: ids of the model, at least texts.size().
  token_vocabulary(std::span<const std::string_view> texts, std::int32_t size, std::int32_t end_token);
  // Special tokens, the end token and, if `block_added`, all added tokens are no text (§5.2). Throws config_error if
  // the model has fewer ids than the tokenizer.
  static std::shared_ptr<const token_vocabulary> of(const tokenizer& t, std::int32_t model_vocabulary,
                                                    bool block_added = true);
  ~token_vocabulary();

  std::int32_t size() const { return size_; }
  std::size_t words() const { return (static_cast<std::size_t>(size_) + 31) / 32; } // of a mask row
  std::int32_t end_token() const { return end_token_; }
  std::string_view text(std::int32_t id) const; // empty: no text
  bool is_text(std::int32_t id) const { return !text(id).empty(); }
  const token_trie& trie() const { return trie_; }
  const token_trie& quoted() const { return quoted_; } // the tokens with a quotation mark in them
  const token_trie& far() const { return far_; }       // those of more than near_bytes

  // The masks of a loop over `round`, a prefix code, for all tokens or for those below a node of the trie; made when
  // first asked for, then shared. It lives as long as somebody holds it, or as it is among the last ones asked for.
  std::shared_ptr<const loop_table> table_of(const byte_dfa& round, std::optional<std::uint32_t> below = {}) const;
  // Null where there is none now.
  std::shared_ptr<const loop_table> known_table(const byte_dfa& round, std::optional<std::uint32_t> below = {}) const;

  // Of tables that perhaps nobody holds; all of them are looked at whenever one is used.
  static constexpr std::size_t kept_table_bytes = std::size_t{32} << 20, most_kept_tables = 64;

private:
  void keep(const std::shared_ptr<const loop_table>& table) const;

  std::int32_t size_, end_token_;
  std::vector<char> text_;
  std::vector<std::uint32_t> text_first_;
  token_trie trie_, quoted_, far_;
  std::shared_ptr<const loop_table> json_table_; // of JSON strings, which nearly every constraint asks for
  mutable std::mutex tables_lock_;
  mutable std::map<std::pair<byte_dfa, std::optional<std::uint32_t>>, std::weak_ptr<const loop_table>> tables_;
  mutable std::list<std::shared_ptr<const loop_table>> recent_; // the newest first
};

// Bit rows of §5.3.
inline void set_bit(std::uint32_t* row, std::int32_t id) {
  row[id >> 5] |= std::uint32_t{1} << (id & 31);
}
inline void clear_bit(std::uint32_t* row, std::int32_t id) {
  row[id >> 5] &= ~(std::uint32_t{1} << (id & 31));
}
inline bool has_bit(const std::uint32_t* row, std::int32_t id) {
  return (row[id >> 5] >> (id & 31) & 1) != 0;
}

} // namespace troupe
