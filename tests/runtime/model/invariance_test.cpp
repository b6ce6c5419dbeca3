// The promise of exactness.md §1 on the embedded model: what a request yields does not depend on the company it runs
// in.
#include "tests/support/gpu.hpp"
#include "tests/support/hand_engine.hpp"
#include "tests/support/sanitizers.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr int mixed_count = by_build(64, 6, 6);

std::vector<int> numbered(int n) {
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

void check_equal(const std::map<int, hand_output>& a, const std::map<int, hand_output>& b, const std::string& what) {
  BOOST_REQUIRE_EQUAL(a.size(), b.size());
  for (const auto& [index, output] : a)
    BOOST_TEST((output == b.at(index)), what << ": request " << index << " differs");
}

std::map<int, hand_output> one_by_one(const std::vector<hand_request>& requests, const hand_engine_options& options) {
  hand_engine alone(options);
  std::map<int, hand_output> out;
  for (int i = 0; i < static_cast<int>(requests.size()); ++i)
    out.merge(alone.run(requests, {i}));
  return out;
}

} // namespace

BOOST_AUTO_TEST_SUITE(invariance)

BOOST_AUTO_TEST_CASE(c14_batching_order_chunks_and_threads_change_nothing) {
  auto requests = mixed_requests(mixed_count, 1, 12);
  auto alone = one_by_one(requests, {.max_rows = 512});
  std::size_t tokens = 0;
  for (const auto& [index, o] : alone) {
    BOOST_TEST(o.tokens.size() >= 1u);
    BOOST_TEST(o.prompt_logprobs.size() ==
               (requests[index].params.prompt_logprobs ? requests[index].prompt.size() - 1 : 0u));
    tokens += o.tokens.size();
  }
  BOOST_TEST(tokens > 3u * mixed_count);
  std::mt19937_64 random(7);
  for (int chunk : {16, 64, 512})
    for (int threads : {1, 2}) {
      auto order = numbered(mixed_count);
      std::shuffle(order.begin(), order.end(), random);
      hand_engine together({.threads = threads, .max_num_seqs = chunk == 16 ? 16 : 64, .max_rows = chunk});
      check_equal(alone, together.run(requests, order),
                  "chunk " + std::to_string(chunk) + ", threads " + std::to_string(threads));
    }
}

// The logits themselves, of every row of a text that is given in pieces of q rows: 1 to 6 as decode steps verify
// drafts, more as prompts are cut. In every other step another sequence has rows before them, of another number each
// time.
BOOST_AUTO_TEST_CASE(c14_logits_have_equal_bits_for_every_number_of_rows_and_company) {
  constexpr std::int32_t length = by_build(200, 135, 135);
  std::mt19937 random(14);
  const auto ids = [&](std::int32_t count) {
    std::vector<std::int32_t> v(static_cast<std::size_t>(count));
    std::ranges::generate(v, [&] { return static_cast<std::int32_t>(300 + random() % 4000); });
    return v;
  };
  const std::vector<std::int32_t> text = ids(length);
  tiny_model model("cpu");
  const auto logits_of = [&](std::int32_t q, bool company) {
    hand_sequence own(1, 1, length), other(2, 10, 400);
    std::vector<float> all;
    for (std::int32_t at = 0, step = 0; at < length; ++step) {
      step_rows rows;
      std::int32_t before = 0;
      if (company && step % 2 == 0) {
        before = static_cast<std::int32_t>(1 + random() % 9);
        if (std::ssize(other.ids) + before > 400)
          other.ids.clear();
        other.feed(rows, ids(before));
      }
      const std::int32_t count = std::min(q, length - at);
      own.feed(rows, std::span(text).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count)));
      model.runner->forward(rows);
      std::vector<std::int32_t> wanted(static_cast<std::size_t>(count));
      std::iota(wanted.begin(), wanted.end(), before);
      const std::vector<float> got = model.logits(wanted);
      all.insert(all.end(), got.begin(), got.end());
      at += count;
    }
    return all;
  };
  const std::vector<float> expected = logits_of(1, false);
  BOOST_TEST(expected.size() ==
             static_cast<std::size_t>(length) * static_cast<std::size_t>(model.runner->config().vocab_size));
  for (const std::int32_t q : {1, 2, 3, 4, 5, 6, 64, 127, 128, 129, length}) {
    const std::vector<float> found = logits_of(q, true);
    BOOST_REQUIRE(found.size() == expected.size());
    BOOST_TEST(std::memcmp(found.data(), expected.data(), sizeof(float) * found.size()) == 0, q << " rows a step");
  }
}

BOOST_AUTO_TEST_CASE(reference_and_cpu_give_equal_bits) {
  constexpr int count = by_build(12, 1, 1); // the reference device takes its time
  auto requests = mixed_requests(count, 2, 6);
  if (any_sanitizer)
    requests[0].prompt.resize(std::min<std::size_t>(requests[0].prompt.size(), 20));
  for (auto rounding : {roundings::serving, roundings::model, roundings::off}) {
    hand_engine reference({.device = "reference", .rounding = rounding}),
        cpu({.device = "cpu", .rounding = rounding, .threads = 2});
    check_equal(reference.run(requests, numbered(count)), cpu.run(requests, numbered(count)),
                "roundings " + std::to_string(static_cast<int>(rounding)));
  }
}

// Steps that are queued, filled up and recorded: what no GPU is needed to see.
BOOST_AUTO_TEST_CASE(a_queue_and_recorded_steps_change_nothing) {
  auto requests = mixed_requests(16, 5, 12);
  hand_engine at_once({}), padded({.decode = decode_form::padded}), queued({.device = "queued cpu", .async = true});
  hand_engine eager({.device = "queued cpu", .async = true, .decode = decode_form::eager});
  hand_engine tight({.device = "queued cpu",
                     .max_num_seqs = 16,
                     .max_rows = 64,
                     .kv_blocks = 8,
                     .async = true,
                     .prefix_cache = true});
  const auto expected = at_once.run(requests, numbered(16));
  check_equal(expected, padded.run(requests, numbered(16)), "padded");
  check_equal(expected, queued.run(requests, numbered(16)), "queued, two steps out, recorded");
  check_equal(expected, eager.run(requests, numbered(16)), "queued, two steps out");
  check_equal(expected, tight.run(requests, numbered(16)), "queued, two steps out, little room");
}

// Greedy and sampled requests on a GPU: equal bits with the CPU, alone and in any company.
BOOST_AUTO_TEST_CASE(cuda_reference_and_cpu_give_equal_bits) {
  if (!gpu())
    return;
  auto requests = mixed_requests(32, 4, 64);
  for (auto rounding : {roundings::serving, roundings::model, roundings::off}) {
    const std::string what = "roundings " + std::to_string(static_cast<int>(rounding));
    hand_engine cpu({.device = "cpu", .rounding = rounding, .threads = 2});
    auto expected = cpu.run(requests, numbered(32));
    for (int chunk : {64, 512}) {
      hand_engine gpu({.device = "cuda-reference",
                       .rounding = rounding,
                       .max_num_seqs = chunk == 64 ? 8 : 64,
                       .max_rows = chunk,
                       .async = chunk == 64,
                       .decode = chunk == 64 ? decode_form::automatic : decode_form::eager});
      check_equal(expected, gpu.run(requests, numbered(32)), what + ", chunk " + std::to_string(chunk));
    }
  }
}

// The comparison above would be worthless if it could not see a difference: roundings and seeds do change the output.
BOOST_AUTO_TEST_CASE(what_may_change_bytes_does) {
  auto requests = mixed_requests(8, 3, 6);
  hand_engine serving({}), model({.rounding = roundings::model});
  auto a = serving.run(requests, numbered(8)), b = model.run(requests, numbered(8));
  BOOST_TEST(!(a == b));
  for (auto& r : requests)
    r.seed += 1;
  BOOST_TEST(!(a == serving.run(requests, numbered(8))));
}

BOOST_AUTO_TEST_SUITE_END()
