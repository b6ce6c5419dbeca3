// Cuts text into the pieces that BPE works on: the three splits of tokenizer_recipe.md 1.3 in one pass, written out as
// code instead of regular expressions so that the classes are ours and the time is linear.
#pragma once
#include "runtime/tokenizer/unicode_classes.hpp"
#include <string_view>

namespace troupe {

// Pull iterator over the pieces of one stretch of valid UTF-8 without added tokens. The pieces lie side by side and
// cover the text. Views into `text`; no allocation.
class pretokenizer {
public:
  explicit pretokenizer(std::string_view text);

  // The next piece, never empty; false at the end.
  bool next(std::string_view& piece);

private:
  // Class with flags of the character at p; sets its length in bytes.
  std::uint8_t class_at(const char* p, unsigned& length) const;
  // End of the run of characters from p whose class is in `classes` (bit per class), inside the segment.
  const char* run_of(const char* p, unsigned classes) const;
  const char* line_break_run(const char* p) const;
  const char* open_segment();
  // End of the match of the third split at p, or nullptr if no alternative matches there.
  const char* match(const char* p) const;
  const char* match_space(const char* p) const;

  const unicode_classes& classes_;
  const std::uint8_t* ascii_;
  const char* at_;
  const char* end_;
  const char* segment_end_; // end of the piece that the first two splits leave; the third one never looks past it
  const char* match_end_ = nullptr; // a match that starts at at_, found while its preceding gap was measured
};

} // namespace troupe
