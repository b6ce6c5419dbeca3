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

// Every branch ends, some by an abort; a tenth, the half and the end are told.
BOOST_AUTO_TEST_CASE(a_soak_ends_every_request) {
  int looks = 0;
  const auto f = soak_process(TROUPE_SOURCE_DIR "/models/tiny-v41/tokenizer.json", 600, [&] { ++looks; });
  BOOST_TEST(looks == 3);
  BOOST_TEST(f.branches >= 600u);
  BOOST_TEST(f.branches <= 700u);
  BOOST_TEST(f.aborts > 0u);
}

// That every step of the device is seen, with one and with two steps out, without drafts and with them; the waiting is
// printed, never judged here.
BOOST_AUTO_TEST_CASE(gaps_are_counted) {
  for (const auto& [async, nextn] : {std::pair{false, 0}, {true, 0}, {true, 5}}) {
    const auto f = measure_idle_gap(TROUPE_SOURCE_DIR "/models/tiny-v41/tokenizer.json", 4, nextn, 100, 200, async);
    BOOST_TEST(f.gaps >= 95); // all sequences together, or some before the others
    BOOST_TEST(f.gaps <= 4 * 100);
    BOOST_TEST(f.p50_us >= 0);
    BOOST_TEST(f.p50_us <= f.p99_us);
    std::cout << "idle gap, async " << async << ", drafts " << nextn << ": mean " << f.mean_us << " us, p50 "
              << f.p50_us << ", p99 " << f.p99_us << '\n';
  }
}

BOOST_AUTO_TEST_SUITE_END()
