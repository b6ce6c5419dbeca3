#include "runtime/kv/block_pool.hpp"
#include <boost/test/unit_test.hpp>
#include <map>
#include <random>

using namespace troupe;

namespace {

std::vector<std::int32_t> values(const std::vector<block_id>& ids) {
  std::vector<std::int32_t> v;
  for (const block_id id : ids)
    v.push_back(id.value);
  return v;
}

std::vector<std::int32_t> take(block_pool& pool, std::int32_t count) {
  std::vector<block_id> ids;
  BOOST_REQUIRE(pool.allocate(count, ids));
  return values(ids);
}

void give(block_pool& pool, std::vector<std::int32_t> list) {
  std::vector<block_id> ids;
  for (const std::int32_t v : list)
    ids.push_back(block_id{v});
  pool.release(ids);
}

using list = std::vector<std::int32_t>;

} // namespace

BOOST_AUTO_TEST_SUITE(block_pool_rules)

BOOST_AUTO_TEST_CASE(vectors_of_the_specification) {
  block_pool pool(6);
  BOOST_TEST(take(pool, 3) == (list{1, 2, 3}), boost::test_tools::per_element());
  give(pool, {1, 2}); // list 4 5 2 1
  BOOST_TEST(take(pool, 3) == (list{4, 5, 2}), boost::test_tools::per_element());
  pool.pin(block_id{5});
  give(pool, {4, 5});
  BOOST_TEST(pool.references(block_id{5}) == 1);
  BOOST_TEST(pool.free_count() == 2);
  BOOST_TEST(take(pool, 2) == (list{1, 4}), boost::test_tools::per_element());
  BOOST_TEST(pool.free_count() == 0);
  give(pool, {5}); // the list was empty
  BOOST_TEST(take(pool, 1) == (list{5}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(never_ok_later) {
  block_pool pool(6);
  BOOST_TEST((pool.can_allocate(6) == fit::never));
  BOOST_TEST((pool.can_allocate(5) == fit::ok));
  take(pool, 2);
  BOOST_TEST((pool.can_allocate(5) == fit::later));
  BOOST_TEST((pool.can_allocate(3) == fit::ok));
  std::vector<block_id> out;
  BOOST_TEST(!pool.allocate(4, out));
  BOOST_TEST(out.empty());
  BOOST_TEST(pool.free_count() == 3);
  BOOST_TEST(pool.usage() == 2.0 / 5);
  block_pool nothing(1);
  BOOST_TEST((nothing.can_allocate(1) == fit::never));
  BOOST_TEST((nothing.can_allocate(0) == fit::ok));
}

BOOST_AUTO_TEST_CASE(generations_rise_with_each_allocation) {
  block_pool pool(3);
  take(pool, 1);
  BOOST_TEST(pool.generation(block_id{1}) == 1u);
  BOOST_TEST(pool.generation(block_id{2}) == 0u);
  give(pool, {1});
  take(pool, 2); // 2, then 1 again
  BOOST_TEST(pool.generation(block_id{1}) == 2u);
  BOOST_TEST(pool.generation(block_id{2}) == 1u);
}

// Random allocations, pins and releases against a model made of a plain deque and a map of counts.
BOOST_AUTO_TEST_CASE(equals_a_plain_model_under_random_events) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    const std::int32_t n = 2 + static_cast<std::int32_t>(random() % 12);
    block_pool pool(n);
    std::vector<std::int32_t> free_list;
    for (std::int32_t i = 1; i < n; ++i)
      free_list.push_back(i);
    std::map<std::int32_t, std::int32_t> counts;
    for (int event = 0; event < 200; ++event) {
      const auto kind = random() % 3;
      if (kind == 0) {
        const std::int32_t m = static_cast<std::int32_t>(random() % 4);
        std::vector<block_id> got;
        const bool good = pool.allocate(m, got);
        BOOST_REQUIRE(good == (m <= static_cast<std::int32_t>(free_list.size())));
        for (const block_id b : got) {
          BOOST_REQUIRE(b.value == free_list.front());
          free_list.erase(free_list.begin());
          counts[b.value] = 1;
        }
      } else if (!counts.empty()) {
        const auto at = std::next(counts.begin(), static_cast<std::ptrdiff_t>(random() % counts.size()));
        if (kind == 1) {
          pool.pin(block_id{at->first});
          ++at->second;
        } else {
          give(pool, {at->first});
          if (--at->second == 0) {
            free_list.push_back(at->first);
            counts.erase(at);
          }
        }
      }
      BOOST_REQUIRE(pool.free_count() == static_cast<std::int32_t>(free_list.size()));
      BOOST_REQUIRE(pool.used_count() == static_cast<std::int32_t>(counts.size()));
      for (const auto& [id, count] : counts)
        BOOST_REQUIRE(pool.references(block_id{id}) == count);
    }
  }
}

BOOST_AUTO_TEST_CASE(blocks_of_positions) {
  BOOST_TEST(blocks_for(0) == 0);
  BOOST_TEST(blocks_for(1) == 1);
  BOOST_TEST(blocks_for(128) == 1);
  BOOST_TEST(blocks_for(129) == 2);
}

BOOST_AUTO_TEST_SUITE_END()
