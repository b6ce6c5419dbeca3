// What every token does in a repetition of one prefix code, for instance in the characters of a JSON string. With it
// the mask of a state that loops is one copied row and a walk over the few tokens that leave the loop
// (structured_output.md §8.3).
#pragma once
#include "runtime/grammar/token_vocabulary.hpp"
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

class loop_table {
public:
  // `words`: of a mask row. `below`: a node of the trie; the table is then about the tokens of its subtree and what
  // they read behind that node.
  loop_table(const token_trie& trie, const byte_dfa& round, std::size_t words, std::optional<std::uint32_t> below = {});
  ~loop_table();
  loop_table(const loop_table&) = delete;
  loop_table& operator=(const loop_table&) = delete;

  // Tokens that can be read inside the loop: whole rounds, the last one perhaps begun only; at most `rounds` of them.
  const std::uint32_t* inside(std::uint64_t rounds) const;

  // Tokens that leave the loop before their first round is complete: walk `node` of the token trie, after the bytes
  // `before`.
  struct early_exit {
    std::uint32_t node;
    std::string before;
  };
  const std::vector<early_exit>& early_exits() const { return early_; }

  // The others that leave it: a trie over what they read behind their last whole round.
  const token_trie& rests() const { return rests_; } // its ids are indices of `late`
  struct late_exit {
    std::int32_t id;
    std::uint32_t rounds; // whole ones before the rest
  };
  const std::vector<late_exit>& late() const { return late_; }
  std::size_t bytes() const;

private:
  // Rows for so many rounds are made at once; nearly all tokens are shorter than more.
  static constexpr std::size_t short_rounds = 16;

  std::size_t words_;
  std::vector<std::vector<std::uint32_t>> rows_;     // by number of rounds, up to short_rounds, then one for any number
  std::vector<std::vector<std::int32_t>> by_rounds_; // tokens inside, by rounds begun
  std::vector<early_exit> early_;
  std::vector<late_exit> late_;
  token_trie rests_;
  // Rows for numbers between, made when first asked for.
  mutable std::vector<std::atomic<const std::uint32_t*>> bounded_;
};

} // namespace troupe
