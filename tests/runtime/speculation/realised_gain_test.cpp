#include "runtime/speculation/realised_gain.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(speculation_realised_gain)

BOOST_AUTO_TEST_CASE(nothing_observed_changes_nothing) {
  realised_gain g;
  BOOST_TEST(g.factor(8) == 1);
  g.observe(8, 0, 5, 8, 5); // nothing was foretold
  g.observe(8, 20, 0, 8, 5);
  g.observe(8, 20, 5, 8, 0);
  BOOST_TEST(g.factor(8) == 1);
}

// Tokens 10 % fewer and time 5 % longer than foretold.
BOOST_AUTO_TEST_CASE(what_came_is_believed_the_more_the_more_blocks_came) {
  constexpr double ratio = .9 / 1.05;
  realised_gain g;
  g.observe(8, 20, 5, 18, 5.25);
  BOOST_TEST(g.factor(8) == 1 + 7. / 8 * 8 / (8 + 128) * (ratio - 1), boost::test_tools::tolerance(1e-12));
  for (int i = 0; i < 10000; ++i)
    g.observe(8, 20, 5, 18, 5.25);
  BOOST_TEST(g.factor(8) == 1 + 7. / 8 * 1024 / (1024 + 128) * (ratio - 1), boost::test_tools::tolerance(1e-9));
  const double before = g.factor(8);
  g.forget_half();
  BOOST_TEST(g.factor(8) == 1 + 7. / 8 * 512 / (512 + 128) * (ratio - 1), boost::test_tools::tolerance(1e-9));
  BOOST_TEST(g.factor(8) > before);
}

// One sequence shows how hard its text is, which its confidences tell already.
BOOST_AUTO_TEST_CASE(one_sequence_says_nothing) {
  realised_gain g;
  for (int i = 0; i < 1000; ++i)
    g.observe(1, 3, 5, 2, 5);
  BOOST_TEST(g.factor(1) == 1);
  BOOST_TEST(g.factor(2) < .9);
}

// More than was foretold: luck, or a machine that is faster at present.
BOOST_AUTO_TEST_CASE(more_than_foretold_is_not_expected_again) {
  realised_gain g;
  for (int i = 0; i < 1000; ++i)
    g.observe(8, 20, 5, 24, 4);
  BOOST_TEST(g.factor(8) == 1);
}

// A process that was stopped, say: medians of costs do not hear of it either.
BOOST_AUTO_TEST_CASE(one_step_out_of_all_proportion_says_little) {
  realised_gain g;
  for (int i = 0; i < 1000; ++i)
    g.observe(8, 20, 1, 20, 1);
  g.observe(8, 20, 1, 20, 2000);
  BOOST_TEST(g.factor(8) > .99);
  BOOST_TEST(g.factor(8) < 1);
}

// Newest blocks count: after as many again as the window the old ones have less than half a say.
BOOST_AUTO_TEST_CASE(what_is_long_ago_fades) {
  realised_gain g;
  for (int i = 0; i < 1000; ++i)
    g.observe(64, 160, 5, 80, 5);
  BOOST_TEST(g.factor(64) < .6);
  for (int i = 0; i < 16; ++i)
    g.observe(64, 160, 5, 160, 5);
  BOOST_TEST(g.factor(64) > .75);
  for (int i = 0; i < 200; ++i)
    g.observe(64, 160, 5, 160, 5);
  BOOST_TEST(g.factor(64) > .999);
}

BOOST_AUTO_TEST_SUITE_END()
