#include "runtime/tokenizer/byte_characters.hpp"
#include "runtime/tokenizer/utf8.hpp"

namespace troupe {

namespace {

constexpr std::size_t characters = 0x144; // one more than the last code point in use

constexpr std::array<std::int16_t, characters> bytes_by_character() {
  std::array<std::int16_t, characters> out{};
  for (auto& b : out)
    b = -1;
  const auto table = byte_characters();
  for (std::size_t b = 0; b < 256; ++b)
    out[table[b]] = static_cast<std::int16_t>(b);
  return out;
}

} // namespace

std::string bytes_of_spelling(std::string_view spelling) {
  static constexpr auto byte_of = bytes_by_character();
  std::string out;
  for (std::size_t i = 0; i < spelling.size();) {
    const utf8_sequence s = read_utf8(spelling.substr(i));
    if (s.state != utf8_sequence::kind::valid || s.code >= characters || byte_of[s.code] < 0)
      return std::string(spelling);
    out.push_back(static_cast<char>(byte_of[s.code]));
    i += s.length;
  }
  return out;
}

} // namespace troupe
