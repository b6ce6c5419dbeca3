#include "runtime/base/reused_list.hpp"
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <vector>

namespace {

struct element {
  std::vector<int> values;
  int number = 5;
  void reset() {
    values.clear();
    number = 5;
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(reused_lists)

BOOST_AUTO_TEST_CASE(emptied_it_keeps_the_memory_of_its_elements) {
  troupe::reused_list<element> list;
  BOOST_TEST(list.empty());
  for (int i = 0; i < 3; ++i)
    list.add().values.assign(100, i);
  list.back().number = 9;
  const int* const memory = list[2].values.data();
  list.clear();
  BOOST_TEST(list.empty());
  BOOST_TEST((list.begin() == list.end()));
  list.add(), list.add();
  BOOST_TEST(list.size() == 2u);
  const element& third = list.add();
  BOOST_TEST(third.values.empty());
  BOOST_TEST(third.number == 5);
  BOOST_TEST((third.values.data() == memory));
}

BOOST_AUTO_TEST_CASE(it_holds_what_was_put_behind_the_last) {
  troupe::reused_list<element> list;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 10 + round; ++i)
      list.push_back({{i}, i});
    list.pop_back();
    const int sum = std::accumulate(list.begin(), list.end(), 0,
                                    [](int so_far, const element& e) { return so_far + e.number + e.values.at(0); });
    BOOST_TEST(sum == (9 + round) * (8 + round));
    BOOST_TEST(list.front().number == 0);
    BOOST_TEST(list.back().number == 8 + round);
    list.clear();
  }
}

BOOST_AUTO_TEST_SUITE_END()
