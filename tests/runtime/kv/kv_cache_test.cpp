#include "runtime/kv/chain_hash.hpp"
#include "runtime/kv/kv_cache.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <set>

using namespace troupe;

namespace {

using tokens = std::vector<std::int32_t>;

// One call per turn field, one turn per call.
struct cache_under_test {
  kv_cache cache;
  kv_want want;
  kv_got got;

  explicit cache_under_test(std::int32_t blocks, std::int32_t slots = 9, std::int32_t snapshots = 4,
                            std::uint64_t mask = ~std::uint64_t{0})
      : cache({.blocks = blocks,
               .slots = slots,
               .snapshot_slots = snapshots,
               .numerics_id = "cpu-1",
               .model_id = "m",
               .hash_mask = mask}) {}

  const kv_got& run() {
    cache.turn(want, got);
    want.clear();
    BOOST_REQUIRE(cache.conserved());
    return got;
  }
  // A prompt of so many blocks, which begins with the given one, and rows for all of it; of a longer one, rows for so
  // many.
  void ask(std::uint64_t id, std::int32_t blocks, tokens prompt = {}, std::int32_t hit_limit = 0,
           const std::string& salt = {}) {
    const std::int32_t size = 128 * blocks;
    while (std::ssize(prompt) < size - 127)
      prompt.push_back(1000000 + static_cast<std::int32_t>(id));
    const bool longer = std::ssize(prompt) > size;
    want.admit.push_back({.id = sequence_id{id},
                          .prompt = std::make_shared<const tokens>(std::move(prompt)),
                          .salt = salt.empty() ? nullptr : std::make_shared<const std::string>(salt),
                          .hit_limit = hit_limit,
                          .rows = longer ? std::max(1, size - hit_limit / 128 * 128) : size,
                          .fork_of = {},
                          .fork_at = 0});
  }
  kv_got::admitted admit(std::uint64_t id, std::int32_t blocks, const tokens& prompt = {}, std::int32_t hit_limit = 0,
                         const std::string& salt = {}) {
    ask(id, blocks, prompt, hit_limit, salt);
    return run().admit.front();
  }
  kv_got::admitted fork(std::uint64_t id, std::uint64_t of, std::int32_t at, std::int32_t blocks) {
    want.admit.push_back({.id = sequence_id{id},
                          .prompt = std::make_shared<const tokens>(static_cast<std::size_t>(128 * blocks)),
                          .salt = nullptr,
                          .rows = 128 * blocks,
                          .fork_of = sequence_id{of},
                          .fork_at = at});
    return run().admit.front();
  }
  void publish(std::uint64_t id, const tokens& all, std::int32_t from_block, std::int32_t to_block) {
    want.publish.push_back({sequence_id{id}, to_block - from_block});
    want.ids.insert(want.ids.end(), all.begin() + 128 * from_block, all.begin() + 128 * to_block);
    run();
  }
  slot_id snapshot(std::uint64_t id, std::int32_t at, bool rolling = false) {
    want.snapshots.push_back({sequence_id{id}, at, rolling});
    return run().snapshots.front();
  }
  kv_got::blocks_at grow(std::uint64_t id, std::int32_t blocks) {
    want.grow.push_back({sequence_id{id}, blocks});
    return run().grow.front();
  }
  void release(std::uint64_t id) {
    want.release.push_back(sequence_id{id});
    run();
  }
  // A sequence that computed and published all whole blocks of `all`, with snapshots, and left.
  void leave_behind(std::uint64_t id, const tokens& all, const std::vector<std::int32_t>& snapshots,
                    const std::string& salt = {}) {
    const std::int32_t whole = static_cast<std::int32_t>(all.size()) / 128;
    BOOST_REQUIRE((admit(id, blocks_for(static_cast<std::int64_t>(all.size())), all, 0, salt).outcome == fit::ok));
    for (const std::int32_t at : snapshots)
      BOOST_REQUIRE(snapshot(id, at).value != 0);
    publish(id, all, 0, whole);
    release(id);
  }
  tokens table(std::uint64_t id) const {
    tokens v;
    for (const block_id b : cache.table(sequence_id{id}))
      v.push_back(b.value);
    return v;
  }
  // Length of the hit, taken and given back.
  std::int32_t hit(const tokens& prompt, std::int32_t limit, const std::string& salt = {}) {
    const tokens start(prompt.begin(), prompt.begin() + std::min<std::ptrdiff_t>(limit, std::ssize(prompt)));
    const kv_got::admitted a = admit(1000, blocks_for(std::ssize(start)), start, limit, salt);
    BOOST_REQUIRE((a.outcome == fit::ok));
    release(1000);
    return a.computed;
  }
};

tokens text(std::int32_t length, std::int32_t first = 0) {
  tokens t(static_cast<std::size_t>(length));
  std::iota(t.begin(), t.end(), first);
  return t;
}

tokens join(tokens a, const tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

} // namespace

BOOST_AUTO_TEST_SUITE(kv_cache_tables)

BOOST_AUTO_TEST_CASE(blocks_and_slot_come_together_or_not_at_all) {
  cache_under_test t(9, 3, 0); // 8 blocks, 2 slots
  BOOST_TEST((t.admit(1, 2).outcome == fit::ok));
  BOOST_TEST((t.admit(2, 2).outcome == fit::ok));
  BOOST_TEST((t.admit(3, 1).outcome == fit::later)); // slots ran out before blocks (D23)
  BOOST_TEST(t.got.free_blocks == 4);
  BOOST_TEST(t.got.free_slots == 0);
  BOOST_TEST((t.admit(3, 9).outcome == fit::never));
  t.release(1);
  BOOST_TEST((t.admit(3, 7).outcome == fit::later));
  BOOST_TEST((t.admit(3, 6).outcome == fit::ok));
  BOOST_TEST(t.got.admit.front().slot.value == 1);
  BOOST_TEST(t.got.free_blocks == 0);
  t.release(77); // unknown
  BOOST_TEST(t.cache.sequences() == 2u);
  BOOST_TEST(t.cache.statistics().deferred == 2u);
}

BOOST_AUTO_TEST_CASE(a_table_goes_back_in_reverse_and_first_in_first_out) {
  cache_under_test t(6);
  t.admit(1, 2);
  t.admit(2, 1);
  t.release(1); // list 4 5 2 1
  t.admit(3, 3);
  BOOST_TEST(t.table(3) == (tokens{4, 5, 2}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(nothing_is_served_behind_the_first_that_does_not_fit) {
  cache_under_test t(9);
  t.ask(1, 3);
  t.ask(2, 6);
  t.ask(3, 1);
  t.ask(4, 99);
  const kv_got& got = t.run();
  BOOST_TEST((got.admit[0].outcome == fit::ok));
  for (std::size_t i = 1; i < 4; ++i)
    BOOST_TEST((got.admit[i].outcome == fit::later));
  BOOST_TEST(t.cache.sequences() == 1u);
  t.ask(4, 9); // alone and for ever too long: refused at once (C1)
  t.ask(3, 1);
  BOOST_TEST((t.run().admit[0].outcome == fit::never));
  BOOST_TEST((t.got.admit[1].outcome == fit::later));
  cache_under_test no_slots(9, 1, 0);
  BOOST_TEST((no_slots.admit(1, 1).outcome == fit::never));
}

BOOST_AUTO_TEST_CASE(growth_appends_or_changes_nothing) {
  cache_under_test t(6);
  t.admit(1, 2);
  t.want.grow = {{sequence_id{1}, 4}, {sequence_id{1}, 9}, {sequence_id{1}, 3}, {sequence_id{1}, 5}};
  const kv_got& got = t.run();
  BOOST_TEST(got.grow[0].count == 2);
  BOOST_TEST((got.grow[1].outcome == fit::later));
  BOOST_TEST(got.grow[1].count == 0);
  BOOST_TEST(got.grow[2].count == 0); // a table never shrinks
  BOOST_TEST(got.grow[3].count == 1);
  BOOST_TEST(got.grow[3].first == 2);
  BOOST_TEST(got.blocks[2].value == 5);
  BOOST_TEST(t.table(1) == (tokens{1, 2, 3, 4, 5}), boost::test_tools::per_element());
  BOOST_TEST(got.free_blocks == 0);
}

BOOST_AUTO_TEST_CASE(a_fork_shares_whole_blocks_and_copies_the_tail) {
  cache_under_test t(20);
  const tokens all = text(300);
  const slot_id parent_slot = t.admit(1, 3, all).slot;
  t.publish(1, all, 0, 1);
  const kv_got::admitted child = t.fork(2, 1, 300, 4);
  BOOST_TEST(child.computed == 300);
  BOOST_TEST((child.restore_from == parent_slot));
  BOOST_TEST((child.slot != parent_slot));
  BOOST_TEST(child.copy_from.value == 3);
  BOOST_TEST(t.table(2) == (tokens{1, 2, 4, 5}), boost::test_tools::per_element());
  // at a block's border nothing is copied; the tail block of a fork of a fork is its parent's
  const kv_got::admitted even = t.fork(3, 1, 256, 3);
  BOOST_TEST(even.copy_from.value == 0);
  BOOST_TEST(t.table(3) == (tokens{1, 2, 6}), boost::test_tools::per_element());
  BOOST_TEST(t.fork(4, 2, 310, 0).copy_from.value == 4);
  BOOST_TEST(t.table(4) == (tokens{1, 2, 7}), boost::test_tools::per_element());
  BOOST_TEST((t.fork(5, 99, 10, 1).outcome == fit::never));
  // the parent goes; the child publishes the shared block behind what the parent had published
  t.release(1);
  t.publish(2, all, 1, 2);
  t.release(2);
  t.publish(4, all, 1, 2);
  BOOST_TEST(t.cache.statistics().cached_blocks == 2);
  BOOST_TEST(t.cache.statistics().duplicate_blocks == 0u);
  t.release(3);
  t.release(4);
  BOOST_TEST(t.got.free_blocks == 19);
  BOOST_TEST(t.cache.statistics().cached_idle_blocks == 2);
}

BOOST_AUTO_TEST_CASE(a_fork_before_the_published_end_publishes_its_own_way) {
  cache_under_test t(20);
  const tokens all = text(384), other = join(tokens(all.begin(), all.begin() + 200), text(200, 9000));
  t.admit(1, 3, all);
  t.publish(1, all, 0, 3);
  t.fork(2, 1, 200, 3);
  BOOST_TEST(t.snapshot(2, 256).value != 0); // its published prefix ends at 128
  t.publish(2, other, 1, 3);
  BOOST_TEST(t.cache.statistics().cached_blocks == 5);
  t.release(2);
  BOOST_TEST((t.admit(3, 1, other, 400).computed == 256));
  BOOST_TEST((t.admit(4, 1, all, 384).computed == 0));
}

BOOST_AUTO_TEST_CASE(a_fork_of_a_sequence_of_the_same_turn_waits) {
  cache_under_test t(20);
  t.ask(1, 2);
  t.want.admit.push_back(
      {.id = sequence_id{2}, .prompt = nullptr, .salt = nullptr, .fork_of = sequence_id{1}, .fork_at = 0});
  BOOST_TEST((t.run().admit[1].outcome == fit::later));
  BOOST_TEST((t.fork(2, 1, 0, 2).outcome == fit::ok));
  BOOST_TEST(t.got.admit[0].restore_from.value == 0);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(kv_cache_hits)

// C15: whatever the length of the prompt, the hit reaches the last snapshot at or before the limit.
BOOST_AUTO_TEST_CASE(a_hit_reaches_the_last_snapshot_for_every_length) {
  for (const std::uint64_t mask : {~std::uint64_t{0}, std::uint64_t{0}})
    for (std::int32_t length = 1; length <= 520; ++length) {
      cache_under_test t(40, 9, 4, mask);
      const tokens all = text(length);
      const std::int32_t last = (length - 1) / 128 * 128; // off: at most floor128(L0 - 1)
      std::vector<std::int32_t> marks;
      if (last >= 256)
        marks.push_back(128);
      if (last > 0)
        marks.push_back(last);
      t.leave_behind(1, all, marks);
      BOOST_TEST(t.hit(all, last) == last);
      BOOST_TEST(t.hit(all, length) == last); // limits need not be multiples of 128
      BOOST_TEST(t.hit(all, std::max(last - 1, 0)) == (last >= 256 ? 128 : 0));
      BOOST_TEST(t.hit(join(all, text(200, 9000)), length + 200) == last);
    }
}

BOOST_AUTO_TEST_CASE(a_hit_shares_blocks_and_names_the_state) {
  cache_under_test t(20);
  const tokens all = text(700);
  t.admit(1, 6, all);
  const slot_id at_256 = t.snapshot(1, 256), at_512 = t.snapshot(1, 512);
  t.publish(1, all, 0, 3);
  kv_got::admitted a = t.admit(2, 6, all, 640); // 512 is not published
  BOOST_TEST(a.computed == 256);
  BOOST_TEST((a.restore_from == at_256));
  BOOST_TEST(a.count == 6);
  BOOST_TEST(t.table(2) == (tokens{1, 2, 7, 8, 9, 10}), boost::test_tools::per_element());
  t.publish(1, all, 3, 5);
  a = t.admit(3, 5, all, 640);
  BOOST_TEST(a.computed == 512);
  BOOST_TEST((a.restore_from == at_512));
  BOOST_TEST(t.table(3) == (tokens{1, 2, 3, 4, 11}), boost::test_tools::per_element());
  BOOST_TEST(t.admit(4, 1, all, 640).count == 5); // the hit, and a row behind it
  const kv_statistics s = t.cache.statistics();
  BOOST_TEST(s.lookups == 3u);
  BOOST_TEST(s.hits == 3u);
  BOOST_TEST(s.hit_tokens == 256u + 512 + 512);
  BOOST_TEST(s.queried_tokens == 2100u);
  BOOST_TEST(s.cached_snapshots == 2);
}

BOOST_AUTO_TEST_CASE(what_was_not_published_or_has_no_snapshot_is_no_hit) {
  cache_under_test t(40);
  const tokens all = text(512);
  t.leave_behind(1, all, {});
  BOOST_TEST(t.hit(all, 512) == 0); // blocks, but no state
  t.admit(2, 4, all);
  BOOST_TEST(t.snapshot(2, 256).value != 0);
  t.publish(2, all, 0, 1);
  t.release(2); // before 256 was published: the snapshot is dropped, and with it its slot
  BOOST_TEST(t.got.free_slots == 8);
  BOOST_TEST(t.cache.statistics().snapshots_dropped == 1u);
  BOOST_TEST(t.hit(all, 512) == 0);
}

BOOST_AUTO_TEST_CASE(other_salts_ids_and_prefixes_never_hit) {
  for (const std::uint64_t mask : {~std::uint64_t{0}, std::uint64_t{0}, std::uint64_t{1}}) {
    cache_under_test t(60, 12, 6, mask);
    const tokens all = text(256);
    t.leave_behind(1, all, {128, 256});
    t.leave_behind(2, all, {256}, "tenant");
    BOOST_TEST(t.cache.statistics().cached_blocks == 4);
    BOOST_TEST(t.hit(all, 256) == 256);
    BOOST_TEST(t.hit(all, 256, "tenant") == 256);
    BOOST_TEST(t.hit(all, 255, "tenant") == 0);
    BOOST_TEST(t.hit(all, 256, "tenan") == 0);
    tokens other = all;
    other[255] = -1;
    BOOST_TEST(t.hit(other, 256) == 128);
    other[127] = -1;
    BOOST_TEST(t.hit(other, 256) == 0);
    BOOST_TEST(t.hit(tokens(all.begin() + 128, all.end()), 128) == 0); // the same block behind another prefix
  }
}

BOOST_AUTO_TEST_CASE(equal_blocks_are_indexed_once) {
  cache_under_test t(20);
  const tokens all = text(256);
  t.admit(1, 2, all);
  t.admit(2, 2, all);
  t.publish(1, all, 0, 2);
  t.publish(2, all, 0, 2);
  BOOST_TEST(t.cache.statistics().cached_blocks == 2);
  BOOST_TEST(t.cache.statistics().duplicate_blocks == 2u);
  BOOST_TEST(t.table(2) == (tokens{3, 4}), boost::test_tools::per_element()); // keeps its own
  t.release(2);
  BOOST_TEST(t.got.free_blocks == 17);
  t.release(1);
  t.admit(3, 2, all);
  BOOST_TEST(t.got.free_blocks == 17); // two cached and idle, two in the table
  t.publish(3, all, 0, 2);             // takes the place of the idle ones
  BOOST_TEST(t.cache.statistics().cached_idle_blocks == 0);
  BOOST_TEST(t.got.free_blocks == 17);
}

BOOST_AUTO_TEST_CASE(a_rolling_snapshot_replaces_its_predecessor_once_it_can_be_found) {
  cache_under_test t(20);
  const tokens all = text(640);
  t.admit(1, 5, all);
  t.snapshot(1, 128, true);
  t.snapshot(1, 256); // not rolling: stays
  t.publish(1, all, 0, 2);
  BOOST_TEST(t.snapshot(1, 384, true).value != 0);
  BOOST_TEST(t.hit(all, 255) == 128);
  t.publish(1, all, 2, 3);
  BOOST_TEST(t.hit(all, 255) == 0);
  BOOST_TEST(t.hit(all, 383) == 256);
  BOOST_TEST(t.hit(all, 512) == 384);
  BOOST_TEST(t.snapshot(1, 384).value == 0); // there is one
  BOOST_TEST(t.snapshot(1, 512).value != 0);
  BOOST_TEST(t.snapshot(1, 512, true).value == 0); // twice
  BOOST_TEST(t.cache.statistics().snapshots_refused == 2u);
}

// The second of them computes the common beginning, as no state of it is kept; the third does not.
BOOST_AUTO_TEST_CASE(where_prompts_part_a_snapshot_is_kept) {
  cache_under_test t(40);
  const tokens common = text(400);
  t.leave_behind(1, join(common, text(300, 5000)), {640});
  const auto ask = [&](std::uint64_t id, std::int32_t rows, std::int32_t interval) {
    t.ask(id, 0, join(common, text(300, 10000 * static_cast<std::int32_t>(id))), 640);
    t.want.admit.back().rows = rows;
    t.want.admit.back().snapshot_interval = interval;
    return t.run().admit.front();
  };
  kv_got::admitted a = ask(2, 512, -1); // of a prompt that keeps none
  BOOST_TEST(a.parts_at == 0);
  t.release(2);
  a = ask(3, 512, 128);
  BOOST_TEST(a.computed == 0);
  BOOST_TEST(a.parts_at == 384);
  BOOST_TEST(a.snapshot_at == 128);
  t.release(3);
  a = ask(4, 200, 0);
  BOOST_TEST(a.parts_at == 384);
  BOOST_TEST(a.snapshot_at == 0); // not within its rows
  t.release(4);
  a = ask(5, 512, 0);
  BOOST_TEST(a.parts_at == 384);
  BOOST_TEST(a.snapshot_at == 384);
  BOOST_TEST(a.snapshot.value != 0);
  t.publish(5, join(common, text(300, 50000)), 0, 3);
  t.release(5);
  a = ask(6, 512, 0);
  BOOST_TEST(a.computed == 384);
  BOOST_TEST(a.parts_at == 0);
  BOOST_TEST(a.snapshot_at == 640);
}

BOOST_AUTO_TEST_CASE(an_admission_by_rows_gets_its_first_snapshot) {
  cache_under_test t(20);
  const tokens all = text(700);
  const auto ask = [&](std::uint64_t id, std::int32_t rows, std::int32_t interval, std::int32_t room = 0) {
    t.ask(id, 0, all, 640);
    t.want.admit.back().rows = rows;
    t.want.admit.back().room = room;
    t.want.admit.back().snapshot_interval = interval;
    return t.run().admit.front();
  };
  kv_got::admitted a = ask(1, 300, 256);
  BOOST_TEST(a.count == 3);
  BOOST_TEST(a.snapshot_at == 256);
  BOOST_TEST(a.snapshot.value != 0);
  BOOST_TEST((a.snapshot != a.slot));
  t.grow(1, 6);
  BOOST_TEST(t.snapshot(1, 640).value != 0);
  t.publish(1, all, 0, 5);
  t.release(1);
  a = ask(2, 60, 0); // behind the hit nothing is kept
  BOOST_TEST(a.computed == 640);
  BOOST_TEST(a.count == 6);
  BOOST_TEST(a.snapshot_at == 0);
  t.release(2);
  a = ask(3, 1000, -1, 14); // 5 shared, 1 new, 14 of 19 left
  BOOST_TEST((a.outcome == fit::later));
  BOOST_TEST((ask(3, 1000, -1, 13).outcome == fit::ok));
  cache_under_test small(6); // the whole prompt must fit, however few rows come first
  small.ask(1, 0, all);
  small.want.admit.back().rows = 10;
  BOOST_TEST((small.run().admit.front().outcome == fit::never));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(kv_cache_eviction)

BOOST_AUTO_TEST_CASE(useless_blocks_first_then_the_longest_unused_leaf) {
  cache_under_test t(11, 9, 4); // 10 blocks
  const tokens system = text(128), a = join(system, text(128, 1000)), b = join(system, text(128, 2000));
  t.leave_behind(1, join(a, text(256, 3000)), {256}); // 4 blocks, the last two without state
  t.leave_behind(2, b, {128, 256});                   // 1 more; its own first block was the younger of two
  BOOST_TEST(t.got.free_blocks == 10);
  BOOST_TEST(t.cache.statistics().cached_blocks == 5);
  t.admit(9, 6); // 5 free: the deepest useless one goes
  BOOST_TEST(t.cache.statistics().cached_blocks == 4);
  t.grow(9, 7);
  BOOST_TEST(t.cache.statistics().cached_blocks == 3);
  t.release(9);
  BOOST_TEST(t.hit(a, 256) == 256); // all that can be hit is there; a is now used later than b
  BOOST_TEST(t.hit(b, 256) == 256);
  BOOST_TEST(t.hit(a, 256) == 256);
  t.admit(9, 8);
  BOOST_TEST(t.cache.statistics().cached_snapshots == 2);
  t.release(9);
  BOOST_TEST(t.hit(b, 256) == 128); // its leaf went, the shared beginning stayed
  BOOST_TEST(t.hit(a, 256) == 256);
  t.admit(9, 9);
  t.release(9);
  BOOST_TEST(t.hit(a, 256) == 128);
  t.admit(9, 10);
  BOOST_TEST(t.cache.statistics().cached_blocks == 0);
  BOOST_TEST(t.cache.statistics().evicted_blocks == 5u);
  BOOST_TEST(t.cache.statistics().snapshots_evicted == 3u);
  BOOST_TEST(t.got.free_slots == 7);
}

BOOST_AUTO_TEST_CASE(blocks_of_running_tables_stay) {
  cache_under_test t(7); // 6 blocks
  const tokens all = text(256);
  t.leave_behind(1, all, {256});
  BOOST_TEST(t.admit(2, 3, all, 256).computed == 256);
  BOOST_TEST(t.got.free_blocks == 3);
  BOOST_TEST((t.grow(2, 7).outcome == fit::later));
  BOOST_TEST((t.admit(3, 4, all, 256).outcome == fit::ok)); // shares two
  BOOST_TEST(t.got.free_blocks == 1);
  BOOST_TEST((t.admit(4, 4, all, 256).outcome == fit::later)); // its hit is not room for itself
  BOOST_TEST((t.admit(4, 3, all, 256).outcome == fit::ok));
  BOOST_TEST(t.cache.statistics().evicted_blocks == 0u);
}

BOOST_AUTO_TEST_CASE(an_idle_hit_is_not_counted_as_room) {
  cache_under_test t(5); // 4 blocks
  const tokens all = text(256);
  t.leave_behind(1, all, {256});
  BOOST_TEST((t.admit(2, 1).outcome == fit::ok));
  BOOST_TEST((t.admit(3, 4, all, 256).outcome == fit::later)); // 2 shared + 2 new, but only 1 free
  BOOST_TEST(t.cache.statistics().cached_blocks == 2);
  BOOST_TEST((t.admit(3, 3, all, 256).outcome == fit::ok));
}

BOOST_AUTO_TEST_CASE(a_lone_sequence_can_use_the_whole_pool) {
  // Equal prompts in two tables at once: when one leaves, its indexed blocks are above the other's.
  cache_under_test t(9); // 8 blocks
  const tokens all = text(512);
  t.admit(1, 2, all);
  t.admit(2, 4, all);
  t.publish(1, all, 0, 2);
  t.publish(2, all, 0, 3);
  t.release(1);
  BOOST_TEST(t.got.free_blocks == 4);
  BOOST_TEST((t.grow(2, 8).outcome == fit::ok));
  BOOST_TEST(t.got.free_blocks == 0);
  BOOST_TEST(t.cache.statistics().cached_blocks == 3);
  t.publish(2, all, 3, 4);
  BOOST_TEST(t.cache.statistics().cached_blocks == 4);
}

BOOST_AUTO_TEST_CASE(a_published_prefix_survives_the_eviction_of_the_equal_block) {
  cache_under_test t(9); // 8 blocks
  const tokens all = text(512);
  t.admit(1, 2, all);
  t.admit(2, 4, all);
  t.publish(1, all, 0, 2);
  t.publish(2, all, 0, 2);
  t.release(1);
  BOOST_TEST((t.grow(2, 8).outcome == fit::ok)); // block 2 of the first is a leaf
  BOOST_TEST(t.cache.statistics().evicted_blocks == 0u);
  BOOST_TEST(t.snapshot(2, 512).value != 0);
  t.publish(2, all, 2, 4);
  BOOST_TEST(t.hit(all, 0) == 0); // a sequence without blocks fits beside
  t.release(2);
  BOOST_TEST(t.hit(all, 512) == 512);
}

BOOST_AUTO_TEST_CASE(sequences_take_snapshot_slots_longest_unused_first) {
  cache_under_test t(30, 4, 2); // 3 slots: one sequence, two snapshots
  const tokens a = text(128), b = text(128, 500);
  t.leave_behind(1, a, {128});
  t.leave_behind(2, b, {128});
  BOOST_TEST(t.got.free_slots == 3);
  BOOST_TEST(t.hit(a, 128) == 128); // younger than b now
  t.admit(3, 1);
  t.admit(4, 1);
  BOOST_TEST(t.cache.statistics().cached_snapshots == 1);
  BOOST_TEST((t.admit(5, 1, b, 128).computed == 0));
  BOOST_TEST(t.cache.statistics().cached_snapshots == 0);
  BOOST_TEST((t.admit(6, 1).outcome == fit::later));
  t.release(3);
  BOOST_TEST(t.hit(a, 128) == 0);
}

BOOST_AUTO_TEST_CASE(the_last_slot_may_be_the_hit_itself) {
  cache_under_test t(30, 3, 1); // 2 slots
  const tokens a = text(128);
  t.leave_behind(1, a, {128});
  t.admit(2, 1);
  const kv_got::admitted hit = t.admit(3, 2, a, 128);
  BOOST_TEST((hit.outcome == fit::ok));
  BOOST_TEST(hit.computed == 128);
  BOOST_TEST(hit.restore_from.value == 0); // the slot holds the state
  BOOST_TEST(t.cache.statistics().cached_snapshots == 0);
}

BOOST_AUTO_TEST_CASE(what_a_turn_restores_from_is_not_overwritten_in_it) {
  cache_under_test t(30, 4, 1); // 3 slots
  const tokens a = text(128);
  t.leave_behind(1, a, {128});
  t.ask(2, 2, a, 128);
  t.ask(3, 2, a, 128);
  t.ask(4, 2, a, 128);
  const kv_got& got = t.run();
  BOOST_TEST(got.admit[0].computed == 128);
  BOOST_TEST(got.admit[1].computed == 128);
  BOOST_TEST((got.admit[0].restore_from == got.admit[1].restore_from));
  BOOST_TEST((got.admit[2].outcome == fit::later));
  BOOST_TEST((t.admit(4, 2, a, 128).outcome == fit::ok)); // in the next turn it may be
}

BOOST_AUTO_TEST_CASE(waiting_snapshots_leave_room_for_sequences) {
  cache_under_test t(30, 5, 2); // 4 slots: two sequences, two snapshots
  const tokens all = text(512);
  t.admit(1, 4, all);
  BOOST_TEST(t.snapshot(1, 128).value != 0);
  BOOST_TEST(t.snapshot(1, 256).value != 0);
  BOOST_TEST(t.snapshot(1, 384).value == 0); // one slot is free, but it is a sequence's
  BOOST_TEST((t.admit(2, 1).outcome == fit::ok));
  t.publish(1, all, 0, 2);
  BOOST_TEST(t.snapshot(1, 384).value != 0); // evicts the one at 128
  t.publish(1, all, 2, 3);
  BOOST_TEST(t.cache.statistics().cached_snapshots == 2);
  cache_under_test none(30, 5, 0);
  none.admit(1, 4, all);
  BOOST_TEST(none.snapshot(1, 128).value == 0);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(chain_hashes)

BOOST_AUTO_TEST_CASE(known_values) {
  // Other nodes and later builds must compute the same; the values come from a second implementation.
  const std::uint64_t start = chain_start("cpu-1", "m", "");
  const tokens ids = text(256);
  const std::uint64_t one = chain_next(start, std::span(ids).first(128));
  const std::uint64_t two = chain_next(one, std::span(ids).last(128));
  BOOST_TEST(start == 0x8c8d21b39e722913u);
  BOOST_TEST(one == 0xfff462df77b012fbu);
  BOOST_TEST(two == 0x59c777a6764711e4u);
}

BOOST_AUTO_TEST_CASE(every_part_counts) {
  std::set<std::uint64_t> seen{chain_start("a", "b", "c"), chain_start("ab", "", "c"), chain_start("a", "bc", ""),
                               chain_start("a", "b", ""), chain_start("", "", "")};
  BOOST_TEST(seen.size() == 5u);
  tokens ids = text(128);
  seen = {chain_next(1, ids), chain_next(2, ids), chain_next(1, std::span(ids).first(127))};
  for (std::size_t i = 0; i < 128; ++i)
    for (int bit = 0; bit < 32; ++bit) {
      ids[i] ^= static_cast<std::int32_t>(1u << bit);
      seen.insert(chain_next(1, ids));
      ids[i] ^= static_cast<std::int32_t>(1u << bit);
    }
  for (std::size_t i = 0; i + 1 < 128; ++i) {
    std::swap(ids[i], ids[i + 1]);
    seen.insert(chain_next(1, ids));
    std::swap(ids[i], ids[i + 1]);
  }
  BOOST_TEST(seen.size() == 3u + 128 * 32 + 127);
}

BOOST_AUTO_TEST_SUITE_END()
