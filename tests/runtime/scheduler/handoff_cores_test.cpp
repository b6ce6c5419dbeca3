// Two engines without actors, one for prompts and one for what comes behind them, with the handoff between: whatever is
// lost, given up or preempted, the tokens are those of one engine, and nothing stays behind on either side.
#include "runtime/kv/handoff.hpp"
#include "tests/support/core_world.hpp"
#include "tests/support/sanitizers.hpp"
#include <boost/test/unit_test.hpp>
#include <random>

using namespace troupe;

namespace {

image_shape shape_of(const core_request& r) {
  return {static_cast<std::int64_t>(stub_model::block_bytes), static_cast<std::int64_t>(stub_model::state_bytes),
          r.spec->prompt_tokens - 1, "stub"};
}

const handoff_times times{200, 50, 400};

// One request on its way through both.
struct course {
  core_request request;
  std::uint64_t number = 0, attempt = 0;
  std::vector<std::int32_t> emitted; // before this attempt
  std::optional<outgoing_handoff> out;
  std::optional<incoming_handoff> in;
  bool computing = false, adopted = false, ended = false, stopped_short = false;
  std::uint64_t id() const { return number + 1000 * attempt; } // of the sequence, on both sides
};

struct tally {
  std::int64_t completed = 0, retries = 0, aborted = 0, no_room = 0, hits = 0, preempted_rest = 0, preempted_prompt = 0,
               forks = 0, lost_steps = 0, parts = 0;
};

class trial {
public:
  trial(unsigned seed, tally& t)
      : random_(seed), faults_(seed % 2 == 0), prompts_(limits(true)), rest_(limits(false)), tally_(t) {
    rest_.model.right = 0.7;
    const int count = pick(1, 10);
    for (int i = 1; i <= count; ++i) {
      core_request r(static_cast<std::uint64_t>(i),
                     made_prompt(pick(2, chance(50) ? 40 : 600), chance(70) ? 1 : pick(0, 40)),
                     pick(1, chance(80) ? 40 : 200), random_());
      r.spec->params.ignore_eos = true;
      r.ask.host_paced = chance(20);
      courses_.push_back({std::move(r), static_cast<std::uint64_t>(i), 0, {}, {}, {}, false, false, false, false});
    }
  }

  std::string run() {
    for (now_ = 0; now_ < 200000; ++now_) {
      for (course& c : courses_)
        if (!c.ended && c.attempt == 0 && chance(20))
          begin(c);
      act();
      take_events();
      if (!prompts_.healthy() || !rest_.healthy())
        return prompts_.trouble + "/" + rest_.trouble + " at " + std::to_string(now_);
      if (std::ranges::all_of(courses_, &course::ended) && prompts_.core.live() + rest_.core.live() == 0)
        break;
    }
    return judge();
  }

private:
  int pick(int lo, int hi) { return lo + static_cast<int>(random_() % static_cast<std::uint64_t>(hi - lo + 1)); }
  bool chance(int percent) { return pick(1, 100) <= percent; }

  scheduler_limits limits(bool prompts) {
    scheduler_limits l;
    l.max_model_len = 850;
    l.max_num_seqs = pick(1, 6);
    l.max_num_batched_tokens = pick(prompts ? 20 : 6, 300);
    l.kv_blocks = 1 + blocks_for(l.max_model_len) + pick(0, 8);
    l.async = chance(70);
    l.prefix_cache = chance(80);
    l.snapshot_interval = 128 * pick(0, 2);
    l.nextn = prompts ? 0 : pick(0, 5);
    l.yoco = chance(50) ? yoco_mode::compact : yoco_mode::off;
    return l;
  }

  core_request again(const course& c, sequence_share share) {
    core_request r = c.request;
    r.spec = std::make_shared<sequence_spec>(*c.request.spec);
    r.spec->id = sequence_id{c.id()};
    r.ask.share = share;
    r.ask.emitted = share == sequence_share::prompt ? std::vector<std::int32_t>() : c.emitted;
    return r;
  }

  void begin(course& c) {
    ++c.attempt;
    c.out.reset(), c.in.reset();
    c.computing = c.adopted = false;
    if (const status s = rest_.submit(again(c, sequence_share::rest)); !s) {
      tally_.no_room += s.failure().code == "no_room";
      --c.attempt;
      if (c.attempt > 0)
        retry_.push_back(c.number);
    } else if (chance(30)) { // a branch that shares the prompt; it may be refused its place, never its bytes
      core_request b = again(c, sequence_share::whole);
      b.spec->id = sequence_id{c.id() + 500};
      b.spec->seq_seed += 17;
      b.ask.fork_of = sequence_id{c.id()};
      b.ask.emitted.clear();
      if (rest_.submit(b))
        branches_.push_back({c.id() + 500, b});
    }
  }

  // What came is kept, and it begins again.
  void start_over(course& c) {
    prompts_.abort(c.id());
    rest_.abort(c.id());
    if (c.out)
      c.out->end({"closed", ""});
    if (c.in)
      c.in->end({"closed", ""});
    const auto& got = rest_.results[c.id()].tokens;
    c.emitted.insert(c.emitted.end(), got.begin(), got.end());
    ++tally_.retries;
    begin(c);
  }

  course* find(sequence_id id) {
    for (course& c : courses_)
      if (c.id() == id.value)
        return &c;
    return nullptr;
  }

  void turn_of(core_world& w) {
    if (w.out.empty() || chance(50)) {
      if (w.begin_turn())
        w.end_turn();
      else if (!w.out.empty())
        w.finish_step();
    } else if (faults_ && chance(1)) {
      w.fail_step();
      ++tally_.lost_steps;
    } else {
      w.finish_step();
    }
  }

  void act() {
    turn_of(chance(50) ? prompts_ : rest_);
    course& c = courses_[static_cast<std::size_t>(pick(0, static_cast<int>(courses_.size()) - 1))];
    if (c.attempt == 0 || c.ended)
      return;
    if (c.out && c.in && !c.adopted)
      carry(c);
    if (faults_ && chance(1) && c.attempt < 6)
      start_over(c);
    else if (faults_ && chance(1) && chance(20)) {
      rest_.abort(c.id());
      prompts_.abort(c.id());
      c.ended = c.stopped_short = true;
      ++tally_.aborted;
    }
    const std::vector<std::uint64_t> waiting = std::exchange(retry_, {});
    for (const std::uint64_t n : waiting)
      begin(courses_[n - 1]);
  }

  void carry(course& c) {
    if (const auto chunk = c.out->next(now_)) {
      c.out->sent(*chunk, now_);
      if (!(faults_ && chance(2)))
        c.in->take(*chunk, now_);
      if (chunk->kind == chunk_kind::commit)
        c.out->delivered(now_);
    }
    c.in->tick(now_);
    if (c.in->whole()) {
      if (!rest_.core.arrived(sequence_id{c.id()}, c.in->take_image(), c.in->cached()))
        rest_.blame("an image for nobody");
      c.adopted = true;
    } else if (c.in->over() && !c.adopted) {
      start_over(c);
    }
  }

  void take_events() {
    for (const sequence_event& e : std::exchange(rest_.handoffs, {})) {
      course* c = find(e.id);
      if (c == nullptr || c->ended)
        continue;
      c->in.emplace(shape_of(c->request), times, now_);
      c->out.emplace(shape_of(c->request), times, now_);
      c->computing = true;
      if (!prompts_.submit(again(*c, sequence_share::prompt)))
        prompts_.blame("a prompt was refused");
    }
    for (const sequence_event& e : std::exchange(prompts_.handoffs, {})) {
      course* c = find(e.id);
      if (c == nullptr || c->ended || !c->out)
        continue;
      c->out->add(e.image, e.handoff == handoff_news::whole, e.cached_tokens, now_);
      ++tally_.parts;
      tally_.preempted_prompt += e.preemptions > 0;
    }
    for (course& c : courses_) {
      if (c.attempt == 0 || c.ended)
        continue;
      const core_outcome &rest = rest_.results[c.id()], &prompt = prompts_.results[c.id()];
      if (rest.ends > 0 && rest.end == finish_reason::length) {
        c.ended = true;
        ++tally_.completed;
        tally_.preempted_rest += rest.preemptions > 0;
        tally_.hits += rest.cached > 0;
      } else if (rest.ends > 0 || prompt.ends > 0) {
        tally_.no_room += rest.failure.code == "no_room";
        start_over(c);
      }
    }
  }

  std::string judge() {
    for (core_world* w : {&prompts_, &rest_})
      for (w->run(); w->begin_turn();) // an admission that came too late goes back with the turn behind it
        w->end_turn();
    if (!std::ranges::all_of(courses_, &course::ended))
      return "no end";
    if (prompts_.kv.sequences() + rest_.kv.sequences() != 0)
      return "caches stay behind";
    for (course& c : courses_) {
      if (c.stopped_short)
        continue;
      std::vector<std::int32_t> got = c.emitted;
      const auto& last = rest_.results[c.id()].tokens;
      got.insert(got.end(), last.begin(), last.end());
      if (got != alone(c.request, rest_))
        return "request " + std::to_string(c.number) + " has other tokens";
      if (c.emitted.empty() && rest_.results[c.id()].late)
        return "tokens out of order";
    }
    for (const auto& [id, b] : branches_)
      if (const core_outcome& r = rest_.results[id]; r.end == finish_reason::length) {
        ++tally_.forks;
        if (r.tokens != alone(b, rest_))
          return "a branch has other tokens";
      }
    return prompts_.healthy() && rest_.healthy() ? "" : "unhealthy";
  }

  std::mt19937_64 random_;
  bool faults_;
  core_world prompts_, rest_;
  tally& tally_;
  std::vector<course> courses_;
  std::vector<std::pair<std::uint64_t, core_request>> branches_;
  std::vector<std::uint64_t> retry_;
  std::int64_t now_ = 0;
};

core_request prompt_of(std::int32_t length, std::int32_t tokens = 5) {
  return {1, made_prompt(length), tokens, 9};
}

} // namespace

BOOST_AUTO_TEST_SUITE(handoff_cores)

BOOST_AUTO_TEST_CASE(a_prompt_leaves_block_by_block_and_the_other_engine_goes_on) {
  scheduler_limits l = small_limits();
  l.max_num_batched_tokens = 100;
  core_world p(l), d(l);
  core_request r = prompt_of(300);
  r.ask.share = sequence_share::rest;
  BOOST_REQUIRE(d.submit(r));
  BOOST_TEST(!d.step()); // room is all that it takes
  BOOST_REQUIRE(d.handoffs.size() == 1u);
  BOOST_TEST((d.handoffs[0].handoff == handoff_news::reserved));
  BOOST_TEST(d.kv.blocks().used_count() == 3);
  r.ask.share = sequence_share::prompt;
  BOOST_REQUIRE(p.submit(r));
  std::vector<std::size_t> sizes;
  image_bytes image;
  while (p.step())
    for (const sequence_event& e : std::exchange(p.handoffs, {})) {
      sizes.push_back(e.image->size());
      image.insert(image.end(), e.image->begin(), e.image->end());
    }
  const std::size_t block = stub_model::block_bytes;
  BOOST_TEST(sizes == (std::vector<std::size_t>{block, block, block + stub_model::state_bytes}),
             boost::test_tools::per_element()); // behind rows 200, 256 (a snapshot) and 299; behind 100 nothing is full
  p.settle();
  BOOST_TEST(p.kv.sequences() == 0u);
  BOOST_TEST(p.model.rows == 299);
  BOOST_TEST(d.core.arrived(sequence_id{1}, std::make_shared<const image_bytes>(image), 0));
  BOOST_TEST(!d.core.arrived(sequence_id{1}, std::make_shared<const image_bytes>(image), 0)); // once
  d.run();
  BOOST_TEST(d.kinds == "DDDDD"); // the prompt's last row is one of a decode step
  BOOST_TEST(d.results[1].tokens == alone(r, d), boost::test_tools::per_element());
  BOOST_TEST((p.healthy() && d.healthy()), p.trouble << d.trouble);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_shared_is_refused) {
  core_world w(small_limits());
  core_request one = prompt_of(1);
  one.ask.share = sequence_share::prompt;
  BOOST_TEST(w.submit(one).failure().code == "invalid_prompt");
  core_request rows = prompt_of(10);
  rows.spec->params.prompt_logprobs = true;
  rows.ask.share = sequence_share::rest;
  BOOST_TEST(w.submit(rows).failure().code == "invalid_prompt");
}

// What runs has the rest of the cache to grow into.
BOOST_AUTO_TEST_CASE(above_the_watermark_no_image_gets_room) {
  scheduler_limits l = small_limits();
  l.kv_blocks = 1 + 20;
  const auto reserved_of = [&](double watermark) {
    l.kv_watermark = watermark;
    core_world w(l);
    for (std::uint64_t id = 1; id <= 5; ++id) { // of three blocks each, and room for the next token
      core_request r(id, made_prompt(300, static_cast<std::int32_t>(id)), 5);
      r.ask.share = sequence_share::rest;
      BOOST_REQUIRE(w.submit(r));
    }
    w.step();
    for (std::uint64_t id = 1; id <= 5; ++id)
      BOOST_TEST((w.results[id].failure.code == "no_room" || w.holds(id)));
    const std::size_t reserved = w.handoffs.size();
    for (std::uint64_t id = 1; id <= 5; ++id)
      w.abort(id);
    w.settle();
    BOOST_TEST(w.healthy(), w.trouble);
    return reserved;
  };
  BOOST_TEST(reserved_of(1) == 5u);
  BOOST_TEST(reserved_of(0.45) == 4u); // 9 of 20 are used before the fourth, 12 before the fifth
  BOOST_TEST(reserved_of(0.44) == 3u);
  BOOST_TEST(reserved_of(0.01) == 1u); // the first is taken in any case
}

BOOST_AUTO_TEST_CASE(without_room_a_prompt_is_refused_at_once) {
  scheduler_limits l = small_limits();
  l.max_num_seqs = 1;
  core_world w(l);
  core_request first = prompt_of(300);
  first.ask.share = sequence_share::rest;
  BOOST_REQUIRE(w.submit(first));
  core_request second(2, made_prompt(300), 5);
  second.ask.share = sequence_share::rest;
  BOOST_TEST(w.submit(second).failure().code == "no_room");
  l.max_num_seqs = 4;
  l.kv_blocks = 9;
  core_world narrow(l);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    core_request r(id, made_prompt(300), 5);
    r.ask.share = sequence_share::rest;
    BOOST_REQUIRE(narrow.submit(r));
  }
  narrow.step();
  BOOST_TEST(narrow.handoffs.size() == 2u);
  BOOST_TEST(narrow.results[3].failure.code == "no_room");
  BOOST_TEST(narrow.core.running() == 2u);
  for (const std::uint64_t id : {1u, 2u})
    BOOST_TEST(narrow.abort(id));
  narrow.settle();
  BOOST_TEST(narrow.kv.sequences() == 0u);
  BOOST_TEST(narrow.healthy(), narrow.trouble);
}

BOOST_AUTO_TEST_CASE(a_prompt_waits_while_too_much_of_it_waits_to_be_sent) {
  scheduler_limits l = small_limits();
  l.max_num_batched_tokens = 128;
  core_world w(l);
  core_request r = prompt_of(600);
  r.ask.share = sequence_share::prompt;
  BOOST_REQUIRE(w.submit(r));
  BOOST_TEST(w.step());
  w.core.let_go_on(sequence_id{1}, false);
  BOOST_TEST(!w.step());
  w.core.let_go_on(sequence_id{1}, true);
  w.run();
  BOOST_TEST((w.handoffs.back().handoff == handoff_news::whole));
  BOOST_TEST(w.healthy(), w.trouble);
}

BOOST_AUTO_TEST_CASE(whatever_happens_tokens_are_right_and_nothing_stays_behind) {
  tally t;
  for (unsigned seed = 0; seed < test::by_build(1500u, 300u, 100u); ++seed) {
    trial one(seed, t);
    const std::string trouble = one.run();
    BOOST_REQUIRE_MESSAGE(trouble.empty(), "seed " << seed << ": " << trouble);
  }
  BOOST_TEST((t.completed > 500 && t.retries > 50 && t.aborted > 10 && t.no_room > 50 && t.hits > 10 &&
              t.preempted_rest >= test::by_build(10u, 3u, 1u) && t.forks > 20 && t.lost_steps > 20 && t.parts > 1000),
             t.completed << " completed, " << t.retries << " retries, " << t.aborted << " aborted, " << t.no_room
                         << " without room, " << t.hits << " hits, " << t.preempted_rest << " and "
                         << t.preempted_prompt << " preempted, " << t.forks << " branches, " << t.lost_steps
                         << " lost steps, " << t.parts << " parts");
}

BOOST_AUTO_TEST_SUITE_END()
