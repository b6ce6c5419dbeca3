#include "runtime/tokenizer/added_tokens.hpp"

namespace troupe {

added_token_matcher::added_token_matcher() {
  start_.fill(-1);
}

std::int32_t added_token_matcher::child(std::int32_t parent, unsigned char byte) const {
  std::int32_t c = nodes_[static_cast<std::size_t>(parent)].first_child;
  while (c >= 0 && nodes_[static_cast<std::size_t>(c)].byte != byte)
    c = nodes_[static_cast<std::size_t>(c)].sibling;
  return c;
}

void added_token_matcher::add(std::string_view content, std::int32_t id) {
  const auto fresh = [this](unsigned char byte, std::int32_t sibling) {
    nodes_.push_back({-1, -1, sibling, byte});
    return static_cast<std::int32_t>(nodes_.size() - 1);
  };
  const auto first = static_cast<unsigned char>(content[0]);
  if (start_[first] < 0)
    start_[first] = fresh(first, -1);
  std::int32_t at = start_[first];
  for (const char c : content.substr(1)) {
    const auto byte = static_cast<unsigned char>(c);
    std::int32_t next = child(at, byte);
    if (next < 0) {
      next = fresh(byte, nodes_[static_cast<std::size_t>(at)].first_child);
      nodes_[static_cast<std::size_t>(at)].first_child = next;
    }
    at = next;
  }
  nodes_[static_cast<std::size_t>(at)].id = id;
}

added_token_matcher::match added_token_matcher::find(std::string_view text, std::size_t from) const {
  for (std::size_t i = from; i < text.size(); ++i) {
    std::int32_t at = start_[static_cast<unsigned char>(text[i])];
    if (at < 0)
      continue;
    match best{i, 0, -1};
    for (std::size_t j = i + 1; at >= 0; ++j) {
      if (const std::int32_t id = nodes_[static_cast<std::size_t>(at)].id; id >= 0)
        best = {i, j - i, id};
      if (j == text.size())
        break;
      at = child(at, static_cast<unsigned char>(text[j]));
    }
    if (best.id >= 0)
      return best;
  }
  return {text.size(), 0, -1};
}

} // namespace troupe
