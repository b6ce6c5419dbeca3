// Search for added tokens in text: leftmost match, at one place the longest, without overlap (tokenizer_recipe.md 1.3).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace troupe {

// A byte trie, immutable once filled. Searching costs at most text length times longest token.
class added_token_matcher {
public:
  added_token_matcher();

  // content must not be empty.
  void add(std::string_view content, std::int32_t id);

  struct match {
    std::size_t start, length;
    std::int32_t id; // -1: none, start is then the end of the text
  };
  // First match at or behind `from`.
  match find(std::string_view text, std::size_t from) const;

private:
  struct node {
    std::int32_t id = -1;          // token that ends here
    std::int32_t first_child = -1; // siblings form a list
    std::int32_t sibling = -1;
    unsigned char byte = 0;
  };
  std::int32_t child(std::int32_t parent, unsigned char byte) const;

  std::vector<node> nodes_;
  std::array<std::int32_t, 256> start_; // children of the root by byte
};

} // namespace troupe
