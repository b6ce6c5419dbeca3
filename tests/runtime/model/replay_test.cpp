// Bounded replay: its arithmetic against vectors and a model of sets, and what it computes on the embedded model
// (exactness.md §7; determinism_yoco.md A9).
#include "runtime/model/cache_layout.hpp"
#include "runtime/model/replay.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/hand_drafts.hpp"
#include "tests/support/hand_engine.hpp"
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <random>
#include <sstream>

using namespace troupe;
using namespace troupe::test;

namespace {

using ints = std::vector<std::int32_t>;

struct chunk_rows {
  ints computed, kept; // per chunk
};

// The rows of a prompt in chunks, by the original's count, which has a row for every chunk: one that lies wholly before
// the kept range has a row that nobody reads. Here such a chunk has none.
chunk_rows rows_of_chunks(std::int32_t length, std::int32_t chunk, std::int32_t keep) {
  const std::int32_t from = replay_from(yoco_mode::compact, length, keep);
  chunk_rows out;
  for (std::int32_t start = 0; start < length; start += chunk) {
    const std::int32_t rows = std::min(chunk, length - start);
    out.kept.push_back(rows - rows_left_out(start, rows, from));
    out.computed.push_back(std::max(out.kept.back(), 1));
  }
  return out;
}

} // namespace

BOOST_AUTO_TEST_SUITE(replay_rows)

BOOST_AUTO_TEST_CASE(vectors_of_kept_rows) { // exactness.md T9, determinism_yoco.md A3
  struct vector {
    std::int32_t length, chunk, keep;
    ints computed, kept;
  };
  const vector vectors[] = {
      {1000, 430, 140, {1, 1, 140}, {0, 0, 140}},
      {141, 64, 140, {63, 64, 13}, {63, 64, 13}},
      {700, 256, 521, {77, 256, 188}, {77, 256, 188}},
      {100, 512, 140, {100}, {100}},
      {140, 512, 140, {140}, {140}},
      {1000, 512, 140, {1, 140}, {0, 140}},
      {1000, 450, 140, {1, 40, 100}, {0, 40, 100}},
      {8192, 2048, 140, {1, 1, 1, 140}, {0, 0, 0, 140}},
  };
  for (const vector& v : vectors) {
    const chunk_rows found = rows_of_chunks(v.length, v.chunk, v.keep);
    BOOST_TEST(found.computed == v.computed, boost::test_tools::per_element());
    BOOST_TEST(found.kept == v.kept, boost::test_tools::per_element());
  }
  BOOST_TEST(replay_from(yoco_mode::compact, 1000, 140) == 860);
  BOOST_TEST(replay_from(yoco_mode::mask, 141, 140) == 1);
  BOOST_TEST(replay_from(yoco_mode::exact, 700, 521) == 179);
  BOOST_TEST(replay_from(yoco_mode::compact, 140, 140) == 0);
  BOOST_TEST(replay_from(yoco_mode::off, 1000, 140) == 0);
}

BOOST_AUTO_TEST_CASE(rows_that_each_model_keeps) {
  const model_config tiny = load_config(model_folder), flash = load_config(TROUPE_SOURCE_DIR "/models/v41-flash");
  BOOST_TEST(least_keep(tiny) == 140);
  BOOST_TEST(exact_keep(tiny) == 521);
  BOOST_TEST(least_keep(flash) == 140);
  BOOST_TEST(exact_keep(flash) == 2553);
  BOOST_TEST(kept_rows(yoco_mode::exact, 140, tiny) == 521);
  BOOST_TEST(kept_rows(yoco_mode::compact, 200, tiny) == 200);
}

// Steps of several prompts against sets of positions: which rows are kept, what each sees, and where it is.
BOOST_AUTO_TEST_CASE(steps_against_sets_of_positions) {
  constexpr int window = 128;
  std::mt19937 random(5);
  int without_rows = 0, narrow_only = 0, whole = 0;
  for (int round = 0; round < 600; ++round) {
    const std::int32_t keep = 134 + static_cast<std::int32_t>(random() % 67);
    const bool leave_out = random() % 3 != 0;
    step_rows step;
    std::vector<std::vector<bool>> range; // by prompt and position: is it kept
    for (std::size_t q = 0; q < 1 + random() % 4; ++q) {
      const auto length = 1 + static_cast<std::int32_t>(random() % 600),
                 start = static_cast<std::int32_t>(random() % static_cast<unsigned>(length)),
                 rows = std::min(length - start, 1 + static_cast<std::int32_t>(random() % 300));
      step.slot.push_back(static_cast<std::int32_t>(q) + 1);
      step.start.push_back(start);
      step.rows.push_back(rows);
      step.first_block.push_back(static_cast<std::int32_t>(step.blocks.size()));
      step.blocks_of.push_back(1);
      step.blocks.push_back(static_cast<std::int32_t>(q));
      step.history.insert(step.history.end(), 3, static_cast<std::int32_t>(q));
      step.replay_from.push_back(replay_from(yoco_mode::compact, length, keep));
      for (std::int32_t p = start; p < start + rows; ++p)
        step.tokens.push_back(static_cast<std::int32_t>(q) * 1000 + p);
      range.emplace_back(static_cast<std::size_t>(length));
      for (std::int32_t back = 1; back <= std::min(keep, length); ++back)
        range.back()[static_cast<std::size_t>(length - back)] = true;
    }
    replayed_step part;
    bool differs = false;
    ints kept, kept_at; // tokens that stay, rows of the step
    std::int32_t row = 0;
    for (std::size_t q = 0; q < step.slot.size(); ++q)
      for (std::int32_t p = step.start[q]; p < step.start[q] + step.rows[q]; ++p, ++row) {
        std::int32_t lowest_seen = p + 1, seen = 0;
        for (std::int32_t k = p; k >= std::max(p - window + 1, 0); --k)
          if (range[q][static_cast<std::size_t>(k)])
            lowest_seen = k, ++seen;
        const std::int32_t low = first_visible(p, window, step.replay_from[q]);
        if (low != lowest_seen || p + 1 - low != seen)
          BOOST_FAIL("position " << p << " of sequence " << q << " sees " << low << " on");
        differs = differs || low > std::max(p - window + 1, 0);
        if (leave_out && !range[q][static_cast<std::size_t>(p)])
          continue;
        kept.push_back(step.tokens[static_cast<std::size_t>(row)]);
        kept_at.push_back(row);
      }
    BOOST_REQUIRE_EQUAL(part.assign(step, window, leave_out), differs);
    if (!differs) {
      BOOST_REQUIRE(kept.size() == step.tokens.size());
      ++whole;
      continue;
    }
    BOOST_REQUIRE(part.rows().tokens == kept);
    BOOST_REQUIRE_EQUAL(part.some_left_out(), kept.size() < step.tokens.size());
    for (std::size_t i = 0; i < kept.size(); ++i)
      if (part.row_of(kept_at[i]) != static_cast<std::int32_t>(i))
        BOOST_FAIL("row " << kept_at[i] << " is not kept row " << i);
    std::size_t next = 0;
    for (std::size_t s = 0; s < part.rows().slot.size(); ++s) {
      const auto q = static_cast<std::size_t>(part.rows().slot[s] - 1);
      BOOST_REQUIRE_GE(part.rows().rows[s], 1);
      BOOST_REQUIRE_EQUAL(part.rows().tokens[next], static_cast<std::int32_t>(q) * 1000 + part.rows().start[s]);
      BOOST_REQUIRE_EQUAL(part.rows().start[s] + part.rows().rows[s], step.start[q] + step.rows[q]);
      BOOST_REQUIRE_EQUAL(part.rows().replay_from[s], step.replay_from[q]);
      BOOST_REQUIRE_EQUAL(part.rows().history[3 * s], static_cast<std::int32_t>(q));
      next += static_cast<std::size_t>(part.rows().rows[s]);
    }
    BOOST_REQUIRE_EQUAL(next, kept.size());
    without_rows += kept.empty();
    narrow_only += leave_out && !part.some_left_out();
  }
  BOOST_TEST(without_rows > 10); // the draw has every kind of step
  BOOST_TEST(narrow_only > 10);
  BOOST_TEST(whole > 10);
}

BOOST_AUTO_TEST_SUITE_END()

namespace {

// Text and other ids of any length, a function of the seed.
ints prompt_of(std::int32_t length, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  ints ids{0};
  while (static_cast<std::int32_t>(ids.size()) < length)
    ids.push_back(static_cast<std::int32_t>(300 + random() % 7000));
  return ids;
}

// The embedded model with runners of several modes over the same weights.
struct shared_model {
  explicit shared_model(const std::string& device_name)
      : dev(open_device(device_name, {.threads = 2, .cores = {}})),
        weights(load_weights(tiny_checkpoint(), *dev, {.experts = true, .max_positions = 4096 + 8}, tiny_token_map())) {
  }
  std::unique_ptr<device> dev;
  std::shared_ptr<const model_weights> weights;
};

// One runner, its sequences in slots 1, 2, ...
class replayed_model {
public:
  replayed_model(const shared_model& shared, yoco_mode yoco, int keep, roundings rounding = roundings::serving)
      : keep_(keep), yoco_(yoco), dev_(*shared.dev), runner_(shared.weights, *shared.dev,
                                                             {.rounding = rounding,
                                                              .max_rows = 1024,
                                                              .max_sequences = 8,
                                                              .kv_blocks = 100,
                                                              .state_slots = 8,
                                                              .max_model_len = 4096,
                                                              .yoco = yoco,
                                                              .yoco_keep = keep,
                                                              .rejection = true}) {} // keeps the logits of drafts

  void begin(const std::vector<ints>& prompts) {
    sequences_.clear(), length_.clear();
    std::int32_t block = 1;
    for (const ints& p : prompts) {
      sequences_.emplace_back(static_cast<std::int32_t>(sequences_.size()) + 1, block,
                              static_cast<int>(p.size()) + 128);
      block += static_cast<std::int32_t>(sequences_.back().blocks.size());
      length_.push_back(static_cast<std::int32_t>(p.size()));
    }
  }
  struct piece {
    std::size_t sequence;
    ints tokens;
  };
  // One step; logits of the last rows of those pieces that end at or behind their prompt.
  std::vector<float> step(const std::vector<piece>& pieces) {
    step_rows rows;
    ints wanted;
    for (const piece& p : pieces) {
      sequences_[p.sequence].feed(rows, p.tokens);
      rows.replay_from.push_back(replay_from(yoco_, length_[p.sequence], keep_));
      if (static_cast<std::int32_t>(sequences_[p.sequence].ids.size()) >= length_[p.sequence])
        wanted.push_back(static_cast<std::int32_t>(rows.tokens.size()) - 1);
    }
    runner_.forward(rows);
    std::vector<float> out(wanted.size() * 8192);
    if (!wanted.empty())
      runner_.work().to_host(out.data(), runner_.logits(wanted).as<const std::byte>(), 4 * out.size());
    runner_.work().synchronise();
    return out;
  }
  // Prompts one after the other in chunks; logits of their last rows.
  std::vector<float> prefill(const std::vector<ints>& prompts, std::int32_t chunk) {
    begin(prompts);
    std::vector<float> out;
    for (std::size_t q = 0; q < prompts.size(); ++q)
      for (std::size_t at = 0; at < prompts[q].size(); at += static_cast<std::size_t>(chunk)) {
        const std::size_t end = std::min(prompts[q].size(), at + static_cast<std::size_t>(chunk));
        const auto logits = step({{q,
                                   {prompts[q].begin() + static_cast<std::ptrdiff_t>(at),
                                    prompts[q].begin() + static_cast<std::ptrdiff_t>(end)}}});
        out.insert(out.end(), logits.begin(), logits.end());
      }
    return out;
  }
  void take_back(std::size_t sequence, int tokens) {
    auto& ids = sequences_[sequence].ids;
    ids.resize(ids.size() - static_cast<std::size_t>(tokens));
  }
  // Rings of windows, of the compressors and of the drafter.
  std::vector<std::byte> state(std::size_t sequence) {
    const auto caches = runner_.caches();
    std::vector<std::byte> out(static_cast<std::size_t>(caches.sizes.slot_bytes));
    runner_.work().to_host(out.data(), caches.slots + caches.sizes.slot_bytes * sequences_[sequence].slot, out.size());
    runner_.work().synchronise();
    return out;
  }
  hand_drafts draft(std::int32_t golden) { return draft_greedily(runner_, dev_, {sequences_[0].slot}, {golden}); }

private:
  int keep_;
  yoco_mode yoco_;
  device& dev_;
  model_runner runner_;
  std::vector<hand_sequence> sequences_;
  ints length_;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

void expect_equal(replayed_model& a, replayed_model& b, const std::vector<ints>& prompts, std::int32_t chunk_a,
                  std::int32_t chunk_b) {
  const auto logits_a = a.prefill(prompts, chunk_a), logits_b = b.prefill(prompts, chunk_b);
  const std::string what = " of " + std::to_string(prompts[0].size()) + " tokens in chunks of " +
                           std::to_string(chunk_a) + " and " + std::to_string(chunk_b);
  BOOST_TEST(logits_a.size() == prompts.size() * 8192);
  BOOST_TEST(same_bits(logits_a, logits_b), "logits" << what);
  for (std::size_t q = 0; q < prompts.size(); ++q)
    BOOST_TEST((a.state(q) == b.state(q)), "state" << what << ", prompt " << q);
}

// Of prompts. By hand from TROUPE_REPLAY_LENGTHS: numbers and ranges, as "141 2049" or "100..3000 step 50".
ints replay_lengths() {
  const char* by_hand = std::getenv("TROUPE_REPLAY_LENGTHS");
  std::istringstream in(by_hand != nullptr ? by_hand : "100 1024 2049 3000");
  ints lengths;
  for (std::string word; in >> word;) {
    const std::size_t dots = word.find("..");
    const std::int32_t first = std::stoi(word), last = dots == word.npos ? first : std::stoi(word.substr(dots + 2));
    std::int32_t step = 1;
    if (dots != word.npos)
      BOOST_REQUIRE_MESSAGE(in >> word >> step && word == "step" && step > 0, "a range is written FIRST..LAST step N");
    BOOST_REQUIRE_MESSAGE(first > 0 && last < 4096, "lengths are 1..4095");
    for (std::int32_t length = first; length <= last; length += step)
      lengths.push_back(length);
  }
  return lengths;
}

} // namespace

BOOST_AUTO_TEST_SUITE(replay)

BOOST_AUTO_TEST_CASE(compact_is_mask_bit_for_bit) {
  const shared_model shared("cpu");
  replayed_model mask(shared, yoco_mode::mask, 140), compact(shared, yoco_mode::compact, 140);
  for (const auto& [length, chunks] : {std::pair(140, 1), {141, 3}, {300, 8}, {613, 1}})
    expect_equal(mask, compact, {prompt_of(length, 1)}, length == 613 ? 100 : 1024, (length + chunks - 1) / chunks);
  replayed_model wide_mask(shared, yoco_mode::mask, 200), wide(shared, yoco_mode::compact, 200);
  expect_equal(wide_mask, wide, {prompt_of(300, 2)}, 170, 90);
}

BOOST_AUTO_TEST_CASE(compact_is_mask_on_other_devices) {
  const shared_model cpu("cpu");
  for (const std::string& name : with_gpu({"reference"})) {
    const shared_model other(name);
    replayed_model mask(cpu, yoco_mode::mask, 140), compact(other, yoco_mode::compact, 140);
    expect_equal(mask, compact, {prompt_of(150, 3)}, 1024, 50);
  }
}

// Prompts of all kinds in the same steps: some rows of one, none of the next.
BOOST_AUTO_TEST_CASE(company_changes_nothing) {
  const shared_model shared("cpu");
  const std::vector<ints> prompts{prompt_of(50, 4), prompt_of(700, 5), prompt_of(141, 6), prompt_of(400, 7)};
  replayed_model mask(shared, yoco_mode::mask, 140), compact(shared, yoco_mode::compact, 140);
  const auto alone = mask.prefill(prompts, 1024);
  compact.begin(prompts);
  std::vector<std::vector<float>> last(prompts.size());
  std::vector<std::size_t> at(prompts.size());
  std::mt19937 random(1);
  while (at[0] < prompts[0].size() || at[1] < prompts[1].size() || at[2] < prompts[2].size() ||
         at[3] < prompts[3].size()) {
    std::vector<replayed_model::piece> pieces;
    std::vector<std::size_t> ends; // prompts that this step ends
    for (const std::size_t q : {3, 0, 1, 2}) {
      const std::size_t rows = std::min<std::size_t>(prompts[q].size() - at[q], random() % 130);
      if (rows == 0)
        continue;
      const auto from = prompts[q].begin() + static_cast<std::ptrdiff_t>(at[q]);
      pieces.push_back({q, {from, from + static_cast<std::ptrdiff_t>(rows)}});
      at[q] += rows;
      if (at[q] == prompts[q].size())
        ends.push_back(q);
    }
    const auto logits = compact.step(pieces);
    BOOST_REQUIRE(logits.size() == ends.size() * 8192);
    for (std::size_t i = 0; i < ends.size(); ++i)
      last[ends[i]].assign(logits.begin() + static_cast<std::ptrdiff_t>(i) * 8192,
                           logits.begin() + static_cast<std::ptrdiff_t>(i + 1) * 8192);
  }
  for (std::size_t q = 0; q < prompts.size(); ++q) {
    BOOST_TEST(same_bits(last[q], {alone.begin() + static_cast<std::ptrdiff_t>(q) * 8192,
                                   alone.begin() + static_cast<std::ptrdiff_t>(q + 1) * 8192}),
               "logits of prompt " << q);
    BOOST_TEST((compact.state(q) == mask.state(q)), "state of prompt " << q);
  }
}

// What is decoded after it, with everything that speculation may take back taken back at once; and what is drafted.
BOOST_AUTO_TEST_CASE(what_follows_is_the_same) {
  const shared_model shared("cpu");
  const ints prompt = prompt_of(333, 8), taken_back = prompt_of(13, 9), output = prompt_of(30, 10);
  const auto decode = [&](yoco_mode mode, std::int32_t chunk, bool backtrack) {
    replayed_model model(shared, mode, 140);
    std::vector<float> all = model.prefill({prompt}, chunk);
    if (backtrack) {
      model.step({{0, {taken_back.begin() + 1, taken_back.end()}}});
      model.take_back(0, 12);
    }
    for (const std::int32_t token : output) {
      const auto logits = model.step({{0, {token}}});
      all.insert(all.end(), logits.begin(), logits.end());
    }
    const hand_drafts drafts = model.draft(77);
    all.insert(all.end(), drafts.logits.begin(), drafts.logits.end());
    return all;
  };
  const auto mask = decode(yoco_mode::mask, 1024, false);
  BOOST_TEST(mask.size() == (1 + 30 + 5) * 8192u);
  BOOST_TEST(same_bits(mask, decode(yoco_mode::compact, 100, false)));
  BOOST_TEST(same_bits(mask, decode(yoco_mode::compact, 1024, true)));
  BOOST_TEST(!same_bits(mask, decode(yoco_mode::off, 1024, false))); // truncation does change what a prompt yields
}

// Enough rows, and the end of a prompt is what it is without truncation.
BOOST_AUTO_TEST_CASE(exact_is_off_bit_for_bit) {
  const shared_model shared("cpu");
  replayed_model off(shared, yoco_mode::off, 0), exact(shared, yoco_mode::exact, 521);
  for (const std::int32_t length : {521, 522, 700})
    expect_equal(off, exact, {prompt_of(length, 11)}, 1024, length == 700 ? 128 : 1024);
}

// Both pairs, each side in chunks of its own.
BOOST_AUTO_TEST_CASE(prompts_short_and_long) {
  const shared_model shared("cpu");
  replayed_model mask(shared, yoco_mode::mask, 140), compact(shared, yoco_mode::compact, 140),
      off(shared, yoco_mode::off, 0), exact(shared, yoco_mode::exact, 521);
  const ints lengths = replay_lengths();
  for (const std::int32_t length : lengths) {
    const std::vector<ints> prompts{prompt_of(length, static_cast<std::uint64_t>(length))};
    expect_equal(mask, compact, prompts, 1024, 700);
    expect_equal(off, exact, prompts, 1024, 450);
  }
  BOOST_REQUIRE(!lengths.empty());
  BOOST_TEST_MESSAGE("mask and compact, exact and off: " << lengths.size() << " lengths from " << lengths.front()
                                                         << " to " << lengths.back());
}

// One row less, and the oldest key of the last layer that is still wanted is another one.
BOOST_AUTO_TEST_CASE(a_row_less_is_not_exact) {
  const shared_model shared("cpu");
  replayed_model off(shared, yoco_mode::off, 0, roundings::off), exact(shared, yoco_mode::exact, 521, roundings::off),
      less(shared, yoco_mode::compact, 520, roundings::off);
  const ints prompt = prompt_of(600, 12); // one in which attention spreads over the window, so that a key is felt
  off.prefill({prompt}, 1024), exact.prefill({prompt}, 1024), less.prefill({prompt}, 1024);
  BOOST_TEST((off.state(0) == exact.state(0)));
  const auto want = off.state(0), have = less.state(0);
  const cache_layout layout(tiny_checkpoint()->config(), roundings::off);
  const std::int64_t record = record_bytes(layout.window_format, 128), oldest = (600 - 140) % 140;
  const auto place = static_cast<std::size_t>(layout.layers[7].window + oldest * record);
  BOOST_TEST(std::memcmp(want.data() + place, have.data() + place, static_cast<std::size_t>(record)) != 0);
  std::size_t elsewhere = 0; // of the backbone
  for (std::size_t i = 0; i < static_cast<std::size_t>(layout.layers[8].window); ++i)
    elsewhere += want[i] != have[i] && (i < place || i >= place + static_cast<std::size_t>(record));
  BOOST_TEST(elsewhere == 0u);
}

namespace {

hand_request asked(ints prompt, std::uint64_t seed, int tokens) {
  hand_request r;
  r.prompt = std::move(prompt);
  r.seed = seed;
  r.params.max_tokens = tokens;
  r.params.ignore_eos = true;
  r.params.top_logprobs = 2;
  return r;
}

} // namespace

// A prompt whose start is in the cache, as far as it may be used and one token to either side of that.
BOOST_AUTO_TEST_CASE(a_prefix_hit_changes_nothing) {
  const ints text = prompt_of(1024, 13);
  for (const yoco_mode mode : {yoco_mode::compact, yoco_mode::exact}) {
    const std::int32_t keep = kept_rows(mode, 140, tiny_checkpoint()->config());
    struct run {
      std::int32_t length, hit;
    };
    std::vector<run> runs{{128 + keep, 0}, {128 + keep, 128}};
    if (mode == yoco_mode::compact)
      runs = {{128 + keep, 0},   {127 + keep, 0},   {128 + keep, 128},
              {129 + keep, 128}, {256 + keep, 128}, {256 + keep, 256}};
    std::vector<hand_request> requests;
    for (const run& r : runs)
      requests.push_back(asked({text.begin(), text.begin() + r.length}, 2, 4));
    hand_engine cold({.max_num_seqs = 4, .yoco = mode}),
        warm({.max_num_seqs = 4, .max_rows = 200, .prefix_cache = true, .yoco = mode});
    for (int i = 0; i < static_cast<int>(requests.size()); ++i) {
      const auto have = warm.run(requests, {i}), want = cold.run(requests, {i});
      BOOST_TEST((have.at(i) == want.at(i)), "request " << i << ", mode " << static_cast<int>(mode));
      BOOST_TEST(have.at(i).cached == runs[static_cast<std::size_t>(i)].hit, "request " << i);
    }
  }
}

// Requests that need every row compute it, whatever the others do, and leave behind what those may use.
BOOST_AUTO_TEST_CASE(requests_that_need_every_row_are_not_truncated) {
  const ints text = prompt_of(300, 14);
  std::vector<hand_request> requests{asked(text, 1, 3), asked(text, 1, 3)};
  requests[0].params.prompt_logprobs = true;
  hand_engine off({}), compact({.prefix_cache = true, .yoco = yoco_mode::compact});
  const auto want = off.run(requests, {0});
  BOOST_TEST((compact.run(requests, {0}) == want));
  BOOST_TEST(want.at(0).prompt_logprobs.size() == 299u);
  const auto have = compact.run(requests, {1});
  BOOST_TEST(have.at(1).cached == 128); // of 160
  hand_engine cold({.yoco = yoco_mode::compact});
  BOOST_TEST((have == cold.run(requests, {1})));
  BOOST_TEST(!(have.at(1).logprobs == want.at(0).logprobs));
}

BOOST_AUTO_TEST_CASE(preemption_and_small_steps_change_nothing) {
  std::vector<hand_request> requests;
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(asked(prompt_of(150 + 10 * i, 20 + static_cast<std::uint64_t>(i)), 5, 110));
    order.push_back(i);
  }
  hand_engine alone({.max_num_seqs = 1, .yoco = yoco_mode::compact});
  std::map<int, hand_output> want;
  for (const int i : order)
    want.merge(alone.run(requests, {i}));
  hand_engine tight({.max_num_seqs = 3,
                     .max_rows = 96,
                     .kv_blocks = 8,
                     .async = true,
                     .prefix_cache = true,
                     .yoco = yoco_mode::compact});
  const auto have = tight.run(requests, order);
  BOOST_TEST(tight.preemptions() > 0);
  for (const int i : order)
    BOOST_TEST((have.at(i) == want.at(i)), "request " << i);
}

BOOST_AUTO_TEST_SUITE_END()
