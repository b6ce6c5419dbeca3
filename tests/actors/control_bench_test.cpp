#include "actors/control_bench.hpp"
#include <boost/test/unit_test.hpp>
#include <iostream>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(control_path)

// Only that the whole path runs and counts; its time is printed, never judged here.
BOOST_AUTO_TEST_CASE(steps_are_counted) {
  for (const int sequences : {1, 8}) {
    const auto f = measure_control_path(TROUPE_SOURCE_DIR "/models/tiny-v41/tokenizer.json", sequences, 500);
    BOOST_TEST(f.steps >= 500);
    BOOST_TEST(f.mean_us > 0);
    BOOST_TEST(f.p50_us <= f.p99_us);
    std::cout << "control path, " << f.sequences << " sequences: mean " << f.mean_us << " us, p50 " << f.p50_us
              << ", p99 " << f.p99_us << '\n';
  }
}

BOOST_AUTO_TEST_SUITE_END()
