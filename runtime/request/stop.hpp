// Stop strings on decoded output (exactness.md §9, "Text").
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

// Follows one branch's text. Text that may still become part of a stop string is held back, so what was shown never has
// to be taken back. Cost per byte: one automaton step per stop string, whatever the text.
class stop_scanner {
public:
  // stops: non-empty strings. A match that completes in output token number k (from 1) counts iff k >= min_tokens.
  explicit stop_scanner(std::vector<std::string> stops = {}, std::int32_t min_tokens = 0);

  struct step {
    std::string text;                // newly visible
    std::optional<std::size_t> stop; // index of the stop string that ended the text; nothing may be fed afterwards
  };
  // The text that the next token adds (empty while a UTF-8 sequence is incomplete). Of several stop strings the one
  // that completes first wins, among equal ends the first in the list; the visible text ends before the match.
  step feed(std::string_view text);

  // The same for text that comes out after the last token (an incomplete UTF-8 sequence), then all that was held back.
  // Stop strings still apply.
  step finish(std::string_view rest = {});

  const std::string& stop_string(std::size_t index) const { return stops_[index].text; }

private:
  struct automaton {
    std::string text;
    std::vector<std::size_t> fallback; // [length + 1]: longest proper border of each prefix
    std::size_t matched = 0;           // bytes of `text` that the output ends with, always < its length
  };
  step scan(std::string_view text, bool may_stop);

  std::vector<automaton> stops_;
  std::string held_; // end of the text, not yet visible
  std::int64_t tokens_ = 0;
  std::int32_t min_tokens_ = 0;
};

} // namespace troupe
