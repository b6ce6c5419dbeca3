// Scheduler core, KV cache and stub model without actors: an engine whose every message waits for the test.
#pragma once
#include "runtime/kv/kv_cache.hpp"
#include "runtime/scheduler/scheduler_core.hpp"
#include "tests/support/stub_engine.hpp"
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace troupe {

struct core_request {
  std::shared_ptr<sequence_spec> spec = std::make_shared<sequence_spec>();
  scheduling_request ask;

  core_request(std::uint64_t id, std::vector<std::int32_t> prompt, std::int32_t max_tokens, std::uint64_t seed = 0) {
    spec->id = sequence_id{id};
    spec->request_id = "r" + std::to_string(id);
    spec->params.max_tokens = max_tokens;
    spec->seq_seed = seed;
    spec->prompt_tokens = static_cast<std::int32_t>(prompt.size());
    ask.spec = spec;
    ask.prompt = std::make_shared<const std::vector<std::int32_t>>(std::move(prompt));
  }
};

inline std::vector<std::int32_t> made_prompt(std::int32_t length, std::int32_t first = 1) {
  std::vector<std::int32_t> p;
  for (std::int64_t i = 0; i < length; ++i)
    p.push_back(static_cast<std::int32_t>((first + 7 * i + i * i / 3) % 50));
  return p;
}

struct core_outcome {
  std::vector<std::int32_t> tokens;
  std::vector<float> prompt_logprobs, logits;
  finish_reason end = finish_reason::none;
  int ends = 0;
  bool late = false; // something came after the end, or tokens out of order
  error failure;
  bool aborted = false, struck = false;  // ended by the test: by abort(), or by a step of its that failed
  std::int64_t submitted = 0, ended = 0; // steps planned by then; `ended`: by the call that ended it
  std::int64_t steps = 0, first_token_step = -1, longest_gap = 0, last_token_step = 0;
  std::int32_t preemptions = 0, cached = 0;
  std::int64_t verified = 0, accepted = 0; // drafts
};

struct core_world {
  scheduler_limits limits;
  scheduler_core core;
  kv_cache kv;
  stub_model model;
  kv_want want;
  kv_got got;
  std::vector<sequence_event> events;
  std::deque<step_plan> out; // steps that are out, oldest first; they run when their result is asked for
  std::map<std::uint64_t, core_outcome> results;
  std::vector<sequence_event> handoffs; // what has to do with another engine, in order; for the test to take
  std::set<std::uint64_t> host_paced;
  std::set<std::uint64_t> last_rows_alone; // branches and sequences behind images: a decode step ends their prompts
  std::map<std::uint64_t, std::vector<std::int32_t>> given; // output that was given out, before a replay too
  std::map<std::uint64_t, std::uint64_t> aborted;           // that the KV cache may still hold: steps planned by then
  struct judge { // of a request's masks: another matcher, fed with what was given out
    constraint_matcher matcher;
    std::size_t fed = 0;
  };
  std::map<std::uint64_t, judge> judges;
  std::int64_t masks = 0, free_rows = 0; // rows of constrained sequences that had one, that were free
  std::string trouble;                   // first broken rule
  std::string kinds;                     // of all steps, P and D
  std::size_t widest = 0;                // rows of a step
  std::int64_t foretold = 0;             // steps whose tokens the planner foretold
  std::map<std::uint64_t, std::uint64_t> preemptions_before; // by the number of a step, when it had been planned

  static kv_cache_settings cache_of(const scheduler_limits& l, std::int32_t slots) {
    kv_cache_settings s;
    s.blocks = l.kv_blocks;
    s.slots = slots > 0 ? slots : 1 + 2 * l.max_num_seqs;
    s.snapshot_slots = l.max_num_seqs;
    s.numerics_id = "stub", s.model_id = "stub";
    return s;
  }

  explicit core_world(const scheduler_limits& l, std::int32_t slots = 0, step_cost cost = {},
                      std::shared_ptr<mask_helpers> helpers = nullptr)
      : limits(l), core(l, std::move(cost), std::move(helpers)), kv(cache_of(l, slots)), model(l.kv_blocks) {
    model.history = l.history;
    model.nextn = l.nextn;
  }

  void blame(const std::string& what) {
    if (trouble.empty())
      trouble = what;
  }

  void absorb() { absorb(core.steps()); }
  void absorb(std::uint64_t steps) {
    for (sequence_event& e : events) {
      if (e.handoff != handoff_news::none) {
        handoffs.push_back(std::move(e));
        continue;
      }
      core_outcome& r = results[e.id.value];
      r.late = r.late || r.ends > 0 || e.outputs_before != std::ssize(r.tokens);
      const auto now = static_cast<std::int64_t>(core.steps());
      if (!e.output.tokens.empty()) {
        if (r.tokens.empty())
          r.first_token_step = now;
        else
          r.longest_gap = std::max(r.longest_gap, now - r.last_token_step);
        r.last_token_step = now;
        for (const drawn_token& t : e.output.tokens)
          r.tokens.push_back(t.id), given[e.id.value].push_back(t.id);
        r.accepted += std::ssize(e.output.tokens) - 1;
        r.verified += e.output.drafts;
      }
      r.prompt_logprobs.insert(r.prompt_logprobs.end(), e.output.prompt_logprobs.begin(),
                               e.output.prompt_logprobs.end());
      r.logits.insert(r.logits.end(), e.output.logits.begin(), e.output.logits.end());
      r.ends += e.end != finish_reason::none;
      r.end = e.end;
      r.ended = static_cast<std::int64_t>(steps);
      r.failure = e.failure;
      r.steps = e.steps, r.preemptions = e.preemptions, r.cached = e.cached_tokens;
    }
    events.clear();
  }

  status submit(core_request r) {
    r.ask.spec = r.spec;
    if (r.ask.host_paced || r.ask.constraint)
      host_paced.insert(r.spec->id.value);
    if (r.ask.share == sequence_share::rest || r.ask.fork_of.value != 0)
      last_rows_alone.insert(r.spec->id.value);
    const std::vector<std::int32_t> emitted = r.ask.emitted;
    const std::uint64_t id = r.spec->id.value;
    if (r.ask.constraint && !judges.contains(r.spec->id.value))
      judges.emplace(r.spec->id.value,
                     judge{constraint_matcher(r.ask.constraint->grammar, r.ask.constraint->trigger, 64), 0});
    auto s = core.submit(std::move(r.ask), events);
    if (s) {
      aborted.erase(id); // it is another sequence's now
      given[id] = emitted;
      results[id].submitted = static_cast<std::int64_t>(core.steps());
    }
    absorb();
    return s;
  }
  bool abort(std::uint64_t id) {
    const bool was = core.abort(sequence_id{id}, events);
    if (was != (events.size() == 1 && events[0].id.value == id && events[0].end == finish_reason::abort))
      blame("an abort ends the one sequence, at once");
    absorb();
    if (was)
      aborted[id] = core.steps(), results[id].aborted = true;
    return was;
  }

  bool begin_turn() {
    const step_intent i = core.intent();
    return core.want(decide_step(std::span(&i, 1), core.rule()), want);
  }
  // True if a step came of it.
  bool end_turn() {
    if (!want.empty())
      kv.turn(want, got);
    step_plan p;
    const std::uint64_t before = core.steps();
    const bool made = core.plan(got, p, events);
    absorb(before);
    check_aborted();
    if (!made)
      return false;
    check(p);
    preemptions_before[p.number] = core.preemptions();
    kinds += p.kind == step_kind::prefill ? 'P' : 'D';
    out.push_back(std::move(p));
    return true;
  }
  void check(const step_plan& p) {
    widest = std::max(widest, p.tokens.size());
    if (std::ssize(p.tokens) > limits.max_num_batched_tokens)
      blame("more rows than the budget");
    if (std::ssize(p.sequences) > limits.max_num_seqs || core.running() > static_cast<std::size_t>(limits.max_num_seqs))
      blame("more sequences than max_num_seqs");
    for (const planned_sequence& s : p.sequences)
      if (s.start + s.rows > limits.max_model_len)
        blame("a position behind max_model_len");
    for (const planned_sequence& s : p.sequences)
      if (host_paced.contains(s.spec->id.value))
        check_known(p, s);
    for (const planned_sequence& s : p.sequences) {
      check_kind(p, s);
      check_masks(p, s);
    }
    if (out.size() > (limits.async ? 1u : 0u))
      blame("Z4: too many steps out"); // engine.md §8.5
  }
  // I6: rows of prompts in prefill steps and nothing else there; in decode steps the newest token with its drafts, or
  // tokens that were given out before, in front of them the last row of a prompt that was computed for another one.
  void check_kind(const step_plan& p, const planned_sequence& s) {
    const std::int32_t prompt = s.spec->prompt_tokens, own = s.rows - s.drafts;
    if (p.kind == step_kind::prefill) {
      if (s.start + s.rows > prompt || s.drafts > 0 || s.slack > 0)
        blame("I6: rows of an output in a prefill step");
      return;
    }
    if (s.start < prompt && !(s.start == prompt - 1 && last_rows_alone.contains(s.spec->id.value)))
      blame("I6: rows of a prompt in a decode step");
    const std::vector<std::int32_t>& known = given[s.spec->id.value];
    for (std::int32_t i = 0; own > 1 && i < own; ++i)
      if (const std::int32_t output = s.start + i - prompt;
          output >= std::ssize(known) || (output >= 0 && known[static_cast<std::size_t>(output)] !=
                                                             p.tokens[static_cast<std::size_t>(s.first_token + i)]))
        blame("I6: several rows of " + s.spec->request_id + " in a decode step that are no tokens given out before");
    const std::int32_t end = s.start + own;
    const bool again = s.sample && s.next >= 0; // the newest token, by rejection
    if ((s.sample && !again) != (end - prompt >= std::ssize(known) && end < limits.max_model_len))
      blame("I6: a decode step that draws behind an old token, or not behind the newest");
    if (again && (!limits.rejection || !s.propose || end - prompt != std::ssize(known) - 1 || s.next != known.back()))
      blame("another token is drawn again than the newest, or for no drafts");
  }
  // Blocks and a state slot, which come and go together.
  bool holds(std::uint64_t id) const { return !kv.table(sequence_id{id}).empty(); }
  // I10: an aborted sequence holds nothing any more when two steps have been planned since.
  void check_aborted() {
    std::erase_if(aborted, [&](const auto& a) { return !holds(a.first); });
    for (const auto& [id, step] : aborted)
      if (core.steps() > step + 2)
        blame("I10: request " + std::to_string(id) + " holds its blocks and its slot for more than two steps");
  }
  // Every row that draws has the mask that belongs behind the tokens before it, bit by bit.
  void check_masks(const step_plan& p, const planned_sequence& s) {
    const auto found = judges.find(s.spec->id.value);
    if (found == judges.end() || !s.sample || s.next >= 0) {
      if (s.first_mask >= 0)
        blame("masks where nothing is constrained");
      return;
    }
    auto& [matcher, fed] = found->second;
    for (const auto& tokens = results[s.spec->id.value].tokens; fed < tokens.size(); ++fed)
      if (!matcher.accept(tokens[fed]))
        blame("a token that the constraint does not allow was given out");
    std::vector<std::uint32_t> allowed(static_cast<std::size_t>(model.vocab + 31) / 32);
    std::size_t taken = 0;
    for (std::int32_t k = 0; k <= s.drafts; ++k) {
      const std::int32_t row = s.first_mask < 0 ? -1 : p.mask_rows.at(static_cast<std::size_t>(s.first_mask + k));
      if (k > 0 && !matcher.accept(p.tokens[static_cast<std::size_t>(s.first_token + s.rows - s.drafts + k - 1)])) {
        if (!limits.rejection || k < s.drafts || row >= 0)
          blame("a draft that can not be drawn");
        break; // by rejection the last draft may be one; nothing is drawn behind it
      }
      taken += k > 0;
      const bool constrained = matcher.constrained() && !matcher.finished();
      if (constrained != (row >= 0))
        blame("a row without its mask, or with one where it is free");
      ++(constrained ? masks : free_rows);
      matcher.fill(allowed.data());
      if (row >= 0 && !std::equal(allowed.begin(), allowed.end(), p.masks.begin() + std::ptrdiff_t{row} * p.mask_words))
        blame("another mask than the one behind its tokens");
    }
    matcher.rollback(taken);
  }
  // The host knows all tokens of a sequence that it paces, and nothing of it is out that could draw another.
  void check_known(const step_plan& p, const planned_sequence& s) {
    for (std::int32_t i = 0; i < s.rows; ++i)
      if (p.tokens[static_cast<std::size_t>(s.first_token + i)] < 0)
        blame("a token of " + s.spec->request_id + " is not known to the host");
    for (const step_plan& before : out)
      for (const planned_sequence& o : before.sequences)
        if (o.sample && o.spec->id == s.spec->id && life_of(o) == life_of(s))
          blame("a step of " + s.spec->request_id + " that draws is out already");
  }
  static std::int32_t life_of(const planned_sequence& s) { return s.slot.value; }
  // The oldest step runs and its result is booked.
  void finish_step() {
    step_result r;
    model.run(out.front(), r);
    out.pop_front();
    core.complete(r, events);
    preemptions_before.erase(r.number);
    check_outcome();
    absorb();
  }
  // What the core says of a step's drafts agrees with what came of it.
  void check_outcome() {
    const step_outcome& o = core.outcome();
    std::int64_t emitted = 0, verified = 0;
    for (const sequence_event& e : events)
      emitted += std::ssize(e.output.tokens);
    for (std::size_t i = 0; i < o.verified.size(); ++i) {
      verified += o.verified[i];
      if (o.verified[i] < 1 || o.verified[i] > limits.nextn || o.accepted[i] < 0 || o.accepted[i] > o.verified[i])
        blame("accepted drafts");
    }
    if (o.emitted != emitted || o.accepted.size() != o.verified.size() || std::ssize(o.confidences) != verified ||
        (o.rows == 0 && verified > 0) || (limits.nextn == 0 && o.rows > 0))
      blame("the outcome of a step");
    if (o.expected_ms > 0)
      ++foretold;
  }
  // The device fails in it; what it wrote is anything.
  void fail_step() {
    step_result r;
    r.number = out.front().number;
    r.failure = "device lost";
    model.spoil(out.front());
    std::set<std::uint64_t> in_it;
    for (const planned_sequence& s : out.front().sequences)
      if (results[s.spec->id.value].ends == 0)
        in_it.insert(s.spec->id.value);
    out.pop_front();
    core.complete(r, events);
    check_struck(in_it, core.preemptions() == preemptions_before.at(r.number));
    absorb();
    if (!out.empty()) { // computed on what the failed one left behind: must not count, however it looks
      const std::string before = model.complaint;
      step_result next;
      model.run(out.front(), next);
      model.complaint = before;
      out.pop_front();
      core.complete(next, events);
      absorb();
    }
  }
  // A failed step ends its own sequences, but for those that have lost their cache since it was planned, and no other.
  void check_struck(const std::set<std::uint64_t>& in_it, bool none_preempted) {
    std::size_t ended = 0;
    for (const sequence_event& e : events) {
      if (e.end != finish_reason::error || e.failure.code != "device_error" ||
          !e.failure.message.ends_with("device lost") || !in_it.contains(e.id.value))
        blame("request r" + std::to_string(e.id.value) +
              " has something of a failed step but its end, or is not in it");
      results[e.id.value].struck = true;
      ++ended;
    }
    if (none_preempted && ended != in_it.size())
      blame("a sequence outlives its failed step");
  }
  // Turns until no step can be added, then one result; false when nothing is left to do.
  bool step() {
    while (begin_turn())
      end_turn();
    if (out.empty())
      return false;
    finish_step();
    return true;
  }
  void run(int limit = 1000000) {
    while (step() && limit-- > 0) {
    }
    settle();
  }
  // Tells the KV cache what ended.
  void settle() {
    if (core.want(std::nullopt, want))
      end_turn();
  }
  std::vector<std::int32_t> rows(std::size_t of_step = 0) const {
    std::vector<std::int32_t> v;
    for (const auto& s : out.at(of_step).sequences)
      v.push_back(s.rows);
    return v;
  }
  bool healthy() {
    if (!core.consistent())
      blame("the core's books disagree");
    if (!kv.conserved())
      blame("blocks or slots are lost");
    if (!model.complaint.empty())
      blame(model.complaint);
    return trouble.empty();
  }
};

inline scheduler_limits small_limits(bool async = false) {
  scheduler_limits l;
  l.max_num_batched_tokens = 256;
  l.max_model_len = 1000;
  l.kv_blocks = 60;
  l.async = async;
  return l;
}

// The output that the request has with nobody else there.
inline std::vector<std::int32_t> alone(const core_request& r, const core_world& w) {
  return stub_alone(*r.spec, *r.ask.prompt, w.model.vocab, w.limits.max_model_len, r.ask.constraint.get()).output;
}

// One turn; true if a step came of it.
inline bool turn(core_world& w) {
  return w.begin_turn() && w.end_turn();
}

} // namespace troupe
