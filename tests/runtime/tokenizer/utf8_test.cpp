#include "runtime/tokenizer/pretokenize.hpp"
#include "runtime/tokenizer/streaming.hpp"
#include "runtime/tokenizer/utf8.hpp"
#include "tests/runtime/tokenizer/tokenizer_data.hpp"
#include <boost/test/unit_test.hpp>
#include <map>
#include <random>
#include <sstream>

using namespace tokenizer_test;
using troupe::replace_invalid_utf8;

namespace {

std::string replacements(int n) {
  std::string out;
  for (int i = 0; i < n; ++i)
    out += troupe::replacement_character;
  return out;
}

// Bytes that are often nearly valid: pieces of multi-byte sequences, cut and joined.
std::string hostile_bytes(std::mt19937& random, std::size_t length) {
  static const std::string parts[] = {
      "a",    " ",        "\n",       "\xC3\xA9", "\xE4\xB8\xAD", "\xF0\x9F\xA6\x80", "\xED\xA0\x80",
      "\xC0", "\xF4\x90", "\xF0\x80", "\xE0\x9F", "\xEF\xBF\xBD", "<\xEF\xBD\x9C",    "\x80",
      "\xFF", "1",        "!"};
  std::string out;
  while (out.size() < length) {
    if (random() % 4 == 0)
      out.push_back(static_cast<char>(random() % 256));
    else {
      const std::string& part = parts[random() % std::size(parts)];
      out += part.substr(0, 1 + random() % part.size());
    }
  }
  return out;
}

} // namespace

BOOST_AUTO_TEST_SUITE(utf8)

BOOST_AUTO_TEST_CASE(replaces_maximal_subparts) {
  BOOST_TEST(replace_invalid_utf8("a\xC3\xA9") == "a\xC3\xA9");
  BOOST_TEST(replace_invalid_utf8("\xED\xA0\x80") == replacements(3)); // a surrogate
  BOOST_TEST(replace_invalid_utf8("\xC0\xAF") == replacements(2));     // overlong
  BOOST_TEST(replace_invalid_utf8("\xF5\xFF") == replacements(2));     // never valid
  BOOST_TEST(replace_invalid_utf8("\xF0\x9F\xA6") == replacements(1)); // cut
  BOOST_TEST(replace_invalid_utf8("\xF0\x9F\xA6"
                                  "A") == replacements(1) + "A");
  BOOST_TEST(replace_invalid_utf8("\xE0\x80\x80") == replacements(3));
  BOOST_TEST(replace_invalid_utf8("\xF4\x90\x80\x80") == replacements(4)); // beyond U+10FFFF
  // The example table of the Unicode Standard, section 3.9
  BOOST_TEST(replace_invalid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                                  "A") == replacements(4) + "A");
}

BOOST_AUTO_TEST_CASE(every_scalar_value_reads_back) {
  for (std::uint32_t c = 0; c < 0x110000; ++c) {
    std::string s;
    troupe::append_utf8(s, c);
    const auto read = troupe::read_utf8(s);
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    BOOST_REQUIRE((read.state == troupe::utf8_sequence::kind::valid) == !surrogate);
    if (surrogate)
      continue;
    BOOST_REQUIRE(read.code == c && read.length == s.size());
    for (std::size_t n = 1; n < s.size(); ++n)
      BOOST_REQUIRE(troupe::incomplete_tail("x" + s.substr(0, n)) == n);
    BOOST_REQUIRE(troupe::incomplete_tail(s) == 0);
  }
}

BOOST_AUTO_TEST_CASE(random_bytes_come_back_with_invalid_ones_replaced) {
  std::mt19937 random(11);
  for (int i = 0; i < 3000; ++i) {
    const std::string bytes = hostile_bytes(random, random() % 120);
    const std::string want = replace_invalid_utf8(bytes);
    BOOST_REQUIRE(troupe::is_valid_utf8(want));
    for (const auto* t : {&v41(), &embedded()})
      for (const auto mode : {troupe::encode_mode::full, troupe::encode_mode::plain}) {
        const auto ids = t->encode(bytes, mode);
        BOOST_REQUIRE(t->decode(ids) == want);
        BOOST_REQUIRE(t->encode(want, mode) == ids);
      }
  }
}

// Time grows with the square of a piece if the heap or a run rule is wrong: the limit of the whole test then breaks.
BOOST_AUTO_TEST_CASE(a_megabyte_of_one_character_comes_back) {
  for (const std::string unit : {"a", " ", "\n", "\xE4\xB8\xAD", "\xFF", "<"}) {
    std::string text;
    while (text.size() < (1u << 20))
      text += unit;
    const auto ids = v41().encode(text, troupe::encode_mode::full);
    BOOST_TEST(v41().decode(ids) == replace_invalid_utf8(text));
    if (unit == " ") // the longest token of spaces has 128
      BOOST_TEST(ids.size() == 8192u);
  }
}

BOOST_AUTO_TEST_CASE(pieces_cover_the_text) {
  std::mt19937 random(12);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = replace_invalid_utf8(hostile_bytes(random, 1 + random() % 200));
    troupe::pretokenizer cutter(text);
    const char* at = text.data();
    for (std::string_view piece; cutter.next(piece); at += piece.size()) {
      BOOST_REQUIRE(piece.data() == at && !piece.empty());
      BOOST_REQUIRE(troupe::is_valid_utf8(piece));
    }
    BOOST_REQUIRE(at == text.data() + text.size());
  }
}

BOOST_AUTO_TEST_CASE(streams_random_ids_without_holding_more_than_needed) {
  std::mt19937 random(13);
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::int32_t> ids(1 + random() % 40);
    for (auto& id : ids) // mostly single bytes, so that sequences form and break
      id = random() % 4 ? 3 + static_cast<std::int32_t>(random() % 256)
                        : static_cast<std::int32_t>(random() % 130000) - 300;
    troupe::streaming_decoder stream(v41());
    std::string joined, raw;
    for (const auto id : ids) {
      const std::string step = stream.push(id);
      BOOST_REQUIRE(troupe::is_valid_utf8(step));
      joined += step;
      raw += v41().bytes(id);
      // Everything is out, unless the end may still become a character: then this step gives nothing.
      if (troupe::incomplete_tail(raw) == 0)
        BOOST_REQUIRE(joined == replace_invalid_utf8(raw));
      else
        BOOST_REQUIRE(step.empty());
      BOOST_REQUIRE(joined + stream.pending() == replace_invalid_utf8(raw));
    }
    BOOST_REQUIRE(joined + stream.flush() == v41().decode(ids));
  }
}

BOOST_AUTO_TEST_CASE(lets_a_literal_replacement_character_out_at_once) {
  troupe::streaming_decoder stream(v41());
  std::string out;
  for (const auto id : v41().encode("\xEF\xBF\xBD", troupe::encode_mode::plain))
    out += stream.push(id);
  BOOST_TEST(out == "\xEF\xBF\xBD");
  BOOST_TEST(stream.pending() == "");
}

BOOST_AUTO_TEST_CASE(class_table_equals_its_source) {
  const std::map<std::string, std::uint8_t> names = {{"L", troupe::class_letter}, {"M", troupe::class_mark},
                                                     {"N", troupe::class_number}, {"P", troupe::class_punctuation},
                                                     {"S", troupe::class_symbol}, {"space", troupe::class_space}};
  std::vector<std::uint8_t> want(0x110000, troupe::class_other);
  std::ifstream in(data_path("unicode_classes.tsv"));
  std::size_t ranges = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#')
      continue;
    std::istringstream fields(line);
    std::string name;
    std::uint32_t first = 0, last = 0;
    fields >> name >> std::hex >> first >> last;
    for (std::uint32_t c = first; c <= last; ++c)
      want[c] = names.at(name);
    ++ranges;
  }
  BOOST_TEST(ranges == 1586u);
  for (std::uint32_t c = 0; c < 0x110000; ++c)
    BOOST_REQUIRE((troupe::unicode_classes::instance().of(c) & troupe::class_mask) == want[c]);
  BOOST_TEST(troupe::unicode_classes::instance().of(0x110000) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
