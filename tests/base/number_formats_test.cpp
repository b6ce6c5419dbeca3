#include "runtime/base/number_formats.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

using namespace troupe;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float a_nan = std::numeric_limits<float>::quiet_NaN();

using rows = std::vector<std::vector<std::uint32_t>>;

// kind -> rows of hexadecimal numbers (tools/make_base_vectors.py).
const std::map<std::string, rows>& vectors() {
  static const std::map<std::string, rows> all = [] {
    std::map<std::string, rows> m;
    std::ifstream file(TROUPE_TEST_DATA "/base/number_formats.txt");
    for (std::string line, kind; std::getline(file, line);) {
      std::istringstream in(line);
      in >> kind >> std::hex;
      std::vector<std::uint32_t> row;
      for (std::uint32_t v = 0; in >> v;)
        row.push_back(v);
      m[kind].push_back(std::move(row));
    }
    return m;
  }();
  return all;
}

} // namespace

BOOST_AUTO_TEST_SUITE(number_formats)

BOOST_AUTO_TEST_CASE(values_of_all_codes) {
  const auto& e4m3 = vectors().at("e4m3_values")[0];
  BOOST_REQUIRE(e4m3.size() == 256u);
  for (std::uint32_t c = 0; c < 256; ++c) {
    const float v = f32_from_e4m3(static_cast<std::uint8_t>(c));
    if ((c & 0x7f) == 0x7f)
      BOOST_TEST(std::isnan(v));
    else
      BOOST_TEST(float_bits(v) == e4m3[c]);
    BOOST_TEST(e4m3_from_f32(v) == c); // every code survives, NaN and -0 too
  }
  const auto& e2m1 = vectors().at("e2m1_values")[0];
  BOOST_REQUIRE(e2m1.size() == 16u);
  for (std::uint32_t c = 0; c < 16; ++c) {
    BOOST_TEST(float_bits(f32_from_e2m1(static_cast<std::uint8_t>(c))) == e2m1[c]);
    BOOST_TEST(e2m1_from_f32(f32_from_e2m1(static_cast<std::uint8_t>(c))) == c);
  }
  const auto& ue8m0 = vectors().at("ue8m0_values")[0];
  BOOST_REQUIRE(ue8m0.size() == 255u);
  for (std::uint32_t c = 0; c < 255; ++c) {
    BOOST_TEST(float_bits(f32_from_ue8m0(static_cast<std::uint8_t>(c))) == ue8m0[c]);
    if (c != 0)
      BOOST_TEST(ue8m0_from_f32(bits_float(ue8m0[c])) == c);
  }
  BOOST_TEST(std::isnan(f32_from_ue8m0(255)));
}

BOOST_AUTO_TEST_CASE(rounding_to_e4m3) {
  BOOST_REQUIRE(vectors().at("e4m3").size() > 2000u);
  for (const auto& r : vectors().at("e4m3"))
    BOOST_TEST(e4m3_from_f32(bits_float(r[0])) == r[1], bits_float(r[0]));
  BOOST_TEST(e4m3_from_f32(a_nan) == 0x7f);
  BOOST_TEST(e4m3_from_f32(-a_nan) == 0xff);
  BOOST_TEST(e4m3_from_f32(-0.0f) == 0x80);
}

BOOST_AUTO_TEST_CASE(rounding_to_e2m1) {
  BOOST_REQUIRE(vectors().at("e2m1").size() > 400u);
  for (const auto& r : vectors().at("e2m1"))
    BOOST_TEST(e2m1_from_f32(bits_float(r[0])) == r[1], bits_float(r[0]));
  BOOST_TEST(e2m1_from_f32(a_nan) == 7);
}

BOOST_AUTO_TEST_CASE(rounding_to_bf16) {
  BOOST_REQUIRE(vectors().at("bf16").size() > 900u);
  for (const auto& r : vectors().at("bf16"))
    BOOST_TEST(bf16_from_f32(bits_float(r[0])) == r[1]);
  for (std::uint32_t h = 0; h < 0x10000; ++h) {
    const float v = f32_from_bf16(static_cast<std::uint16_t>(h));
    BOOST_REQUIRE_EQUAL(float_bits(v), h << 16);
    if (!std::isnan(v))
      BOOST_REQUIRE_EQUAL(bf16_from_f32(v), h);
  }
  BOOST_TEST(bf16_from_f32(a_nan) == 0x7fc0);
  BOOST_TEST(bf16_from_f32(bits_float(0x7f800001)) == 0x7fc0); // must not become inf
  BOOST_TEST(bf16_from_f32(bits_float(0xffffffff)) == 0x7fc0); // must not wrap to 0
  BOOST_TEST(bf16_from_f32(inf) == 0x7f80);
}

BOOST_AUTO_TEST_CASE(scales) {
  BOOST_REQUIRE(vectors().at("scale").size() == 616u);
  for (const auto& r : vectors().at("scale")) {
    const float amax = bits_float(r[0]);
    BOOST_TEST(float_bits(pow2_ceil(amax)) == r[1], amax);
    BOOST_TEST(float_bits(fp8_scale(amax)) == r[2], amax);
    BOOST_TEST(float_bits(fp4_scale(amax)) == r[3], amax);
    BOOST_TEST(float_bits(fp4_kv_scale(amax)) == r[4], amax);
  }
}

BOOST_AUTO_TEST_CASE(whole_blocks) {
  BOOST_REQUIRE(vectors().at("block").size() == 40u);
  for (const auto& r : vectors().at("block")) {
    BOOST_REQUIRE(r.size() == 128u);
    const auto amax = [&](std::size_t from, std::size_t n) {
      float a = 0;
      for (std::size_t i = from; i < from + n; ++i)
        a = std::max(a, std::fabs(bits_float(r[i])));
      return a;
    };
    const float s8 = fp8_scale(amax(0, 32)), s4 = fp4_scale(amax(0, 32));
    for (std::size_t i = 0; i < 32; ++i) {
      const float v = bits_float(r[i]);
      BOOST_TEST(float_bits(fp8_round_trip(v, s8)) == r[32 + i]);
      BOOST_TEST(float_bits(fp4_round_trip(v, s4)) == r[64 + i]);
      BOOST_TEST(float_bits(fp4_round_trip(v, fp4_kv_scale(amax(i / 16 * 16, 16)))) == r[96 + i]);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
