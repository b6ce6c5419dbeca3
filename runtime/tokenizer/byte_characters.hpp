// The byte-to-character table of byte-level BPE: each byte has a printable character as its spelling.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

// Code point of each byte: itself for 21-7E, A1-AC and AE-FF, else U+0100 upwards in byte order.
constexpr std::array<std::uint32_t, 256> byte_characters() {
  std::array<std::uint32_t, 256> out{};
  std::uint32_t next = 0x100;
  for (std::uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    out[b] = printable ? b : next++;
  }
  return out;
}

// Bytes that a token's spelling stands for: through the table if all its characters are in it, else its own UTF-8.
std::string bytes_of_spelling(std::string_view spelling);

} // namespace troupe
