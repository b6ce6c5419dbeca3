#include "runtime/tokenizer/added_tokens.hpp"
#include "runtime/tokenizer/bpe.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <random>
#include <string>

using troupe::bpe;
using troupe::merge_rule;

namespace {

// The rule as it is stated, one merge at a time over the whole list.
std::vector<std::int32_t> merge_by_definition(const std::vector<merge_rule>& merges, std::vector<std::int32_t> ids) {
  for (;;) {
    std::size_t best_rank = merges.size(), best = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i)
      for (std::size_t rank = 0; rank < best_rank; ++rank)
        if (merges[rank].left == ids[i] && merges[rank].right == ids[i + 1]) {
          best_rank = rank;
          best = i;
        }
    if (best_rank == merges.size())
      return ids;
    ids[best] = merges[best_rank].merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

std::array<std::int32_t, 256> identity() {
  std::array<std::int32_t, 256> out{};
  for (std::size_t b = 0; b < 256; ++b)
    out[b] = static_cast<std::int32_t>(b);
  return out;
}

} // namespace

BOOST_AUTO_TEST_SUITE(bpe_merging)

BOOST_AUTO_TEST_CASE(equals_the_definition_on_random_merge_lists) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    // Tokens are strings over a small alphabet, so that pairs overlap and several splits give the same token.
    const unsigned letters = 1 + random() % 4;
    std::vector<std::string> spelling(256);
    std::map<std::string, std::int32_t> ids;
    for (unsigned b = 0; b < 256; ++b)
      ids[spelling[b] = std::string(1, static_cast<char>(b))] = static_cast<std::int32_t>(b);
    std::vector<std::int32_t> pool;
    for (unsigned c = 0; c < letters; ++c)
      pool.push_back('a' + static_cast<std::int32_t>(c));
    std::map<std::pair<std::int32_t, std::int32_t>, bool> known;
    std::vector<merge_rule> merges;
    for (int i = 0; i < 40; ++i) {
      const std::int32_t left = pool[random() % pool.size()], right = pool[random() % pool.size()];
      if (!known.emplace(std::pair(left, right), true).second)
        continue;
      const std::string joined = spelling[static_cast<std::size_t>(left)] + spelling[static_cast<std::size_t>(right)];
      const auto [at, is_new] = ids.emplace(joined, static_cast<std::int32_t>(spelling.size()));
      if (is_new) {
        spelling.push_back(joined);
        pool.push_back(at->second);
      }
      merges.push_back({left, right, at->second});
    }
    std::shuffle(merges.begin(), merges.end(), random); // ranks need not follow the order of construction
    bpe plain(identity(), merges), indexed(identity(), merges);
    std::vector<std::string_view> views(spelling.begin(), spelling.end());
    indexed.index_whole_pieces(views);
    troupe::bpe_scratch scratch;
    for (int i = 0; i < 60; ++i) {
      std::string piece(1 + random() % (i % 3 == 0 ? 300 : 20),
                        ' '); // on both sides of the border of the two algorithms
      for (char& c : piece)
        c = random() % 30 == 0 ? static_cast<char>(random() % 256) : static_cast<char>('a' + random() % letters);
      std::vector<std::int32_t> bytes(piece.size()), got, got_indexed;
      std::transform(piece.begin(), piece.end(), bytes.begin(), [](char c) { return static_cast<unsigned char>(c); });
      const auto want = merge_by_definition(merges, bytes);
      plain.encode(piece, scratch, got);
      indexed.encode(piece, scratch, got_indexed);
      BOOST_REQUIRE(got == want);
      BOOST_REQUIRE(got_indexed == want);
    }
  }
}

BOOST_AUTO_TEST_CASE(takes_the_leftmost_of_equal_pairs) {
  const std::vector<merge_rule> merges = {{'a', 'a', 300}};
  troupe::bpe_scratch scratch;
  for (const std::size_t n : {3u, 101u}) {
    std::vector<std::int32_t> out, want(n / 2, 300);
    want.push_back('a');
    bpe(identity(), merges).encode(std::string(n, 'a'), scratch, out);
    BOOST_TEST(out == want, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(leaves_out_tokens_that_merging_does_not_reach) {
  // "abc" has a token, but ab comes first and (ab, c) is no merge.
  const std::vector<merge_rule> merges = {{'a', 'b', 300}, {'b', 'c', 301}, {'a', 301, 302}};
  std::vector<std::string> text(303);
  text[300] = "ab", text[301] = "bc", text[302] = "abc";
  std::vector<std::string_view> views(text.begin(), text.end());
  bpe b(identity(), merges);
  b.index_whole_pieces(views);
  troupe::bpe_scratch scratch;
  std::vector<std::int32_t> out;
  b.encode("abc", scratch, out);
  BOOST_TEST(out == (std::vector<std::int32_t>{300, 'c'}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(added_tokens)

BOOST_AUTO_TEST_CASE(takes_leftmost_then_longest) {
  troupe::added_token_matcher m;
  m.add("<a", 1);
  m.add("<ab>", 2);
  m.add("b>c", 3);
  const auto at = [&m](std::string_view text, std::size_t from = 0) {
    const auto found = m.find(text, from);
    return std::vector<std::int64_t>{static_cast<std::int64_t>(found.start), static_cast<std::int64_t>(found.length),
                                     found.id};
  };
  BOOST_TEST(at("x<ab>c") == (std::vector<std::int64_t>{1, 4, 2}), boost::test_tools::per_element()); // not <a, not b>c
  BOOST_TEST(at("x<abc") == (std::vector<std::int64_t>{1, 2, 1}), boost::test_tools::per_element());  // falls back
  BOOST_TEST(at("x<ab>c", 2) == (std::vector<std::int64_t>{3, 3, 3}), boost::test_tools::per_element());
  BOOST_TEST(at("<<<ab") == (std::vector<std::int64_t>{2, 2, 1}), boost::test_tools::per_element());
  BOOST_TEST(at("a<b") == (std::vector<std::int64_t>{3, 0, -1}), boost::test_tools::per_element());
  BOOST_TEST(at("") == (std::vector<std::int64_t>{0, 0, -1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
