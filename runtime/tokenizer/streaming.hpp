// Token ids of one response to text, piece by piece (tokenizer_recipe.md 1.6).
#pragma once
#include "runtime/tokenizer/tokenizer.hpp"
#include <string>

namespace troupe {

// Holds text back only while it ends in a proper prefix of a valid UTF-8 sequence; bytes that can no longer become a
// character go out at once as U+FFFD. Like the reference it then holds all that it has not yet given out, so that steps
// agree. All pieces and the flush joined equal tokenizer::decode of all ids.
// The prompt never enters; the caller removes EOS and stop ids first. Keeps a reference to the tokenizer.
class streaming_decoder {
public:
  explicit streaming_decoder(const tokenizer& t, bool skip_special = false)
      : tokenizer_(&t), skip_special_(skip_special) {}

  // Text that became available with this id, perhaps empty. Ids outside the vocabulary give none.
  std::string push(std::int32_t id);
  // End of the response: what is still held, the unfinished tail as one U+FFFD; the decoder is then as new.
  std::string flush();
  // What is still held, as flush would give it.
  std::string pending() const;

private:
  const tokenizer* tokenizer_;
  bool skip_special_;
  std::string held_;
};

} // namespace troupe
