#include "runtime/request/stop.hpp"

#include "runtime/base/noise.hpp"

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

using namespace troupe;

namespace {

struct ending {
  std::string text, stop; // stop: "-" if none
};

// Feeds token texts one by one; the streamed text must be all that a reader ever sees.
ending run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces, int min_tokens = 0) {
  stop_scanner s(stops, min_tokens);
  ending e{"", "-"};
  for (const std::string& piece : pieces) {
    const auto step = s.feed(piece);
    e.text += step.text;
    if (step.stop)
      return {e.text, s.stop_string(*step.stop)};
  }
  const auto last = s.finish();
  e.text += last.text;
  return e;
}

void check(const ending& e, const std::string& text, const std::string& stop) {
  BOOST_TEST(e.text == text);
  BOOST_TEST(e.stop == stop);
}

} // namespace

BOOST_AUTO_TEST_SUITE(request_stop)

BOOST_AUTO_TEST_CASE(text_ends_before_the_match) {
  check(run({"END"}, {"abc E", "N", "D more"}), "abc ", "END");
  check(run({"END"}, {"ENDabc"}), "", "END");
  check(run({"END"}, {"abc EN"}), "abc EN", "-");
  check(run({"END"}, {"abc ENEND"}), "abc EN", "END");
  check(run({}, {"a", "b"}), "ab", "-");
  check(run({"\n\n"}, {"a\n", "b\n", "\nc"}), "a\nb", "\n\n");
}

BOOST_AUTO_TEST_CASE(the_first_to_complete_wins) {
  check(run({"cdef", "d"}, {"abcdefg"}), "abc", "d");
  check(run({"bcd", "c"}, {"abcd"}), "ab", "c");
  check(run({"bc", "c"}, {"abcd"}), "a", "bc"); // equal ends: first in the list
  check(run({"c", "bc"}, {"abcd"}), "ab", "c");
  check(run({"x", "ab"}, {"a", "bx"}), "", "ab");
}

BOOST_AUTO_TEST_CASE(text_is_held_back_only_while_it_may_match) {
  stop_scanner s({"stop!", "sto?"});
  BOOST_TEST(s.feed("a sto").text == "a ");
  BOOST_TEST(s.feed("p").text == "");
  BOOST_TEST(s.feed(" ").text == "stop ");
  BOOST_TEST(s.feed("s").text == "");
  BOOST_TEST(s.feed("st").text == "s");
  const auto end = s.feed("o?rest");
  BOOST_TEST(end.text == "");
  BOOST_REQUIRE(end.stop.has_value());
  BOOST_TEST(*end.stop == 1u);
  stop_scanner t({"aab"});
  BOOST_TEST(t.feed("aaa").text == "a");
  BOOST_TEST(*t.feed("b").stop == 0u);
}

BOOST_AUTO_TEST_CASE(matches_count_from_min_tokens_on) {
  check(run({"b"}, {"a", "b", "c", "b", "d"}, 3), "abc", "b"); // completed in token 2: ignored
  check(run({"b"}, {"a", "b", "c", "b", "d"}, 2), "a", "b");
  check(run({"bcb"}, {"a", "b", "c", "b", "d"}, 4), "a", "bcb"); // began early, completes in time
  check(run({"bcb"}, {"a", "b", "c", "b", "d"}, 5), "abcbd", "-");
  check(run({"b"}, {"bb", "xb"}, 2), "bbx", "b");
}

BOOST_AUTO_TEST_CASE(late_text_can_still_stop) {
  stop_scanner s({"ab"});
  s.feed("xa");
  const auto end = s.finish("b");
  BOOST_TEST(end.text == "");
  BOOST_TEST(end.stop.has_value());
}

// Any cutting of any text: the same end as a search over the whole text, and nothing shown too early or too late.
BOOST_AUTO_TEST_CASE(every_cutting_gives_the_first_completed_match) {
  int stopped = 0;
  for (std::uint32_t round = 0; round < 4000; ++round) {
    const auto pick = [&](std::uint32_t k, std::uint32_t n) { return philox(11, k, round, 0, 0).w[0] % n; };
    std::string text;
    for (std::uint32_t i = 0; i < 30; ++i)
      text += static_cast<char>('a' + pick(i, 2 + round % 3));
    std::vector<std::string> stops;
    for (std::uint32_t k = 0; k < 1 + pick(100, 3); ++k) {
      stops.emplace_back();
      for (std::uint32_t i = 0; i < 1 + pick(200 + k, 6); ++i)
        stops.back() += static_cast<char>('a' + pick(300 + 10 * k + i, 2 + round % 3));
    }
    std::size_t best_end = std::string::npos, winner = 0;
    for (std::size_t k = 0; k < stops.size(); ++k)
      if (const std::size_t at = text.find(stops[k]); at != std::string::npos && at + stops[k].size() < best_end)
        best_end = at + stops[k].size(), winner = k;
    stop_scanner s(stops);
    std::string seen;
    bool ended = false;
    std::uint32_t piece = 400;
    for (std::size_t at = 0; at < text.size() && !ended;) {
      const std::size_t n = std::min<std::size_t>(pick(piece++, 5), text.size() - at);
      const auto step = s.feed(std::string_view{text}.substr(at, n));
      at += n;
      seen += step.text;
      ended = step.stop.has_value();
      if (ended) {
        BOOST_REQUIRE_EQUAL(seen, text.substr(0, best_end - stops[winner].size()));
        BOOST_REQUIRE_EQUAL(*step.stop, winner);
        ++stopped;
        break;
      }
      // held back: exactly the longest tail that is a proper prefix of a stop string
      std::size_t keep = 0;
      for (const std::string& stop : stops)
        for (std::size_t k = 1; k < stop.size() && k <= at; ++k)
          if (text.compare(at - k, k, stop, 0, k) == 0)
            keep = std::max(keep, k);
      BOOST_REQUIRE_EQUAL(seen, text.substr(0, at - keep));
    }
    if (!ended) {
      BOOST_REQUIRE_EQUAL(best_end, std::string::npos);
      BOOST_REQUIRE_EQUAL(seen + s.finish().text, text);
    }
  }
  BOOST_TEST(stopped > 1000);
  BOOST_TEST(stopped < 3990);
}

BOOST_AUTO_TEST_SUITE_END()
