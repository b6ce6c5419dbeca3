#include "cluster/frame.hpp"
#include "tests/support/frame_cases.hpp"
#include "tests/support/sanitizers.hpp"
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstring>

using namespace troupe;
using namespace troupe::test;

namespace {

sample_meta some_meta() {
  return {.id = 7, .layer = 3, .rows = {1, -2, 3}, .weights = {0.5F, -1.25F}, .note = "layer 3"};
}

byte_vector sample_frame(std::size_t payload_bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto meta = encode_meta(some_meta());
  return whole_frame(sample_header(), bytes_of(*meta), random_bytes(random, payload_bytes));
}

} // namespace

BOOST_AUTO_TEST_SUITE(frames)

// Where every field of the header lies, byte by byte.
BOOST_AUTO_TEST_CASE(the_header_on_the_wire) {
  frame_header h = sample_header();
  h.payload_bytes = 0x00030201;
  h.meta_bytes = 0x00000605;
  h.body_crc = 0x61626364;
  const auto b = encode_header(h);
  const std::array<std::uint8_t, 56> want{0x44, 0x49, 0x44, 0x50,                         // magic 0x50444944
                                          0x01, 0x00,                                     // version
                                          0x03, 0x01,                                     // kind, flags
                                          0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, // mepoch
                                          0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, // stream
                                          0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, // seq
                                          0x34, 0x33, 0x32, 0x31,                         // src
                                          0x44, 0x43, 0x42, 0x41,                         // dst
                                          0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51, // step or offset
                                          0x01, 0x02, 0x03, 0x00,                         // bytes of payload
                                          0x64, 0x63, 0x62, 0x61};                        // check sum of the body
  BOOST_TEST(std::memcmp(b.data(), want.data(), want.size()) == 0);
  const std::array<std::uint8_t, 4> meta_bytes{0x05, 0x06, 0x00, 0x00};
  BOOST_TEST(std::memcmp(b.data() + 60, meta_bytes.data(), 4) == 0);
  const auto back = parse_header(b);
  BOOST_REQUIRE(back);
  BOOST_TEST((*back == h));
}

BOOST_AUTO_TEST_CASE(frames_of_every_size_come_back) {
  const auto meta = encode_meta(some_meta());
  BOOST_REQUIRE(meta);
  std::mt19937_64 random(1);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{100'000},
                                 frame_payload_bytes_max}) {
    const auto payload = random_bytes(random, size);
    const auto bytes = whole_frame(sample_header(), bytes_of(*meta), payload);
    const auto one = parse_frame(bytes);
    BOOST_REQUIRE(one);
    BOOST_TEST(one->header.stream == sample_header().stream);
    BOOST_TEST(std::ranges::equal(one->payload, payload));
    BOOST_TEST((*decode_meta<sample_meta>(one->meta) == some_meta()));
    // the same as two parts
    const byte_span whole(bytes);
    const std::size_t cut = frame_header_bytes + meta->size();
    const auto two = parse_frame(whole.first(cut), whole.subspan(cut));
    BOOST_REQUIRE(two);
    BOOST_TEST((two->header == one->header));
    if (size > 0) {
      const auto wrong_cut = parse_frame(whole.first(cut + 1), whole.subspan(cut + 1));
      BOOST_REQUIRE(!wrong_cut);
      BOOST_TEST(wrong_cut.failure().code == "bad_body");
    }
  }
}

BOOST_AUTO_TEST_CASE(lengths_above_the_limits_are_refused_though_the_check_sum_is_right) {
  for (const auto& [payload, meta] :
       {std::pair{frame_payload_bytes_max + 1, std::size_t{0}}, std::pair{std::size_t{0}, frame_meta_bytes_max + 1},
        std::pair{std::size_t{0xFFFFFFFF}, std::size_t{0xFFFFFFFF}}}) {
    frame_header h = sample_header();
    h.payload_bytes = static_cast<std::uint32_t>(payload);
    h.meta_bytes = static_cast<std::uint32_t>(meta);
    const auto parsed = parse_header(encode_header(h));
    BOOST_REQUIRE(!parsed);
    BOOST_TEST(parsed.failure().code == "bad_frame");
  }
}

BOOST_AUTO_TEST_CASE(kinds_flags_versions_that_do_not_exist_are_refused) {
  for (const int kind : {0, 11, 255}) {
    frame_header h = sample_header();
    h.kind = static_cast<frame_kind>(kind);
    BOOST_TEST(!parse_header(encode_header(h)));
  }
  frame_header h = sample_header();
  h.flags = 64;
  BOOST_TEST(!parse_header(encode_header(h)));
  for (const frame_kind kind :
       {frame_kind::a2a_dispatch, frame_kind::weight_chunk, frame_kind::ack, frame_kind::probe}) {
    h = sample_header();
    h.kind = kind;
    BOOST_TEST(bool(parse_header(encode_header(h))));
    BOOST_TEST(carries_bulk(kind) == (kind <= frame_kind::weight_chunk));
  }
}

BOOST_AUTO_TEST_CASE(every_truncation_is_refused) {
  const auto bytes = sample_frame(300, 2);
  for (std::size_t n = 0; n < bytes.size(); ++n)
    BOOST_REQUIRE(!parse_frame(byte_span(bytes).first(n)));
  auto longer = bytes;
  longer.push_back(0);
  BOOST_TEST(!parse_frame(longer));
}

BOOST_AUTO_TEST_CASE(every_single_bit_error_is_found) {
  auto bytes = sample_frame(700, 3);
  const std::size_t header_bits = 8 * frame_header_bytes;
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    const auto mask = static_cast<std::uint8_t>(1U << (bit % 8));
    bytes[bit / 8] ^= mask;
    const auto parsed = parse_frame(bytes);
    bytes[bit / 8] ^= mask;
    BOOST_REQUIRE(!parsed);
    BOOST_REQUIRE_EQUAL(parsed.failure().code, bit < header_bits ? "bad_frame" : "bad_body");
  }
  BOOST_TEST(bool(parse_frame(bytes)));
}

BOOST_AUTO_TEST_CASE(lists_longer_than_allowed_are_refused_before_memory_is_taken) {
  // A list that claims 2^40 items: endian mark, id, layer, then the claim.
  byte_vector meta{1};
  meta.resize(1 + 8 + 4);
  for (const std::uint64_t claim : {std::uint64_t{8193}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    byte_vector bytes = meta;
    for (int i = 0; i < 8; ++i)
      bytes.push_back(static_cast<std::uint8_t>(claim >> (8 * i)));
    const auto decoded = decode_meta<sample_meta>(bytes);
    BOOST_REQUIRE(!decoded);
    BOOST_TEST(decoded.failure().code == "bad_meta");
    BOOST_TEST(decoded.failure().message.find(std::to_string(claim)) != std::string::npos, decoded.failure().message);
  }
}

BOOST_AUTO_TEST_CASE(meta_is_whole_or_refused) {
  const auto meta = encode_meta(some_meta());
  BOOST_REQUIRE(meta);
  for (std::size_t n = 0; n < meta->size(); ++n)
    BOOST_REQUIRE(!decode_meta<sample_meta>(bytes_of(*meta).first(n)));
  BOOST_TEST(!decode_meta<sample_meta>(bytes_of(*meta + "x")));
  BOOST_TEST(!decode_meta<sample_meta>(byte_vector(frame_meta_bytes_max + 1)));
  sample_meta large;
  large.rows.resize(8192);
  BOOST_TEST(bool(encode_meta(large)));
  large.rows.resize(20'000);
  const auto refused = encode_meta(large);
  BOOST_REQUIRE(!refused);
  BOOST_TEST(refused.failure().code == "too_large");
}

// Truncated, corrupt, oversized and random input; parse_anything() aborts where a promise breaks.
BOOST_AUTO_TEST_CASE(anything_can_be_parsed) {
  std::mt19937_64 random(4);
  std::array<std::size_t, 2> parsed{};
  for (int round = 0; round < by_build(100'000, 20'000, 10'000); ++round) {
    auto bytes = round % 4 == 0 ? random_bytes(random, random() % 200) : sample_frame(random() % 100, random());
    switch (random() % 4) {
    case 0:
      bytes.resize(random() % (bytes.size() + 1));
      break;
    case 1:
      bytes.resize(bytes.size() + random() % 70'000);
      break;
    case 2:
      for (std::size_t k = 1 + random() % 3; k > 0 && !bytes.empty(); --k)
        bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
      break;
    default: { // damaged meta behind right check sums
      auto meta = random_bytes(random, random() % 60);
      if (!meta.empty())
        meta[0] = static_cast<std::uint8_t>(random() % 2);
      bytes = whole_frame(sample_header(), meta, {});
    }
    }
    parse_anything(bytes);
    ++parsed[parse_frame(bytes) ? 1 : 0];
  }
  BOOST_TEST(parsed[0] > 1000u); // both ways were tried
  BOOST_TEST(parsed[1] > 1000u);
}

BOOST_AUTO_TEST_SUITE_END()
