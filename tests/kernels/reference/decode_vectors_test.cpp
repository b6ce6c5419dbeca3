// Rows of decode steps on the vectors of engine.md: places in the window rings (§7.3), and positions that only the
// device knows, because the step before decides how many drafts were right (§8.2).
#include "kernels/plain/attention.hpp"
#include "tests/support/row_cases.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::row_cases;

namespace {

using ints = std::vector<std::int32_t>;
constexpr auto each = boost::test_tools::per_element();
constexpr std::int32_t slots = 4, block = 5;

struct decode_vectors {
  std::unique_ptr<device> d = make_device("reference", {});
  arena m{*d};
  decode_state state;

  decode_vectors() {
    state.block = block;
    state.position = m.put(ints(slots, -1));
    state.ids = m.put(ints(slots, -1));
    state.drafts = m.put(ints(slots * block, -1));
    state.stopped = m.put(ints(slots, -1));
  }
  ints get(dev_ptr<std::int32_t> p, std::size_t n) { return m.get(dev_ptr<const std::int32_t>(p), n); }
};

// The key rows of a step as the host lays them out: so many for each sequence, from `start` on.
struct key_rows {
  std::size_t count = 0;
  dev_ptr<std::int32_t> position, low, high, start;
  row_map map;

  key_rows(arena& m, const ints& slot, const ints& first_position, const ints& rows) {
    ints positions, sequence, first;
    for (std::size_t s = 0; s < slot.size(); ++s) {
      first.push_back(static_cast<std::int32_t>(positions.size()));
      for (std::int32_t r = 0; r < rows[s]; ++r) {
        positions.push_back(first_position[s] + r);
        sequence.push_back(static_cast<std::int32_t>(s));
      }
    }
    count = positions.size();
    const auto n = static_cast<std::int32_t>(count);
    position = m.put(positions), low = m.put(ints(count, -1)), high = m.put(ints(count, -1));
    start = m.put(first_position);
    map.rows = map.key_rows = n;
    map.sequences = static_cast<std::int32_t>(slot.size());
    map.position = position, map.window_lo = low, map.window_hi = high, map.start = start;
    map.sequence = m.put(sequence), map.first_row = m.put(first), map.row_count = m.put(rows), map.slot = m.put(slot);
  }
};

// Lets the device complete the layout. Returns the rows' input ids.
ints lay_out(decode_vectors& v, key_rows& step, const ints& ids, const ints& drafts, const ints& moves) {
  lay_out_rows_args a;
  a.map = step.map;
  a.state = v.state;
  a.window = 128;
  a.drafts = v.m.put(drafts), a.moves = v.m.put(moves), a.limit = v.m.put(ints(drafts.size(), 0));
  a.ids = v.m.put(ids);
  a.position = step.position, a.window_lo = step.low, a.window_hi = step.high, a.start = step.start;
  a.verifies = v.m.room<std::int32_t>(step.count);
  a.history = v.m.put(ints{0}); // none with ngram 1
  v.d->ops().lay_out_rows(*v.m.s, a);
  return v.get(a.ids, step.count);
}

} // namespace

BOOST_AUTO_TEST_SUITE(decode_step_vectors)

// §7.3: state 3, window 128, a ring of 134 entries. (The engine's rings have 140; the rule is the same.)
BOOST_AUTO_TEST_CASE(places_in_the_window_ring) {
  decode_vectors v;
  constexpr std::int32_t entries = 134, state = 3;
  const dev_ptr<float> memory = v.m.put(std::vector<float>(slots * entries, 0.0f));
  const ring_view ring{memory.as<std::byte>(), entries * sizeof(float), entries, 1, kv_format::f32};

  const key_rows stored(v.m, {state}, {267}, {3}); // k = 270, q = 3
  const dev_ptr<float> records = v.m.put(std::vector<float>{1, 2, 3});
  v.d->ops().ring_commit(*v.m.s, {stored.map, records.as<const std::byte>(), ring});
  std::vector<float> expected(slots * entries, 0.0f);
  expected[535] = 1, expected[402] = 2, expected[403] = 3;
  BOOST_TEST(v.m.get(dev_ptr<const float>(memory), expected.size()) == expected, each);

  const std::vector<std::pair<std::int32_t, std::pair<std::int64_t, std::int64_t>>> windows{
      {0, {402, 1}}, {5, {402, 6}}, {127, {402, 128}}, {128, {403, 128}}, {269, {410, 128}}};
  for (const auto& [position, window] : windows) {
    v.state.position = v.m.put(ints(slots, position));
    key_rows row(v.m, {state}, {0}, {1});
    lay_out(v, row, {token_in_flight}, {0}, {1});
    attention_args a;
    a.map = row.map;
    a.ring = ring;
    const plain::key_places keys = plain::places_of(a, 0);
    const std::ptrdiff_t offset = plain::ring_record(ring, state, keys.first) - ring.base.raw();
    BOOST_TEST(offset / static_cast<std::ptrdiff_t>(sizeof(float)) == window.first, "position " << position);
    BOOST_TEST(keys.window == window.second, "position " << position);
  }
}

// §8.2: num_tokens [100, 37, 512], 6 tokens of the first two in flight, q [6, 6, 6], remap [1, 0, -1], a [2, 5] ->
// k [112, 46, 518]. Our host sends the lowest start, num_tokens + 1 for what is in flight; the device adds a.
BOOST_AUTO_TEST_CASE(contexts_behind_a_step_whose_drafts_the_host_does_not_know) {
  decode_vectors v;
  constexpr std::int32_t first = 1, second = 2, fresh = 3; // their slots
  // Step n-1 holds the second before the first. Of its drafts 2 and 5 are right.
  const key_rows before(v.m, {second, first}, {37, 100}, {6, 6});
  const ints ids{10, 11, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25};
  verify_drafts_args verify;
  verify.map = before.map;
  verify.state = v.state;
  verify.ids = v.m.put(ids);
  verify.history = v.m.put(ints{0});
  verify.draws = v.m.put(ints{6, 6}), verify.limit = v.m.put(ints{0, 0});
  verify.token = v.m.put(ints{11, 12, 99, 14, 15, 98, 21, 22, 23, 24, 25, 97});
  verify.status = v.m.put(ints(12, 0));
  verify.outcome = v.m.put(ints(8, -7));
  v.d->ops().verify_drafts(*v.m.s, verify);
  BOOST_TEST(v.get(verify.outcome, 8) == (ints{37, 5, 2, 0, 100, 5, 5, 6}), each);

  const ints drafts{1, 1, 1, 1, 1, 61, 62, 63, 64, 65, 71, 72, 73, 74, 75, 81, 82, 83, 84, 85};
  v.state.drafts = v.m.put(drafts);
  key_rows step(v.m, {first, second, fresh}, {101, 38, 512}, {6, 6, 6});
  ints planned;
  for (int sequence = 0; sequence < 2; ++sequence)
    for (const std::int32_t id :
         {token_in_flight, draft_in_flight, draft_in_flight, draft_in_flight, draft_in_flight, draft_in_flight})
      planned.push_back(id);
  planned.insert(planned.end(), {50, 51, 52, 53, 54, 55}); // known to the host
  const ints inputs = lay_out(v, step, planned, {5, 5, 5}, {1, 1, 0});
  const ints position = v.get(step.position, 18);
  BOOST_TEST((ints{position[5] + 1, position[11] + 1, position[17] + 1}) == (ints{112, 46, 518}), each);
  BOOST_TEST(v.get(step.start, 3) == (ints{106, 40, 512}), each);
  BOOST_TEST(inputs == (ints{97, 61, 62, 63, 64, 65, 99, 71, 72, 73, 74, 75, 50, 51, 52, 53, 54, 55}), each);
}

// §8.3, D22: what ends a sequence and a device can know. Slot 1 walks over tokens 21 22 23 at positions 101 102 103.
BOOST_AUTO_TEST_CASE(a_sequence_stops_with_a_token_that_ends_it) {
  constexpr std::int32_t bad = 1;
  struct stop_case {
    ints ids;                // that end it
    std::uint64_t from;      // position
    std::int32_t limit;      // 0 = none
    std::int32_t last_draft; // its third input: 22 is right, and 23 is drawn behind it
    std::int32_t status;     // of the first row
    std::int32_t stopped;
  };
  const std::vector<stop_case> cases{{{}, 0, 0, 22, 0, 0},          {{23}, 0, 0, 22, 0, 1}, // the newest one
                                     {{9, 21}, 0, 0, 22, 0, 1},                             // one of those before it
                                     {{23}, 0, 0, 50, 0, 0}, // the draft is wrong: 23 was never drawn
                                     {{22}, 102, 0, 22, 0, 1},      {{22}, 103, 0, 22, 0, 0}, // from min_tokens on
                                     {{}, 0, 103, 22, 0, 1},        {{}, 0, 104, 22, 0, 0},   // its last position
                                     {{9, 10, 20}, 0, 0, 22, 0, 0}, {{}, 0, 0, 22, bad, 1}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const stop_case& c = cases[i];
    decode_vectors v;
    const key_rows step(v.m, {1}, {100}, {3});
    sample_row_params rule;
    rule.first_suppressed = 1; // behind another rule's
    rule.suppressed = static_cast<std::int32_t>(c.ids.size());
    rule.suppressed_until = c.from;
    ints all{23};
    all.insert(all.end(), c.ids.begin(), c.ids.end());
    verify_drafts_args a;
    a.map = step.map;
    a.state = v.state;
    a.ids = v.m.put(ints{20, 21, c.last_draft});
    a.history = v.m.put(ints{0});
    a.draws = v.m.put(ints{3}), a.limit = v.m.put(ints{c.limit});
    a.token = v.m.put(ints{21, 22, 23}), a.status = v.m.put(ints{c.status, 0, 0});
    a.rules = v.m.put(std::vector<sample_row_params>{rule}), a.suppressed = v.m.put(all);
    a.outcome = v.m.put(ints(4, -7));
    v.d->ops().verify_drafts(*v.m.s, a);
    BOOST_TEST(v.get(v.state.stopped, slots) == (ints{-1, c.stopped, -1, -1}), "case " << i);
  }
}

BOOST_AUTO_TEST_SUITE_END()
