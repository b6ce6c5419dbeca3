#include "runtime/base/base64.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

namespace {

std::vector<std::uint8_t> bytes_of(std::string_view text) {
  return {text.begin(), text.end()};
}

} // namespace

BOOST_AUTO_TEST_SUITE(base64)

BOOST_AUTO_TEST_CASE(vectors_of_rfc_4648) {
  for (const auto& [plain, text] : {std::pair("", ""),
                                    {"f", "Zg=="},
                                    {"fo", "Zm8="},
                                    {"foo", "Zm9v"},
                                    {"foob", "Zm9vYg=="},
                                    {"fooba", "Zm9vYmE="},
                                    {"foobar", "Zm9vYmFy"}}) {
    BOOST_TEST(base64_of(bytes_of(plain)) == text);
    BOOST_TEST((bytes_of_base64(text) == bytes_of(plain)));
  }
  BOOST_TEST(base64_of(std::vector<std::uint8_t>{0xFB, 0xEF, 0xFF}) == "++//");
}

BOOST_AUTO_TEST_CASE(every_byte_comes_back) {
  std::vector<std::uint8_t> bytes;
  for (int i = 0; i < 256; ++i) {
    bytes.push_back(static_cast<std::uint8_t>(i * 7 + 3));
    BOOST_TEST((bytes_of_base64(base64_of(bytes)) == bytes));
  }
}

BOOST_AUTO_TEST_CASE(other_texts_are_refused) {
  for (const char* text :
       {"Zg", "Zg=", "Zg===", "====", "Z===", "Zm9v\n", "Zm9_", "Zm 9", "Zh==", "Zm9=", "=Zg=", "Zg==Zg=="})
    BOOST_TEST(!bytes_of_base64(text).has_value(), text);
}

BOOST_AUTO_TEST_SUITE_END()
