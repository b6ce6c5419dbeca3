#include "devices/cpu/thread_pool.hpp"
#include "kernels/cpu/instruction_set.hpp"
#include "runtime/base/result.hpp"
#include "tests/devices/op_cases.hpp"
#include "tests/support/sanitizers.hpp"
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <set>
#include <thread>

using namespace troupe;
using namespace troupe::test;

namespace {

struct only_instruction_set {
  explicit only_instruction_set(const std::string& name) { cpu::use_instruction_set(name); }
  ~only_instruction_set() { cpu::use_instruction_set(""); }
};

void expect_reference_bits(const op_case& c, int seeds) {
  const auto reference = make_device("reference", {});
  std::vector<std::unique_ptr<device>> cpus;
  for (const int threads : {1, 2, 3})
    cpus.push_back(make_device("cpu", {threads, {}}));
  std::set<std::string> seen;
  const auto sets = cpu::instruction_sets();
  for (int seed = 0; seed < seeds; ++seed) {
    const bytes want = c.run(*reference, static_cast<std::uint64_t>(seed));
    BOOST_REQUIRE(!want.empty());
    for (std::size_t i = 0; i < sets.size(); ++i) {
      const only_instruction_set only(sets[i]);
      BOOST_REQUIRE(cpu::instruction_set() == sets[i]);
      // every thread count with the best instruction set, one with each of the others
      for (std::size_t d = 0; d < cpus.size(); ++d) {
        if (i > 0 && d != (static_cast<std::size_t>(seed) + i) % cpus.size())
          continue;
        const std::string which = std::string(c.name) + " seed " + std::to_string(seed) + " " + cpus[d]->description();
        seen.insert(cpus[d]->description());
        const bytes have = c.run(*cpus[d], static_cast<std::uint64_t>(seed));
        BOOST_REQUIRE_MESSAGE(have.size() == want.size(), which);
        if (std::memcmp(have.data(), want.data(), want.size()) != 0) {
          const auto at = std::mismatch(have.begin(), have.end(), want.begin()).first - have.begin();
          BOOST_FAIL(which << ": differs from byte " << at << " of " << want.size());
        }
      }
    }
  }
  BOOST_TEST_MESSAGE(c.name << ": " << seen.size() << " combinations");
  BOOST_TEST(seen.size() == 3 * sets.size());
}

void expect_reference_bits(const char* name) {
  for (const op_case& c : all_op_cases)
    if (std::string(c.name) == name)
      expect_reference_bits(c, test::by_build(c.seeds, 3, 3));
}

} // namespace

BOOST_AUTO_TEST_SUITE(cpu_device_bits)
BOOST_AUTO_TEST_CASE(linear) {
  expect_reference_bits("linear");
}
BOOST_AUTO_TEST_CASE(experts) {
  expect_reference_bits("experts");
}
BOOST_AUTO_TEST_CASE(attention) {
  expect_reference_bits("attention");
}
BOOST_AUTO_TEST_CASE(index) {
  expect_reference_bits("index");
}
BOOST_AUTO_TEST_CASE(trunk) {
  expect_reference_bits("trunk");
}
BOOST_AUTO_TEST_CASE(rows) {
  expect_reference_bits("rows");
}
BOOST_AUTO_TEST_CASE(route) {
  expect_reference_bits("route");
}
BOOST_AUTO_TEST_CASE(caches) {
  expect_reference_bits("caches");
}
BOOST_AUTO_TEST_CASE(tables) {
  expect_reference_bits("tables");
}
BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(cpu_device)

BOOST_AUTO_TEST_CASE(names_and_options) {
  const auto d = make_device("cpu", {2, {}});
  BOOST_TEST(d->name() == "cpu");
  BOOST_TEST(d->numerics_id() == make_device("reference", {})->numerics_id());
  BOOST_TEST(d->description().find("2 threads") != std::string::npos);
  BOOST_CHECK_THROW((void)make_device("cpu", {-1, {}}), config_error);
  BOOST_CHECK_THROW((void)make_device("cpu", {3, {0, 1}}), config_error);
  BOOST_CHECK_THROW((void)make_device("cpu", {1, {-2}}), config_error);
  BOOST_TEST(make_device("cpu", {0, {0}})->description().find("1 thread") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(objects_of_another_device_are_refused) {
  const auto reference = make_device("reference", {}), cpu = make_device("cpu", {1, {}});
  random_source r(1);
  const random_weight w(r, weight_format::f32, 4, 4);
  const auto theirs = reference->pack(w.source);
  std::vector<float> x(4), out(4);
  linear_args a;
  a.x = at(std::as_const(x));
  a.w = theirs.get();
  a.rows = 1;
  a.out = at(out);
  BOOST_CHECK_THROW(cpu->ops().linear(*cpu->make_stream(), a), device_error);
  const auto mine = cpu->pack(w.source);
  a.w = mine.get();
  a.groups = 3;
  BOOST_CHECK_THROW(cpu->ops().linear(*cpu->make_stream(), a), device_error);
  weight_source bad = w.source;
  bad.cols = 5;
  BOOST_CHECK_THROW((void)cpu->pack(bad), device_error);
}

// One row gives the same bits alone and in any company.
BOOST_AUTO_TEST_CASE(rows_do_not_influence_one_another) {
  const auto d = make_device("cpu", {2, {}});
  random_source r(5);
  for (const weight_format f : all_weight_formats) {
    const int rows = 37, outputs = 200, cols = 384;
    const random_weight w(r, f, outputs, cols);
    const auto packed = d->pack(w.source);
    const std::vector<float> x = r.values(rows * cols);
    std::vector<float> all(rows * outputs), one(outputs);
    linear_args a;
    a.w = packed.get();
    a.x = at(x);
    a.rows = rows;
    a.out = at(all);
    const auto s = d->make_stream();
    d->ops().linear(*s, a);
    a.rows = 1;
    a.out = at(one);
    for (int i = 0; i < rows; ++i) {
      a.x = at(x) + i * cols;
      d->ops().linear(*s, a);
      BOOST_TEST(std::memcmp(one.data(), all.data() + i * outputs, outputs * sizeof(float)) == 0);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(thread_pool_loops)

BOOST_AUTO_TEST_CASE(every_chunk_runs_once) {
  for (const int threads : {1, 2, 3, 5}) {
    thread_pool pool(threads);
    BOOST_TEST(pool.threads() == threads);
    for (int round = 0; round < 3000; ++round) {
      const int chunks = round % 17;
      std::vector<int> hits(static_cast<std::size_t>(chunks), 0);
      std::atomic<bool> good{true};
      pool.run(chunks, [&](int c, int worker) {
        ++hits[static_cast<std::size_t>(c)];
        if (worker < 0 || worker >= threads)
          good = false;
      });
      BOOST_REQUIRE(good);
      for (const int h : hits)
        BOOST_REQUIRE(h == 1);
    }
  }
}

BOOST_AUTO_TEST_CASE(sleeping_workers_wake) {
  thread_pool pool(3);
  for (int round = 0; round < 30; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1)); // longer than the workers spin
    std::atomic<int> sum{0};
    pool.run(8, [&](int c, int) { sum += c; });
    BOOST_TEST(sum == 28);
  }
}

BOOST_AUTO_TEST_CASE(calls_from_several_threads) {
  thread_pool pool(2);
  std::vector<std::thread> callers;
  std::atomic<int> total{0};
  for (int t = 0; t < 3; ++t)
    callers.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        std::atomic<int> mine{0};
        pool.run(5, [&](int c, int) { mine += c + 1; });
        total += mine;
      }
    });
  for (std::thread& t : callers)
    t.join();
  BOOST_TEST(total == 3 * 500 * 15);
}

BOOST_AUTO_TEST_SUITE_END()
