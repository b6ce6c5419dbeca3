#include "runtime/base/crc32c.hpp"
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

using namespace troupe;

namespace {

using bytes = std::vector<std::uint8_t>;

bytes of_text(std::string_view text) {
  return {text.begin(), text.end()};
}

bytes random_bytes(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  bytes b(size);
  for (auto& x : b)
    x = static_cast<std::uint8_t>(random());
  return b;
}

} // namespace

BOOST_AUTO_TEST_SUITE(crc32c_values)

// RFC 3720, appendix B.4, and the check value of the polynomial's catalogue entry.
BOOST_AUTO_TEST_CASE(known_vectors) {
  bytes rising(32), falling(32);
  std::iota(rising.begin(), rising.end(), std::uint8_t{0});
  std::iota(falling.rbegin(), falling.rend(), std::uint8_t{0});
  const std::vector<std::pair<bytes, std::uint32_t>> vectors{
      {{}, 0},
      {of_text("123456789"), 0xE3069283},
      {bytes(32, 0x00), 0x8A9136AA},
      {bytes(32, 0xFF), 0x62A8AB43},
      {rising, 0x46DD794E},
      {falling, 0x113FDB5C},
      {{0x01, 0xC0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18,
        0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00},
       0xD9963A56}};
  for (const auto& [text, value] : vectors) {
    BOOST_TEST(crc32c(text) == value);
    BOOST_TEST(crc32c_by_tables(text) == value);
  }
}

BOOST_AUTO_TEST_CASE(instruction_and_tables_agree_at_every_length_and_alignment) {
  const bytes b = random_bytes(300, 1);
  for (std::size_t from = 0; from < 9; ++from)
    for (std::size_t size = 0; size + from <= b.size(); ++size) {
      const std::span<const std::uint8_t> part(b.data() + from, size);
      BOOST_REQUIRE_EQUAL(crc32c(part), crc32c_by_tables(part));
    }
}

// Long enough for the lanes that the instruction takes side by side.
BOOST_AUTO_TEST_CASE(long_texts_agree) {
  const bytes b = random_bytes(20'000, 4);
  for (std::size_t size = 3000; size <= b.size(); size += 1 + size % 61) {
    const std::span<const std::uint8_t> part(b.data() + size % 8, size - size % 8);
    BOOST_REQUIRE_EQUAL(crc32c(part, 5), crc32c_by_tables(part, 5));
  }
}

BOOST_AUTO_TEST_CASE(parts_go_on_from_one_another) {
  const bytes b = random_bytes(257, 2);
  const std::span<const std::uint8_t> whole(b);
  for (std::size_t cut = 0; cut <= b.size(); ++cut) {
    BOOST_REQUIRE_EQUAL(crc32c(whole.subspan(cut), crc32c(whole.first(cut))), crc32c(whole));
    BOOST_REQUIRE_EQUAL(crc32c_by_tables(whole.subspan(cut), crc32c_by_tables(whole.first(cut))), crc32c(whole));
  }
}

BOOST_AUTO_TEST_CASE(one_flipped_bit_always_shows) {
  bytes b = random_bytes(64, 3);
  const std::uint32_t right = crc32c(b);
  for (std::size_t bit = 0; bit < b.size() * 8; ++bit) {
    b[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    BOOST_REQUIRE_NE(crc32c(b), right);
    b[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
  }
}

BOOST_AUTO_TEST_SUITE_END()
