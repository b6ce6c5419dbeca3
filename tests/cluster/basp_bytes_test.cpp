#include "cluster/basp_bytes.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

using namespace troupe;

namespace {

std::vector<std::uint8_t> message(std::uint8_t kind, std::uint32_t length, std::size_t there) {
  std::vector<std::uint8_t> m(32 + there, 7);
  m[0] = kind;
  for (std::size_t i = 0; i < 4; ++i)
    m[4 + i] = static_cast<std::uint8_t>(length >> (24 - 8 * i));
  return m;
}

std::string verdict(const char* wrong) {
  return wrong == nullptr ? "" : wrong;
}

} // namespace

BOOST_AUTO_TEST_SUITE(bytes_of_basp)

BOOST_AUTO_TEST_CASE(messages_pass_however_they_are_cut) {
  std::vector<std::uint8_t> all;
  for (const auto& m : {message(1, 40, 40), message(6, 0, 0), message(2, 300, 300), message(5, 0, 0)})
    all.insert(all.end(), m.begin(), m.end());
  for (std::size_t piece = 1; piece <= all.size(); ++piece) {
    basp_bytes b;
    for (std::size_t at = 0; at < all.size(); at += piece) {
      BOOST_REQUIRE(b.take(std::span(all).subspan(at, std::min(piece, all.size() - at))) == nullptr);
      BOOST_REQUIRE((b.inside_a_message() || piece > 1 || at + 1 == 72 || at + 1 == 104 || at + 1 == 436 ||
                     at + 1 == all.size()));
    }
    BOOST_TEST(!b.inside_a_message());
  }
}

BOOST_AUTO_TEST_CASE(what_is_no_message_is_refused_with_its_header) {
  const auto first = [](const std::vector<std::uint8_t>& m) { return verdict(basp_bytes().take(m)); };
  BOOST_TEST(first(message(0, 40, 0)) == "it does not begin with a greeting");
  BOOST_TEST(first(message(2, 40, 0)) == "it does not begin with a greeting");
  BOOST_TEST(first(std::vector<std::uint8_t>(64, 'G')) == "it does not begin with a greeting");
  BOOST_TEST(first(message(1, 0, 0)) == "a greeting without a word");
  BOOST_TEST(first(message(1, basp_bytes::longest_greeting + 1, 0)) == "a message that is too long");
  BOOST_TEST(first(message(1, basp_bytes::longest_greeting, 0)) == "");
  const auto second = [](const std::vector<std::uint8_t>& m) {
    basp_bytes b;
    BOOST_REQUIRE(b.take(message(1, 9, 9)) == nullptr);
    return verdict(b.take(m));
  };
  BOOST_TEST(second(message(7, 0, 0)) == "a message of no known kind");
  BOOST_TEST(second(message(0, 9, 0)) == "a message of no known kind");
  BOOST_TEST(second(message(1, 0, 0)) == "a greeting without a word");
  BOOST_TEST(second(message(2, ~std::uint32_t{0}, 0)) == "a message that is too long");
  BOOST_TEST(second(message(2, basp_bytes::longest_message, 0)) == "");
}

BOOST_AUTO_TEST_CASE(who_is_no_node_has_nothing_passed_on) {
  basp_bytes node, client;
  client.refuse_routed();
  for (basp_bytes* b : {&node, &client}) {
    BOOST_TEST(verdict(b->take(message(1, 9, 9))) == "");
    BOOST_TEST(verdict(b->take(message(2, 9, 9))) == "");
  }
  BOOST_TEST(verdict(node.take(message(3, 9, 9))) == "");
  BOOST_TEST(verdict(client.take(message(3, 9, 9))) == "a message for another process, from a key that is no node's");
}

BOOST_AUTO_TEST_SUITE_END()
