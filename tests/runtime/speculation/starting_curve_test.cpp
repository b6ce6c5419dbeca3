#include "runtime/speculation/starting_curve.hpp"

#include "tests/support/process.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <map>
#include <numeric>

using namespace troupe;

namespace {

constexpr std::int64_t now = 1'700'000'000;

// A machine whose steps take these times; the first one of a size takes longer.
struct machine {
  std::map<std::int32_t, int> runs;
  double spent = 0;
  double truth(std::int32_t rows) const { return 1 + .1 * rows + (rows > 16 ? .05 * (rows - 16) : 0); }
  step_timer timer() {
    return [this](std::int32_t rows) {
      const double ms = truth(rows) * (++runs[rows] == 1 ? 5 : 1);
      spent += ms;
      return ms;
    };
  }
};

cost_key key_of(std::int32_t most) {
  cost_key key{"m", "d", std::vector<std::int32_t>(static_cast<std::size_t>(most))};
  std::iota(key.sizes.begin(), key.sizes.end(), 1);
  return key;
}

bool has(const starting_curve& c, const std::string& words) {
  for (const std::string& n : c.notes)
    if (n.find(words) != std::string::npos)
      return true;
  return false;
}

} // namespace

BOOST_AUTO_TEST_SUITE(speculation_starting_curve)

BOOST_AUTO_TEST_CASE(two_sizes_are_enough_and_more_are_timed_while_there_is_time) {
  const cost_key key = key_of(64);
  machine slow;
  starting_curve c = make_starting_curve("", key, slow.timer(), now, 26);
  BOOST_TEST((slow.runs == std::map<std::int32_t, int>{{1, 3}, {16, 3}}));
  BOOST_REQUIRE(c.curve.size() == 64u);
  BOOST_TEST(c.curve.front().ms == slow.truth(1), boost::test_tools::tolerance(1e-12));
  BOOST_TEST(c.curve[15].ms == slow.truth(16), boost::test_tools::tolerance(1e-12));
  BOOST_TEST(c.curve.back().ms == 7.4, boost::test_tools::tolerance(1e-12)); // as if it went on like that
  BOOST_TEST(has(c, "through 2 timed sizes"));

  machine late; // no step begins when the time is over; the one that warms up does not count
  c = make_starting_curve("", key, late.timer(), now, 22);
  BOOST_TEST((late.runs == std::map<std::int32_t, int>{{1, 3}, {16, 2}}));
  BOOST_TEST(c.curve.size() == 64u);
  machine later;
  c = make_starting_curve("", key, later.timer(), now, 10);
  BOOST_TEST((later.runs == std::map<std::int32_t, int>{{1, 3}, {16, 1}}));
  BOOST_TEST(c.curve.empty());
  BOOST_TEST(has(c, "from the first steps"));

  machine quick;
  c = make_starting_curve("", key, quick.timer(), now, 1000);
  BOOST_TEST(quick.spent < 1100); // a first run may take longer than was reckoned
  BOOST_TEST(quick.runs.size() > 8u);
  for (const timed_size& t : c.curve)
    BOOST_TEST(std::abs(t.ms - quick.truth(t.rows)) < .02 * quick.truth(t.rows));

  machine unlimited; // ends when every size is known
  c = make_starting_curve("", key_of(9), unlimited.timer(), now, 1e9);
  BOOST_TEST(unlimited.runs.size() == 9u);
  machine one;
  BOOST_TEST(make_starting_curve("", key_of(1), one.timer(), now).curve.size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_file_saves_the_measuring_and_a_wrong_one_is_named_and_replaced) {
  const test_support::temporary_folder folder;
  const std::string file = folder / "curve.json";
  machine first, second, third, fourth;
  const starting_curve measured = make_starting_curve(file, key_of(16), first.timer(), now);
  BOOST_TEST(!has(measured, "measured again"));
  const starting_curve stored = make_starting_curve(file, key_of(16), second.timer(), now);
  BOOST_TEST(second.runs.empty());
  BOOST_TEST(has(stored, "from " + file));
  BOOST_REQUIRE(stored.curve.size() == 16u);
  for (std::size_t i = 0; i < 16; ++i)
    BOOST_TEST(stored.curve[i].ms == measured.curve[i].ms);
  machine late, after_it;
  const std::int64_t later = now + 2 * cost_file_life;
  BOOST_TEST(has(make_starting_curve(file, key_of(16), late.timer(), later), "last hour"));
  BOOST_TEST(!late.runs.empty());
  make_starting_curve(file, key_of(16), after_it.timer(), later);
  BOOST_TEST(after_it.runs.empty()); // the file was written again
  BOOST_TEST(has(make_starting_curve(file, key_of(8), third.timer(), later), "other sizes"));
  BOOST_TEST(!third.runs.empty());
  make_starting_curve(file, key_of(8), fourth.timer(), later);
  BOOST_TEST(fourth.runs.empty()); // the file holds the new sizes
  machine fifth;
  const starting_curve lost = make_starting_curve(folder / "none/curve.json", key_of(8), fifth.timer(), now);
  BOOST_TEST(lost.curve.size() == 8u);
  BOOST_TEST(has(lost, "was not kept"));
}

BOOST_AUTO_TEST_CASE(without_times_there_is_no_curve) {
  const starting_curve c = make_starting_curve(
      "", key_of(8), [](std::int32_t) { return 0.0; }, now);
  BOOST_TEST(c.curve.empty());
  BOOST_TEST(has(c, "too few could be timed"));
  BOOST_TEST(make_starting_curve(
                 "", {}, [](std::int32_t) { return 1.0; }, now)
                 .notes.empty());
}

BOOST_AUTO_TEST_SUITE_END()
