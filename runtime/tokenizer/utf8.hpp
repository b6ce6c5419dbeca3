// UTF-8 with the maximal-subpart rule: every longest start of a valid sequence that goes wrong counts as one U+FFFD.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

// Result of reading one sequence. `length` is at least 1: the sequence, or the bytes that one U+FFFD stands for.
// `cut`: the bytes up to the end of the text could still become a valid sequence.
struct utf8_sequence {
  enum class kind : std::uint8_t { valid, invalid, cut };
  kind state;
  std::uint8_t length;
  std::uint32_t code; // code point if valid
};

// Reads the sequence at the start of `text`, which must not be empty.
utf8_sequence read_utf8(std::string_view text);

// Decodes a sequence that is known to be valid. Sets `length`.
inline std::uint32_t decode_valid_utf8(const char* p, unsigned& length) {
  const auto b = [p](int i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(p[i])); };
  const std::uint32_t lead = b(0);
  if (lead < 0x80) {
    length = 1;
    return lead;
  }
  if (lead < 0xE0) {
    length = 2;
    return (lead & 0x1F) << 6 | (b(1) & 0x3F);
  }
  if (lead < 0xF0) {
    length = 3;
    return (lead & 0x0F) << 12 | (b(1) & 0x3F) << 6 | (b(2) & 0x3F);
  }
  length = 4;
  return (lead & 0x07) << 18 | (b(1) & 0x3F) << 12 | (b(2) & 0x3F) << 6 | (b(3) & 0x3F);
}

bool is_valid_utf8(std::string_view text);

// Appends `bytes` with every invalid sequence replaced by U+FFFD.
void append_replacing_invalid(std::string& out, std::string_view bytes);
std::string replace_invalid_utf8(std::string_view bytes);

// Number of bytes (0 to 3) at the end of `bytes` that are a proper prefix of a valid sequence.
std::size_t incomplete_tail(std::string_view bytes);

void append_utf8(std::string& out, std::uint32_t code_point);

} // namespace troupe
