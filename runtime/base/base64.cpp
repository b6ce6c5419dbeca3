#include "runtime/base/base64.hpp"
#include <algorithm>

namespace troupe {

namespace {

constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

} // namespace

std::string base64_of(std::span<const std::uint8_t> bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < n ? bytes[i + k] : 0u);
    for (std::size_t k = 0; k < 4; ++k)
      text += k <= n ? alphabet[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::optional<std::vector<std::uint8_t>> bytes_of_base64(std::string_view text) {
  const std::size_t padding = text.size() - std::min(text.find_last_not_of('=') + 1, text.size());
  if (text.size() % 4 != 0 || padding > 2)
    return std::nullopt;
  std::vector<std::uint8_t> bytes;
  std::uint32_t group = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool pad = i + padding >= text.size();
    const std::size_t digit = pad ? 0 : alphabet.find(text[i]);
    if (digit == std::string_view::npos)
      return std::nullopt;
    group = group << 6 | static_cast<std::uint32_t>(digit);
    if (i % 4 == 3)
      for (int shift = 16; shift >= 0; shift -= 8)
        bytes.push_back(static_cast<std::uint8_t>(group >> shift & 255));
  }
  bytes.resize(bytes.size() - padding);
  if (base64_of(bytes) != text) // bits behind the last byte that are not 0
    return std::nullopt;
  return bytes;
}

} // namespace troupe
