#include "cluster/message_window.hpp"
#include <boost/test/unit_test.hpp>
#include <vector>

using namespace troupe;

namespace {

struct recorded {
  message_window window;
  std::vector<std::uint64_t> left; // keys, in the order in which they were sent
  explicit recorded(std::size_t limit) : window(limit) {}
  void send(std::uint64_t key) {
    window.send(key, [this, key] { left.push_back(key); });
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(message_windows)

BOOST_AUTO_TEST_CASE(what_is_beyond_the_limit_goes_in_order_as_answers_come) {
  recorded r(3);
  for (std::uint64_t key = 0; key < 6; ++key)
    r.send(key);
  BOOST_TEST(r.left == (std::vector<std::uint64_t>{0, 1, 2}), boost::test_tools::per_element());
  BOOST_TEST(r.window.held_so_far() == 3u);
  r.window.answered(1);
  r.window.answered(1); // once is enough
  BOOST_TEST(r.left.back() == 3u);
  r.window.answered(0);
  r.window.answered(2);
  BOOST_TEST(r.left == (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5}), boost::test_tools::per_element());
  r.send(6);
  BOOST_TEST(r.left.size() == 6u);
  BOOST_TEST(r.window.held_so_far() == 4u);
}

BOOST_AUTO_TEST_CASE(what_nobody_waits_for_any_more_is_not_sent) {
  recorded r(1);
  for (std::uint64_t key = 0; key < 4; ++key)
    r.send(key);
  r.window.answered(1);
  r.window.answered(2);
  r.window.answered(0);
  BOOST_TEST(r.left == (std::vector<std::uint64_t>{0, 3}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
