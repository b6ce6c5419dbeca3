#include "runtime/base/sha256.hpp"

#include <boost/test/unit_test.hpp>
#include <string>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(sha256_hash)

BOOST_AUTO_TEST_CASE(fips_vectors) {
  BOOST_TEST(to_hex(sha256_of("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  BOOST_TEST(to_hex(sha256_of("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  BOOST_TEST(to_hex(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
             "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  BOOST_TEST(to_hex(sha256_of(
                 "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsm"
                 "nopqrstnopqrstu")) == "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  BOOST_TEST(to_hex(sha256_of(std::string(1000000, 'a'))) ==
             "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

BOOST_AUTO_TEST_CASE(pieces_equal_the_whole) {
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += static_cast<char>(i * 37);
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    sha256 h;
    h.update(std::string_view{text}.substr(0, cut));
    h.update(std::string_view{text}.substr(cut));
    BOOST_REQUIRE(h.finish() == sha256_of(text));
  }
}

BOOST_AUTO_TEST_CASE(u64_is_little_endian) {
  sha256 h;
  h.update_u64(0x0807060504030201ull);
  BOOST_TEST((h.finish() == sha256_of(std::string_view{"\1\2\3\4\5\6\7\10", 8})));
}

BOOST_AUTO_TEST_SUITE_END()
