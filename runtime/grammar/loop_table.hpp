// What every token does in a repetition of one prefix code, for instance in the characters of a JSON string. With it
// the mask of a state that loops is one copied row and a walk over the few tokens that leave the loop
// (structured_output.md §8.3).
#pragma once
#include "runtime/grammar/token_vocabulary.hpp"
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

class loop_table {
public:
  // `words`: of a mask row.
  loop_table(const token_trie& trie, const byte_dfa& round, std::size_t words);
  ~loop_table();
  loop_table(const loop_table&) = delete;
  loop_table& operator=(const loop_table&) = delete;

  // Tokens that can be read inside the loop: whole rounds, the last one perhaps begun only.
  const std::uint32_t* inside() const { return inside_.data(); }
  // Those of them that begin at most `rounds` rounds.
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
  std::size_t words_;
  std::vector<std::uint32_t> inside_;
  std::vector<std::pair<std::uint32_t, std::int32_t>> by_rounds_; // (rounds begun, id) of the tokens inside, sorted
  std::vector<early_exit> early_;
  std::vector<late_exit> late_;
  token_trie rests_;
  // Rows by number of rounds, made when first asked for.
  mutable std::vector<std::atomic<const std::uint32_t*>> bounded_;
};

} // namespace troupe
