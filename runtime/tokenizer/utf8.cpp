#include "runtime/tokenizer/utf8.hpp"
#include <algorithm>

namespace troupe {

namespace {

unsigned byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

// What a lead byte allows: total length (0: not a lead byte) and the range of the second byte.
struct lead_rule {
  std::uint8_t length, low, high;
};

constexpr lead_rule rule_of(unsigned lead) {
  if (lead >= 0xC2 && lead <= 0xDF)
    return {2, 0x80, 0xBF};
  if (lead == 0xE0)
    return {3, 0xA0, 0xBF}; // lower would be overlong
  if (lead == 0xED)
    return {3, 0x80, 0x9F}; // higher would be a surrogate
  if (lead >= 0xE1 && lead <= 0xEF)
    return {3, 0x80, 0xBF};
  if (lead == 0xF0)
    return {4, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3)
    return {4, 0x80, 0xBF};
  if (lead == 0xF4)
    return {4, 0x80, 0x8F}; // higher would pass U+10FFFF
  return {0, 0, 0};
}

} // namespace

utf8_sequence read_utf8(std::string_view text) {
  const unsigned lead = byte_at(text, 0);
  if (lead < 0x80)
    return {utf8_sequence::kind::valid, 1, lead};
  const lead_rule rule = rule_of(lead);
  if (rule.length == 0)
    return {utf8_sequence::kind::invalid, 1, 0};
  for (std::uint8_t i = 1; i < rule.length; ++i) {
    if (i == text.size())
      return {utf8_sequence::kind::cut, i, 0};
    const unsigned b = byte_at(text, i);
    if (b < (i == 1 ? rule.low : 0x80u) || b > (i == 1 ? rule.high : 0xBFu))
      return {utf8_sequence::kind::invalid, i, 0};
  }
  unsigned length = 0;
  const std::uint32_t code = decode_valid_utf8(text.data(), length);
  return {utf8_sequence::kind::valid, rule.length, code};
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    if (byte_at(text, 0) < 0x80) {
      text.remove_prefix(1);
      continue;
    }
    const utf8_sequence s = read_utf8(text);
    if (s.state != utf8_sequence::kind::valid)
      return false;
    text.remove_prefix(s.length);
  }
  return true;
}

void append_replacing_invalid(std::string& out, std::string_view bytes) {
  std::size_t good = 0; // bytes of the current valid stretch, copied in one go
  std::size_t i = 0;
  while (i < bytes.size()) {
    const utf8_sequence s = read_utf8(bytes.substr(i));
    if (s.state != utf8_sequence::kind::valid) {
      out.append(bytes.substr(good, i - good));
      out.append(replacement_character);
      good = i + s.length;
    }
    i += s.length;
  }
  out.append(bytes.substr(good));
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  append_replacing_invalid(out, bytes);
  return out;
}

std::size_t incomplete_tail(std::string_view bytes) {
  const std::size_t longest = std::min<std::size_t>(3, bytes.size());
  for (std::size_t n = 1; n <= longest; ++n) {
    const std::string_view tail = bytes.substr(bytes.size() - n);
    if (byte_at(tail, 0) >= 0x80 && byte_at(tail, 0) < 0xC0)
      continue; // continuation byte: its lead may stand further left
    return read_utf8(tail).state == utf8_sequence::kind::cut ? n : 0;
  }
  return 0;
}

void append_utf8(std::string& out, std::uint32_t code_point) {
  const auto put = [&out](std::uint32_t b) { out.push_back(static_cast<char>(static_cast<unsigned char>(b))); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

} // namespace troupe
