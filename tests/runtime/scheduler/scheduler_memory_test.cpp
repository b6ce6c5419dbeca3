// The hot path allocates nothing once its vectors have their sizes: counted through the replaced operator new.
#include "tests/support/core_world.hpp"
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <new>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {
thread_local std::size_t allocations = 0;
}

[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* p = std::malloc(size > 0 ? size : 1))
    return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

using namespace troupe;

#endif

BOOST_AUTO_TEST_SUITE(scheduler_memory)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

BOOST_AUTO_TEST_CASE(decoding_allocates_nothing) {
  BOOST_TEST_MESSAGE("skipped: the sanitizers have an operator new of their own");
}

#else

// Drafts included: two of those that a step verifies are right.
void count_allocations(bool async, std::int32_t nextn) {
  const auto right = [](std::int32_t drafts) { return std::min(drafts, 2); };
  scheduler_limits l;
  l.max_num_seqs = 64;
  l.max_num_batched_tokens = 512;
  l.kv_blocks = 2000;
  l.async = async;
  l.nextn = nextn;
  core_world w(l, 0, step_cost({{1, 1}, {64, 1.1}, {128, 1.3}, {512, 2}}));
  w.model.right = 0.5;
  for (std::uint64_t i = 1; i <= 64; ++i)
    BOOST_REQUIRE(w.submit(core_request(i, made_prompt(30, static_cast<std::int32_t>(i)), 1900, i)));
  while (w.results[64].tokens.size() < 300) // over several block boundaries
    BOOST_REQUIRE(w.step());
  while (!w.out.empty())
    w.finish_step();

  step_plan plans[2];
  for (step_plan& p : plans) {
    p.blocks.reserve(64 * 16); // block tables grow with what they cover
    p.snapshots.reserve(64);   // which of the two has a boundary in it depends on the drafts before
  }
  step_result result;
  std::int64_t verified = 0;
  std::vector<std::int32_t> accepted(64, 0); // in the step before
  std::size_t counted = 0, in_core = 0, planned = 0, done = 0;
  const auto counting = [&](auto&& call) {
    const std::size_t before = allocations;
    call();
    in_core += allocations - before;
  };
  counting([&] { result.sequences.reserve(64); });
  BOOST_TEST(in_core == 1u); // it counts
  for (int step = 0; step < 450; ++step) {
    in_core = 0;
    for (bool more = true; more;) {
      more = false;
      counting([&] {
        const step_intent i = w.core.intent();
        more = w.core.want(decide_step(std::span(&i, 1), w.core.rule()), w.want);
      });
      if (!more)
        break;
      if (!w.want.empty())
        w.kv.turn(w.want, w.got);
      counting([&] { planned += w.core.plan(w.got, plans[planned % 2], w.events); });
    }
    const step_plan& p = plans[done++ % 2];
    result.number = p.number;
    result.sequences.resize(p.sequences.size());
    for (std::size_t i = 0; i < p.sequences.size(); ++i) {
      const planned_sequence& s = p.sequences[i];
      result.sequences[i] = {};
      result.sequences[i].id = s.spec->id;
      result.sequences[i].start = s.start + (s.slack > 0 ? accepted[i] : 0);
      accepted[i] = right(s.drafts);
      result.sequences[i].drafts = s.drafts;
      result.sequences[i].tokens.assign(static_cast<std::size_t>(1 + right(s.drafts)), {1, 0, {}});
      result.sequences[i].confidence.assign(static_cast<std::size_t>(nextn), 0.7f);
      verified += s.drafts;
    }
    counting([&] { w.core.complete(result, w.events); });
    BOOST_REQUIRE(w.events.size() == 64u);
    w.events.clear();
    if (step >= 250) // the first ones still grow a vector here and there
      counted += in_core;
  }
  BOOST_TEST(counted == 0u);
  BOOST_TEST(w.core.consistent());
  BOOST_TEST((verified > 0) == (nextn > 0));
  w.core.fail_all({"done", "test"}, w.events);
}

BOOST_AUTO_TEST_CASE(decoding_allocates_nothing) {
  for (const bool async : {false, true})
    for (const std::int32_t nextn : {0, 5})
      count_allocations(async, nextn);
}

#endif

BOOST_AUTO_TEST_SUITE_END()
