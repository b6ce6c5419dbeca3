// What every token does in a repetition of one prefix code, for instance in the characters of a JSON string. With it
// the mask of a state that loops is one copied row and a walk over the few tokens that leave the loop
// (structured_output.md §8.3).
#pragma once
#include "runtime/grammar/token_vocabulary.hpp"
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

class loop_table {
public:
  // `below`: a node of the vocabulary's trie; the table is then about the tokens of its subtree and what they read
  // behind that node. The vocabulary must outlive the table.
  loop_table(const token_vocabulary& vocabulary, const byte_dfa& round, std::optional<std::uint32_t> below = {});
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

  // The others that leave it, by the bytes with which what they read behind their last whole round begins.
  std::span<const unsigned char> rest_bytes() const { return rest_bytes_; }
  struct late_exit {
    std::int32_t id;
    std::uint32_t rounds; // whole ones before the rest
    std::uint16_t rest;   // bytes, the last ones of the token
    unsigned char first;  // of the rest
  };
  const std::vector<late_exit>& late() const { return late_; }
  std::span<const late_exit> late(unsigned char first) const;
  // A trie over all rests that begin with this byte, made when first asked for: most loops are left by few bytes. Its
  // ids are indices of late().
  const token_trie& rests(unsigned char first) const;
  std::size_t bytes() const; // grows with what is made later

private:
  // Rows for so many rounds are made at once; nearly all tokens are shorter than more.
  static constexpr std::size_t short_rounds = 16;

  const token_vocabulary& vocabulary_;
  std::vector<std::vector<std::uint32_t>> rows_;     // by number of rounds, up to short_rounds, then one for any number
  std::vector<std::vector<std::int32_t>> by_rounds_; // tokens inside that begin more than short_rounds, by their number
  std::vector<early_exit> early_;
  std::vector<late_exit> late_;                 // by `first`
  std::array<std::uint32_t, 257> late_first_{}; // of late_, by `first`
  std::vector<unsigned char> rest_bytes_;
  std::size_t first_bytes_ = 0; // of all this
  // Made when first asked for: by first byte, and rows for numbers of rounds between.
  mutable std::array<std::atomic<const token_trie*>, 256> rests_{};
  mutable std::vector<std::atomic<const std::uint32_t*>> bounded_;
};

} // namespace troupe
