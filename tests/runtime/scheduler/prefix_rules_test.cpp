#include "runtime/kv/kv_turn.hpp"
#include "runtime/scheduler/limits.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(prefix_rules)

BOOST_AUTO_TEST_CASE(hit_caps) { // exactness.md, vectors T9
  const std::int32_t lengths[] = {267, 268, 700, 1024};
  const std::int32_t compact[] = {0, 128, 512, 768}, exact[] = {0, 0, 128, 384}, off[] = {256, 256, 640, 896};
  for (int i = 0; i < 4; ++i) {
    BOOST_TEST(hit_cap(yoco_mode::compact, lengths[i], 140) == compact[i]);
    BOOST_TEST(hit_cap(yoco_mode::mask, lengths[i], 140) == compact[i]);
    BOOST_TEST(hit_cap(yoco_mode::exact, lengths[i], 521) == exact[i]);
    BOOST_TEST(hit_cap(yoco_mode::off, lengths[i], 140) == off[i]);
  }
  for (std::int32_t length = 1; length < 600; ++length)
    BOOST_TEST(hit_cap(yoco_mode::off, length, 140) < length); // a row is left to draw from
}

BOOST_AUTO_TEST_CASE(snapshots_lie_at_the_end_and_at_the_interval) {
  BOOST_TEST(next_snapshot(0, 128, 0) == 0);
  BOOST_TEST(next_snapshot(0, 129, 0) == 128);
  BOOST_TEST(next_snapshot(128, 129, 0) == 0);
  BOOST_TEST(next_snapshot(0, 1000, 0) == 896);
  BOOST_TEST(next_snapshot(0, 1000, 256) == 256);
  BOOST_TEST(next_snapshot(256, 1000, 256) == 512);
  BOOST_TEST(next_snapshot(300, 1000, 256) == 512);
  BOOST_TEST(next_snapshot(768, 1000, 256) == 896);
  BOOST_TEST(next_snapshot(896, 1000, 256) == 0);
  BOOST_TEST(next_snapshot(0, 1025, 256) == 256);
  BOOST_TEST(next_snapshot(768, 1025, 256) == 1024);
  const std::vector<std::int32_t> checkpoints{100, 200, 255, 256, 700, 999, 4000};
  BOOST_TEST(next_snapshot(0, 1000, 0, 1, checkpoints) == 128); // 100 has no whole block before it
  BOOST_TEST(next_snapshot(128, 1000, 0, 1, checkpoints) == 256);
  BOOST_TEST(next_snapshot(130, 1000, 0, 1, checkpoints) == 256);
  BOOST_TEST(next_snapshot(256, 1000, 0, 1, checkpoints) == 640);
  BOOST_TEST(next_snapshot(256, 1000, 512, 1, checkpoints) == 512);
  BOOST_TEST(next_snapshot(512, 1000, 512, 1, checkpoints) == 640);
  BOOST_TEST(next_snapshot(640, 1000, 0, 1, checkpoints) == 896);
  BOOST_TEST(next_snapshot(640, 1000, 0, 140, checkpoints) == 768); // not behind the rows that are its own
  BOOST_TEST(next_snapshot(896, 1000, 0, 1, checkpoints) == 0);
}

BOOST_AUTO_TEST_CASE(limits_that_cannot_work_are_refused_with_a_remedy) {
  BOOST_TEST(bool(check(scheduler_limits{})));
  const auto refused = [](auto change, const char* key, const char* remedy) {
    scheduler_limits l;
    change(l);
    const status s = check(l);
    BOOST_REQUIRE(!s);
    BOOST_TEST(s.failure().code == "invalid_limits");
    BOOST_TEST(s.failure().message.find(key) == 0u, s.failure().message);
    BOOST_TEST(s.failure().message.find(remedy) != std::string::npos, s.failure().message);
  };
  refused([](auto& l) { l.max_num_batched_tokens = 0; }, "max_num_batched_tokens = 0", "use 1 or more");
  refused([](auto& l) { l.nextn = 6; }, "nextn = 6", "use 0..5");
  refused([](auto& l) { l.nextn = -1; }, "nextn = -1", "use 0..5");
  refused([](auto& l) { l.kv_blocks = 1; }, "kv_blocks = 1", "use 2 or more");
  refused([](auto& l) { l.max_num_seqs = 0; }, "max_num_seqs = 0", "use 1 or more");
  refused([](auto& l) { l.max_model_len = 0; }, "max_model_len = 0", "use 1 or more");
  refused([](auto& l) { l.decode_steps_between = 0; }, "decode_steps_between = 0", "use 1 or more");
  refused([](auto& l) { l.ageing_steps = 0; }, "ageing_steps = 0", "use 1 or more");
  refused([](auto& l) { l.prefill_fill_tokens = 513; }, "prefill_fill_tokens = 513", "512");
  refused([](auto& l) { l.ttft_bound_steps = -1; }, "ttft_bound_steps = -1", "use 0 or more");
  refused([](auto& l) { l.prefill_fill_tokens = 64, l.ttft_bound_steps = 0; }, "ttft_bound_steps = 0",
          "but prefill_fill_tokens = 64; use 1 or more, or prefill_fill_tokens = 0");
  refused([](auto& l) { l.lookahead_tokens = 513; }, "lookahead_tokens = 513", "512");
  refused([](auto& l) { l.snapshot_interval = 100; }, "snapshot_interval = 100", "multiple of 128");
}

BOOST_AUTO_TEST_SUITE_END()
