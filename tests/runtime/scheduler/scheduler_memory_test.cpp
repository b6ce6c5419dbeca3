// The hot path allocates nothing once its vectors have their sizes, and what requests allocate goes with them: counted
// through the replaced operator new.
#include "tests/support/core_world.hpp"
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <fstream>
#include <new>
#include <random>
#include <unistd.h>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {
thread_local std::size_t allocations = 0, released = 0;
}

[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* p = std::malloc(size > 0 ? size : 1))
    return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  released += p != nullptr;
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  released += p != nullptr;
  std::free(p);
}

using namespace troupe;

#endif

BOOST_AUTO_TEST_SUITE(scheduler_memory)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

BOOST_AUTO_TEST_CASE(decoding_allocates_nothing) {
  BOOST_TEST_MESSAGE("skipped: the sanitizers have an operator new of their own");
}
BOOST_AUTO_TEST_CASE(c17_a_million_requests_leave_the_memory_as_it_was) {
  BOOST_TEST_MESSAGE("skipped: the sanitizers keep freed memory");
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

std::size_t resident_bytes() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Two steps out, as many requests as run at once waiting, some of them aborted.
struct soak {
  core_world w{limits()};
  step_plan plans[2];
  step_result result;
  std::minstd_rand random{1};
  std::uint64_t next = 1, ended = 0, hits = 0, aborts = 0;
  std::size_t planned = 0, done = 0;

  static scheduler_limits limits() {
    scheduler_limits l;
    l.max_num_seqs = 64;
    l.max_num_batched_tokens = 1024;
    l.max_model_len = 1024;
    l.kv_blocks = 1 + 66;
    return l;
  }
  void ask() {
    const auto length = static_cast<std::int32_t>(1 + random() % (random() % 32 == 0 ? 300 : 16));
    const auto tokens = static_cast<std::int32_t>(1 + random() % (random() % 64 == 0 ? 200 : 4));
    core_request r(next, made_prompt(length, static_cast<std::int32_t>(random() % 20)), tokens);
    BOOST_REQUIRE(w.core.submit(std::move(r.ask), w.events));
    ++next;
    if (random() % 50 == 0)
      aborts += w.core.abort(sequence_id{next - 1 - random() % std::min<std::uint64_t>(next - 1, 64)}, w.events);
  }
  void plan() {
    while (w.begin_turn()) {
      if (!w.want.empty())
        w.kv.turn(w.want, w.got);
      planned += w.core.plan(w.got, plans[planned % 2], w.events);
    }
  }
  void finish() {
    const step_plan& p = plans[done++ % 2];
    result.number = p.number;
    result.sequences.resize(p.sequences.size());
    for (std::size_t i = 0; i < p.sequences.size(); ++i) {
      result.sequences[i].id = p.sequences[i].spec->id;
      result.sequences[i].start = p.sequences[i].start;
      result.sequences[i].tokens.assign(p.sequences[i].sample ? 1 : 0, {7, 0, {}});
    }
    w.core.complete(result, w.events);
  }
  // Until so many requests in all have ended, and nothing is left.
  void run(std::uint64_t requests) {
    while (ended < requests || planned > done) {
      while (next <= requests && w.core.live() < 128)
        ask();
      plan();
      if (planned > done)
        finish();
      for (const sequence_event& e : w.events)
        if (e.end != finish_reason::none) {
          ++ended;
          hits += e.cached_tokens > 0;
        }
      w.events.clear();
    }
    if (w.core.want(std::nullopt, w.want)) { // what ended last
      w.kv.turn(w.want, w.got);
      w.core.plan(w.got, plans[planned % 2], w.events);
    }
    BOOST_TEST(w.core.live() == 0u);
    BOOST_TEST(w.kv.sequences() == 0u);
  }
};

// Each look comes when all have ended: what is still allocated are the entries of the prefix cache and vectors that are
// used again.
BOOST_AUTO_TEST_CASE(c17_a_million_requests_leave_the_memory_as_it_was) {
  constexpr std::uint64_t requests = 1'000'000;
  soak s;
  s.run(requests / 10);
  const std::size_t allocated = allocations - released, resident = resident_bytes();
  s.run(requests);
  const std::size_t allocated_now = allocations - released, resident_now = resident_bytes();
  BOOST_TEST_MESSAGE(allocated << " and " << allocated_now << " blocks of memory, " << resident << " and "
                               << resident_now << " bytes resident, " << s.hits << " hits, " << s.aborts << " aborts");
  BOOST_TEST(s.ended == requests);
  BOOST_TEST(s.hits > 1000u);
  BOOST_TEST(s.aborts > 1000u);
  BOOST_TEST(allocated_now <= allocated + 100);
  BOOST_TEST(resident_now <= resident + resident / 100);
}

#endif

BOOST_AUTO_TEST_SUITE_END()
