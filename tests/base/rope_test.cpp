#include "runtime/base/rope.hpp"

#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

using namespace troupe;

namespace {

float hex_float(const std::string& s) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(std::strtoul(s.c_str(), nullptr, 16)));
}

// Distance in representable floats.
long distance(float a, float b) {
  const auto order = [](float v) {
    const std::int32_t i = std::bit_cast<std::int32_t>(v);
    return static_cast<long>(i < 0 ? INT32_MIN - i : i);
  };
  return std::labs(order(a) - order(b));
}

} // namespace

BOOST_AUTO_TEST_SUITE(rope)

BOOST_AUTO_TEST_CASE(frequencies_and_turns_of_the_reference) {
  const std::map<std::string, std::vector<float>> ours{
      {"plain", rope_frequencies(64, 10000)},
      {"compressed", rope_frequencies(64, 160000)},
      {"yarn_tiny", rope_frequencies(64, 160000, yarn_params{4, 32, 1, 4096})},
      {"yarn_flash", rope_frequencies(64, 160000, yarn_params{16, 32, 1, 65536})}};
  std::ifstream file(TROUPE_TEST_DATA "/base/rope.txt");
  BOOST_REQUIRE(file);
  int tables = 0, turns = 0, equal_frequencies = 0, equal_turns = 0;
  for (std::string line, kind, a, b, c, d, e; std::getline(file, line);) {
    std::istringstream in(line);
    in >> kind;
    if (kind == "freqs") {
      in >> a;
      for (const float f : ours.at(a)) {
        BOOST_REQUIRE(in >> b);
        BOOST_TEST(distance(f, hex_float(b)) <= 1);
        equal_frequencies += f == hex_float(b);
      }
      ++tables;
    } else {
      in >> a >> b >> c >> d >> e;
      const float angle = rope_angle(std::strtol(a.c_str(), nullptr, 16), hex_float(b));
      BOOST_TEST(angle == hex_float(c));
      float cosine = 0, sine = 0;
      rope_cos_sin(angle, cosine, sine);
      BOOST_TEST(distance(cosine, hex_float(d)) <= 1);
      BOOST_TEST(distance(sine, hex_float(e)) <= 1);
      equal_turns += cosine == hex_float(d) && sine == hex_float(e);
      ++turns;
    }
  }
  BOOST_TEST(tables == 4);
  BOOST_TEST(turns == 300);
  BOOST_TEST(equal_frequencies >= 120); // of 128: nearly all are the very same float
  BOOST_TEST(equal_turns >= 270);
}

BOOST_AUTO_TEST_CASE(cos_and_sin_are_correctly_rounded) {
  for (int i = 0; i < 200000; ++i) {
    const float angle = static_cast<float>(i) * 5.37f - 20000.0f + static_cast<float>(i % 7) * 1e-3f;
    float c = 0, s = 0;
    rope_cos_sin(angle, c, s);
    BOOST_REQUIRE_EQUAL(c, static_cast<float>(std::cos(static_cast<long double>(angle))));
    BOOST_REQUIRE_EQUAL(s, static_cast<float>(std::sin(static_cast<long double>(angle))));
  }
}

BOOST_AUTO_TEST_CASE(special_angles) {
  float c = 0, s = 0;
  rope_cos_sin(0.0f, c, s);
  BOOST_TEST(c == 1.0f);
  BOOST_TEST(s == 0.0f);
  rope_cos_sin(1e-20f, c, s);
  BOOST_TEST(c == 1.0f);
  BOOST_TEST(s == 1e-20f);
  rope_cos_sin(1.5707964f, c, s); // the float nearest to pi / 2
  BOOST_TEST(s == 1.0f);
  BOOST_TEST(c == -4.371139e-08f);
}

BOOST_AUTO_TEST_SUITE_END()
