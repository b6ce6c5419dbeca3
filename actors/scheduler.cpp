#include "actors/scheduler.hpp"
#include "actors/mask_threads.hpp"

namespace troupe {

namespace {

using self_ptr = scheduler_actor::stateful_pointer<scheduler_state>;

using clock = std::chrono::steady_clock;

void go_on(self_ptr self);
void end_turn(self_ptr self);
void tell_the_rest(self_ptr self);

double seconds_since(clock::time_point then) {
  return std::chrono::duration<double>(clock::now() - then).count();
}

const char* text_of(held_back why) {
  switch (why) {
  case held_back::none:
    break;
  case held_back::places:
    return "places";
  case held_back::blocks:
    return "blocks";
  case held_back::slots:
    return "slots";
  }
  return "";
}

// True: it has not started before.
bool note_start(engine_metrics& m, scheduler_state::route& r) {
  if (r.started != clock::time_point{})
    return false;
  r.started = clock::now();
  m.queue_time.observe(std::chrono::duration<double>(r.started - r.arrived).count());
  return true;
}

tokens tokens_of(scheduler_state::route& r, sequence_event& e) {
  tokens t;
  t.req = r.req;
  t.branch = r.branch;
  t.attempt = r.attempt;
  t.first_pos = r.prompt_tokens + e.outputs_before;
  std::vector<float> logprobs;
  for (const drawn_token& d : e.output.tokens) {
    t.ids.push_back(d.id);
    logprobs.push_back(d.logprob);
    t.top += pack_top(d.top);
  }
  t.logprobs = pack_f32(logprobs);
  t.prompt_logprobs = pack_f32(e.output.prompt_logprobs);
  t.logits = pack_f32(e.output.logits);
  t.end = static_cast<std::uint8_t>(e.end);
  t.stop_id = e.stop_id.value_or(-1);
  t.error_code = std::move(e.failure.code);
  t.error_text = std::move(e.failure.message);
  t.steps = e.steps;
  t.preemptions = e.preemptions;
  t.drafted = e.drafted;
  t.accepted = e.accepted;
  t.cached_tokens = e.cached_tokens;
  t.warnings = std::exchange(r.warnings, {});
  return t;
}

void forget_handoff(scheduler_state& st, const handoff_ticket& t) {
  if (t.id == 0)
    return;
  st.handoffs.erase(t.id);
  st.setup.handoffs->drop(t.id);
}

// What a sequence has to do with another engine. True: it has nothing else to say.
bool pass_on(self_ptr self, const scheduler_state::route& r, sequence_event& e) {
  auto& st = state_of(self);
  if (e.handoff == handoff_news::none)
    return false;
  if (e.handoff == handoff_news::reserved) {
    st.setup.handoffs->expect(r.handoff, r.prompt_tokens - 1);
    tell(self, r.reader, reserved{r.branch, r.attempt});
  } else if (!st.setup.handoffs->add(r.handoff.id, std::move(e.image), e.handoff == handoff_news::whole,
                                     e.cached_tokens)) {
    st.core->let_go_on(e.id, false);
  }
  return true;
}

void send_events(self_ptr self) {
  auto& st = state_of(self);
  for (sequence_event& e : st.events) {
    const auto at = st.routes.find(e.id.value);
    if (at == st.routes.end() || pass_on(self, at->second, e))
      continue;
    if (!e.output.tokens.empty() && e.outputs_before == 0) {
      note_start(st.metrics, at->second); // a branch that took another's prompt has no prefill step
      st.metrics.prefill_time.observe(seconds_since(at->second.started));
    }
    tell(self, at->second.reader, tokens_of(at->second, e));
    if (e.end == finish_reason::none)
      continue;
    forget_handoff(st, at->second.handoff);
    st.routes.erase(at);
  }
  st.events.clear();
}

// The end of a job that the core never took, or refused when its constraint was there.
void end_job(self_ptr self, const scheduler_state::constrained_job& j, const error& why) {
  const job& w = j.request.work;
  tokens t;
  t.req = w.req;
  t.branch = w.branch;
  t.attempt = w.attempt;
  t.first_pos = static_cast<std::int64_t>(w.tokens.size() + w.emitted.size());
  t.end = static_cast<std::uint8_t>(finish_reason::error);
  t.error_code = why.code;
  t.error_text = why.message;
  tell(self, j.reader, std::move(t));
}

// The engine cannot compute any more: everything alive ends with an error, nothing new is taken.
void lose(self_ptr self, const std::string& why) {
  auto& st = state_of(self);
  st.back = false;
  if (!st.lost)
    st.lost = error{"engine_lost", "engine " + std::to_string(st.setup.rank) + " cannot go on: " + why};
  if (st.part)
    tell(self, st.group_sync, rank_lost{st.setup.rank, why});
  st.part.reset();
  st.core->fail_all(*st.lost, st.events);
  send_events(self);
  for (const auto& [sequence, r] : std::exchange(st.routes, {})) { // prompts whose caches wait to be sent
    forget_handoff(st, r.handoff);
    tell(self, r.reader, handoff_lost{r.branch, r.attempt, st.lost->code, st.lost->message});
  }
  st.compiling.clear();
  for (const auto& [number, j] : std::exchange(st.constrained, {})) {
    end_job(self, j, *st.lost);
    if (st.grammars)
      tell(self, st.grammars, grammar_unwanted{number});
  }
}

// The engine computes again, once nothing is out that was given up: it would be taken for what comes next.
void come_back(self_ptr self) {
  auto& st = state_of(self);
  if (!st.lost || !st.back || st.turn_out || st.steps_answered < st.steps_sent)
    return;
  st.back = false;
  st.lost.reset();
  go_on(self);
}

bool anything_out(const scheduler_state& st) {
  return st.core->in_turn() || st.core->steps_out() > 0;
}

// One reminder at a time, not one for each message: CAF 0.17 keeps every time limit of a request until it has passed.
void remind(self_ptr self) {
  auto& st = state_of(self);
  if (!std::exchange(st.checking, true))
    tell_later(self, st.setup.step_limit, step_check{st.answers});
}

// What was out a whole limit ago and has not brought any answer since will not come back.
void check_progress(self_ptr self, const step_check& c) {
  auto& st = state_of(self);
  st.checking = false;
  if (st.lost || !anything_out(st))
    return;
  if (c.answers == st.answers)
    lose(self, std::string(st.core->in_turn() ? "the KV manager" : "the executor") + " did not answer within " +
                   std::to_string(st.setup.step_limit.count()) + " ms (step_limit)");
  else
    remind(self);
}

bool want_alone(scheduler_state& st) {
  const step_intent i = st.core->intent();
  return st.core->want(decide_step(std::span(&i, 1), st.core->rule()), *st.want);
}

// The engine has no rows in the group's step that was begun.
void pass(scheduler_state& st) {
  const step_kind kind = *st.part->begun();
  st.part->pass();
  st.core->pass(kind, st.events);
}

// The next step that the group has decided and this engine has rows in. With nothing to do the KV manager is told what
// has ended.
bool want_in_group(self_ptr self) {
  auto& st = state_of(self);
  while (const auto kind = st.part->start()) {
    if (st.core->want(*kind, *st.want))
      return true;
    pass(st);
  }
  const step_intent wishes = st.core->intent();
  if (const auto i = st.part->intent(wishes, st.core->decode_steps_left()))
    tell(self, st.group_sync, *i);
  return !wishes.prefill && !wishes.decode && st.core->want(std::nullopt, *st.want);
}

bool begin_turn(self_ptr self) {
  auto& st = state_of(self);
  if (st.core->in_turn() || st.core->steps_out() >= (st.setup.limits.async ? most_steps_out : 1))
    return false;
  if (st.held) // only what has ended gives its blocks back
    return st.core->want(std::nullopt, *st.want);
  const auto began = clock::now();
  const bool asked = st.part ? want_in_group(self) : want_alone(st);
  st.planning = seconds_since(began);
  return asked;
}

// Begins turns as long as steps may be planned and there is something to do. A turn that asks nothing of the KV manager
// ends at once.
void go_on(self_ptr self) {
  auto& st = state_of(self);
  while (!st.lost && begin_turn(self)) {
    if (!st.want->empty()) {
      tell(self, st.setup.kv, kv_turn{++st.turn, st.want, st.got});
      st.turn_out = true;
      break;
    }
    end_turn(self);
  }
  send_events(self);
  if (anything_out(st))
    remind(self);
  else
    tell_the_rest(self);
}

// Tells the verifier what the step will decode, and what came of those that have ended; its plan comes back for a later
// round. An engine alone has little to tell while it neither verifies nor drafts.
void consult_verifier(self_ptr self, const step_plan& plan) {
  constexpr std::size_t little = 64; // steps
  auto& st = state_of(self);
  if (st.setup.alone && st.core->planner().survivals().empty() && st.outcome.verified.empty() &&
      st.outcome.ended.size() < little)
    return;
  spec_load l = std::exchange(st.outcome, {});
  l.round = st.core->draft_round();
  l.rank = st.setup.group_rank;
  l.sequences = static_cast<std::int32_t>(plan.sequences.size());
  for (const planned_sequence& s : plan.sequences)
    l.kv_tokens += s.start;
  const auto survivals = st.core->planner().survivals();
  l.survivals = pack_f32({survivals.begin(), survivals.end()});
  tell(self, st.setup.verifier, std::move(l));
}

// No step follows that could tell it.
void tell_the_rest(self_ptr self) {
  auto& st = state_of(self);
  if (st.outcome.ended.empty() && st.outcome.not_finite == 0)
    return;
  spec_load l = std::exchange(st.outcome, {});
  l.rank = st.setup.group_rank;
  tell(self, st.setup.verifier, std::move(l));
}

// What a decode step's drafts were worth goes into the counters, the step times and the next load of the verifier.
void take_outcome(scheduler_state& st, const step_outcome& o, double ms, double draft_ms) {
  draft_counters& c = st.metrics.speculation;
  c.not_finite += o.not_finite; // a prompt's last step drafts too
  st.outcome.not_finite += o.not_finite;
  if (o.rows == 0)
    return;
  for (std::size_t i = 0; i < o.verified.size(); ++i)
    c.take_sequence(o.verified[i], o.kept[i]);
  for (auto without = static_cast<std::int64_t>(o.verified.size()); without < o.sequences; ++without)
    c.take_sequence(0, 0);
  c.take_step(o.rows, o.expected_tokens, o.expected_ms, o.emitted, ms);
  if (o.drafted && !(draft_ms > 0)) // the engine cannot tell the parts of its time
    draft_ms = st.core->planner().cost().sampler_ms(o.sequences);
  draft_ms = o.drafted ? std::min(ms, draft_ms) : 0;
  st.outcome.ended.push_back({o.rows, o.sequences, o.kv_tokens, ms - draft_ms, draft_ms, o.drafted});
  st.core->planner().observe(st.outcome.ended.back(), o.expected_tokens, o.expected_ms, static_cast<double>(o.emitted));
  st.outcome.verified.append(o.verified.begin(), o.verified.end());
  st.outcome.accepted.append(o.accepted.begin(), o.accepted.end());
  st.outcome.confidences += pack_f32(o.confidences);
}

// Ahead of the step: the process may not live to say it behind that.
void note_starts(self_ptr self, const step_plan& prefill) {
  auto& st = state_of(self);
  for (const planned_sequence& s : prefill.sequences)
    if (const auto at = st.routes.find(s.spec->id.value); at != st.routes.end() && note_start(st.metrics, at->second))
      tell(self, at->second.reader, begun{at->second.branch, at->second.attempt});
}

// Whether the step has the rows that the verifier gave it, as far as there were drafts for them.
bool follows(const draft_advice& a, std::uint64_t round, const step_plan& plan, std::int64_t drafts) {
  const std::int64_t sequences = std::ssize(plan.sequences);
  return plan_is_current(a.round, round) && a.sequences == sequences && a.total_rows >= sequences &&
         std::ssize(plan.tokens) == std::min(a.total_rows, sequences + drafts);
}

void take_advice(scheduler_state& st, const spec_plan& p) {
  if (st.setup.group_rank >= p.total_q.size())
    return;
  st.advice = {p.round, p.sequences, p.total_q[st.setup.group_rank]};
  st.core->planner().advise(st.advice);
  st.metrics.speculation.stale_advice += plan_is_current(p.round, st.core->draft_round() + 1) ? 0 : 1;
}

// The step that a turn was for is planned and sent.
void end_turn(self_ptr self) {
  auto& st = state_of(self);
  const scheduler_state::round_trip& t = st.trips[st.next_trip];
  const auto began = clock::now();
  const bool planned = st.core->plan(*st.got, *t.plan, st.events);
  if (st.part && st.part->begun()) {
    if (planned)
      st.part->planned(t.plan->number);
    else
      pass(st);
  }
  if (!planned)
    return;
  st.metrics.plan_time.observe(st.planning + seconds_since(began));
  st.next_trip = (st.next_trip + 1) % st.trips.size();
  if (t.plan->kind == step_kind::prefill)
    note_starts(self, *t.plan);
  tell(self, st.setup.executor, step{t.plan->number, t.plan, t.result});
  ++st.steps_sent;
  if (t.plan->kind != step_kind::prefill && st.setup.limits.nextn > 0) {
    st.metrics.speculation.advised_steps +=
        follows(st.advice, st.core->draft_round(), *t.plan, std::ssize(st.core->planner().survivals()));
    consult_verifier(self, *t.plan);
  }
}

void finish_turn(self_ptr self, const kv_turn_done& d) {
  auto& st = state_of(self);
  if (d.number != st.turn)
    return;
  st.turn_out = false;
  if (st.lost) { // nobody is left whose step it could be for
    st.core->plan(*st.got, *st.trips[st.next_trip].plan, st.events);
    return come_back(self);
  }
  ++st.answers;
  end_turn(self);
  go_on(self);
}

void finish_step(self_ptr self, const step_done& d) {
  auto& st = state_of(self);
  ++st.steps_answered;
  if (st.lost)
    return come_back(self);
  const auto& t = st.trips[(st.next_trip + st.trips.size() - st.core->steps_out()) % st.trips.size()];
  step_result& r = *t.result;
  if (st.core->steps_out() == 0 || d.number != r.number)
    return;
  ++st.answers;
  st.metrics.take_step(t.plan->kind == step_kind::prefill, static_cast<std::int64_t>(t.plan->tokens.size()),
                       r.ms / 1000);
  const double ms = r.ms, draft_ms = r.draft_ms;
  st.core->complete(r, st.events);
  take_outcome(st, st.core->outcome(), ms, draft_ms);
  if (st.part)
    st.part->finished(r.number);
  go_on(self);
}

void take_masks(self_ptr self) {
  auto& st = state_of(self);
  st.core->masks_made();
  if (!st.lost)
    go_on(self);
}

std::shared_ptr<mask_helpers> mask_helpers_of(self_ptr self, int threads) {
  return std::make_shared<mask_threads>(threads, [who = self->address()] {
    if (const auto scheduler = caf::actor_cast<scheduler_actor>(who))
      tell_from_outside(scheduler, masks_made{});
  });
}

void enter(self_ptr self, const enter_group& g) {
  auto& st = state_of(self);
  st.part.reset();
  st.group_sync = g.group;
  if (st.lost)
    return;
  if (g.group) {
    st.part.emplace(rank_id{st.setup.rank}, g.epoch);
    tell(self, g.group, join_group{st.setup.rank});
  }
  go_on(self);
}

void take_view(self_ptr self, const group_view& v) {
  auto& st = state_of(self);
  if (!st.part)
    return;
  if (st.part->view(v) == step_member::change::expelled)
    lose(self, "the other engines of its group waited too long for its part in a step, and go on without it");
  go_on(self);
}

void take_decision(self_ptr self, const step_decision& d) {
  if (!state_of(self).part)
    return;
  state_of(self).part->decision(d);
  go_on(self);
}

scheduling_request request_of(const job& j) {
  auto s = std::make_shared<sequence_spec>();
  s->id = sequence_id{j.sequence};
  s->request_id = j.request_id;
  s->params = j.params;
  s->seq_seed = j.seed;
  s->prompt_tokens = static_cast<std::int32_t>(j.tokens.size());
  s->eos_ids = j.eos_ids;
  s->logit_rows = j.logit_rows;
  scheduling_request r;
  r.spec = std::move(s);
  r.prompt = std::make_shared<const std::vector<std::int32_t>>(j.tokens);
  if (!j.cache_salt.empty())
    r.salt = std::make_shared<const std::string>(j.cache_salt);
  if (!j.chunk_checkpoints.empty())
    r.chunk_checkpoints = std::make_shared<const std::vector<std::int32_t>>(j.chunk_checkpoints);
  r.priority = j.priority;
  r.deadline_steps = j.deadline_steps;
  r.fork_of = sequence_id{j.fork_of};
  r.emitted = j.emitted;
  if (j.handoff.id != 0)
    r.share = j.handoff.prompt ? sequence_share::prompt : sequence_share::rest;
  return r;
}

ack refusal(std::uint64_t msg_id, const error& why) {
  const ack_code code = why.code == "no_space"          ? ack_code::no_space
                        : why.code == "prompt_too_long" ? ack_code::too_large
                                                        : ack_code::wrong_state;
  return {msg_id, code, note_of(why)};
}

status queue(self_ptr self, const job& j, const session_actor& reader,
             std::shared_ptr<const sequence_constraint> constraint) {
  auto& st = state_of(self);
  scheduling_request r = request_of(j);
  std::vector<std::string> warnings;
  if (constraint)
    warnings = constraint->grammar->warnings();
  r.constraint = std::move(constraint);
  if (status queued = st.core->submit(std::move(r), st.events); !queued)
    return queued;
  st.routes[j.sequence] = {
      reader,    j.req,        j.branch, j.attempt,          static_cast<std::int32_t>(j.tokens.size()),
      j.handoff, clock::now(), {},       std::move(warnings)};
  if (j.handoff.id != 0)
    st.handoffs[j.handoff.id] = j.sequence;
  if (j.handoff.prompt)
    st.setup.handoffs->open(j.handoff, static_cast<std::int32_t>(j.tokens.size()) - 1);
  go_on(self);
  return nothing{};
}

error no_grammar_pool() {
  return {"so_internal", "constraints cannot be compiled any more: what compiled them has ended too often; requests "
                         "without so_args go on, restart the process for others"};
}

void ask_for_grammar(self_ptr self, std::uint64_t number) {
  auto& st = state_of(self);
  const job& j = st.constrained.at(number).request.work;
  tell(self, st.grammars,
       grammar_wanted{number, std::make_shared<const constraint>(constraint_of(*j.params.so_args)), j.cache_salt});
}

ack end_sequence(self_ptr self, const cancel& c);

// Nobody reads what these sequences give: their gateway's process was lost, or the session failed.
void lose_reader(self_ptr self, const caf::actor_addr& who) {
  auto& st = state_of(self);
  const auto lost = st.readers.extract(who);
  if (lost.empty())
    return;
  for (const std::uint64_t sequence : lost.mapped()) {
    const auto route = st.routes.find(sequence);
    const auto compiling = st.compiling.find(sequence);
    if ((route != st.routes.end() && route->second.reader.address() == who) ||
        (compiling != st.compiling.end() && st.constrained.at(compiling->second).reader.address() == who))
      end_sequence(self, cancel{{}, {}, 0, sequence, "reader lost"});
  }
}

void watch_reader(self_ptr self, const session_actor& reader, std::uint64_t sequence) {
  auto& st = state_of(self);
  if (!reader)
    return;
  const auto [at, is_new] = st.readers.try_emplace(reader.address());
  at->second.push_back(sequence);
  if (!is_new)
    return;
  watch(self, st.watched, reader, [=, who = reader.address()](const caf::error&) { lose_reader(self, who); });
}

ack take(self_ptr self, const submit& s) {
  auto& st = state_of(self);
  if (st.lost)
    return refusal(s.head.msg_id, *st.lost);
  if (st.draining)
    return refusal(s.head.msg_id, {"stopping", "the engine takes no new requests"});
  if (s.work.handoff.id != 0 && !st.setup.handoffs)
    return refusal(s.head.msg_id, {"handoff_failed", "this engine shares no requests with others"});
  const auto reader = caf::actor_cast<session_actor>(self->current_sender());
  watch_reader(self, reader, s.work.sequence);
  if (!s.work.params.so_args) {
    const status queued = queue(self, s.work, reader, nullptr);
    return queued ? ack{s.head.msg_id, ack_code::ok, {}} : refusal(s.head.msg_id, queued.failure());
  }
  if (!st.grammars)
    return refusal(s.head.msg_id, no_grammar_pool());
  st.constrained.emplace(++st.last_constrained, scheduler_state::constrained_job{s, reader});
  st.compiling[s.work.sequence] = st.last_constrained;
  ask_for_grammar(self, st.last_constrained);
  return {s.head.msg_id, ack_code::ok, {}};
}

void take_grammar(self_ptr self, const grammar_done& d) {
  auto& st = state_of(self);
  const auto node = st.constrained.extract(d.number);
  if (node.empty())
    return;
  const scheduler_state::constrained_job& j = node.mapped();
  st.compiling.erase(j.request.work.sequence);
  if (!d.grammar)
    return end_job(self, j, {d.failure.code, "so_args.schema: " + d.failure.message});
  const structured_output_args& a = *j.request.work.params.so_args;
  const status queued = queue(self, j.request.work, j.reader,
                              std::make_shared<const sequence_constraint>(
                                  sequence_constraint{d.grammar, {a.trigger_token_ids, a.bound_token_id}}));
  if (!queued)
    end_job(self, j, queued.failure());
}

// Who was to compile the constraints has ended.
void ask_another_pool(self_ptr self, const grammar_pool_actor& pool) {
  auto& st = state_of(self);
  st.grammars = pool;
  if (pool) {
    for (const auto& [number, j] : st.constrained)
      ask_for_grammar(self, number);
    return;
  }
  st.compiling.clear();
  for (const auto& [number, j] : std::exchange(st.constrained, {}))
    end_job(self, j, no_grammar_pool());
}

// Its sequence is over here without a word of the core.
void lose_handoff(self_ptr self, std::uint64_t sequence, const error& why) {
  auto& st = state_of(self);
  const auto node = st.routes.extract(sequence);
  if (node.empty())
    return;
  const scheduler_state::route& r = node.mapped();
  forget_handoff(st, r.handoff);
  st.core->abort(sequence_id{sequence}, st.events);
  tell(self, r.reader, handoff_lost{r.branch, r.attempt, why.code, why.message});
}

void take_note(self_ptr self, const handoff_note& n) {
  auto& st = state_of(self);
  const auto at = st.handoffs.find(n.id);
  if (at == st.handoffs.end())
    return;
  const std::uint64_t sequence = at->second;
  if (n.what == handoff_note::news::failed) {
    lose_handoff(self, sequence, n.failure);
  } else if (n.what == handoff_note::news::sent) {
    st.handoffs.erase(at);
    st.routes.erase(sequence);
  } else if (n.what == handoff_note::news::flows_again) {
    st.core->let_go_on(sequence_id{sequence}, true);
  } else if (st.core->arrived(sequence_id{sequence}, n.image, n.cached)) {
    const scheduler_state::route& r = st.routes.at(sequence);
    st.handoffs.erase(at);
    tell(self, r.reader, moved{r.branch, r.attempt});
  }
  if (!st.lost)
    go_on(self);
}

void take_credit(self_ptr self, const tok_ack& a) {
  auto& st = state_of(self);
  const auto at = st.routes.find(a.sequence);
  if (at != st.routes.end() && at->second.attempt == a.attempt &&
      st.core->acknowledge(sequence_id{a.sequence}, a.next_pos - at->second.prompt_tokens))
    go_on(self);
}

ack end_sequence(self_ptr self, const cancel& c) {
  auto& st = state_of(self);
  if (const auto waits = st.compiling.extract(c.sequence); !waits.empty()) {
    tell(self, st.grammars, grammar_unwanted{waits.mapped()});
    st.constrained.erase(waits.mapped());
    return {c.head.msg_id, ack_code::ok, {}};
  }
  // A prompt whose cache waits to be sent is known here only.
  const bool sending = st.routes.contains(c.sequence);
  if (!st.core->abort(sequence_id{c.sequence}, st.events)) {
    if (sending)
      forget_handoff(st, st.routes.extract(c.sequence).mapped().handoff);
    return {c.head.msg_id, sending ? ack_code::ok : ack_code::unknown, {}};
  }
  go_on(self);
  return {c.head.msg_id, ack_code::ok, {}};
}

} // namespace

scheduler_actor::behavior_type scheduler(self_ptr self, const scheduler_setup& setup) {
  state_of(self).setup = setup;
  state_of(self).core.emplace(setup.limits,
                              setup.untimed_sizes.empty() ? step_cost(setup.step_curve, setup.drafting)
                                                          : step_cost::untimed(setup.untimed_sizes),
                              mask_helpers_of(self, setup.mask_threads));
  for (scheduler_state::round_trip& t : state_of(self).trips)
    t = {std::make_shared<step_plan>(), std::make_shared<step_result>()};
  if (setup.handoffs)
    setup.handoffs->report_to([who = self->address()](handoff_note n) {
      if (const auto to = caf::actor_cast<scheduler_actor>(who))
        tell_from_outside(to, std::move(n));
    });
  watch(self, state_of(self).watched, setup.executor,
        [=](const caf::error& why) { lose(self, "executor: " + text(self->system(), why)); });
  watch(self, state_of(self).watched, setup.kv,
        [=](const caf::error& why) { lose(self, "KV manager: " + text(self->system(), why)); });
  return {
      [=](const submit& s) { return take(self, s); },
      [=](const grammar_done& d) { take_grammar(self, d); },
      [=](const new_grammar_pool& n) { ask_another_pool(self, n.pool); },
      [=](const handoff_note& n) { take_note(self, n); },
      [=](const cancel& c) { return end_sequence(self, c); },
      [=](const kv_turn_done& d) { finish_turn(self, d); },
      [=](const step_done& d) { finish_step(self, d); },
      [=](const step_check& c) { check_progress(self, c); },
      [=](const masks_made&) { take_masks(self); },
      [=](const tok_ack& a) { take_credit(self, a); },
      [=](const spec_plan& p) { take_advice(state_of(self), p); },
      [=](const new_verifier& v) { state_of(self).setup.verifier = v.verifier; },
      [=](const enter_group& g) { enter(self, g); },
      [=](const group_view& v) { take_view(self, v); },
      [=](const step_decision& d) { take_decision(self, d); },
      [=](const group_ping&) {
        const auto& st = state_of(self);
        return group_alive{st.setup.rank, st.part ? st.part->epoch() : 0};
      },
      [=](const scheduler_query&) {
        const auto& st = state_of(self);
        const auto& core = *st.core;
        scheduler_report r{core.waiting(),     core.running(), core.live(), core.steps(), core.preemptions(),
                           core.free_blocks(), st.metrics,     {},          !st.lost,     core.outstanding_tokens(),
                           core.paused()};
        r.metrics.masks = core.mask_counts();
        r.waits_for = text_of(core.waiting_for());
        if (st.setup.handoffs)
          r.handoffs = st.setup.handoffs->counters();
        return r;
      },
      [=](const rank_lost& l) { lose(self, l.why); },
      [=](const rank_back&) {
        state_of(self).back = true;
        come_back(self);
      },
      [=](const hold_steps& h) {
        state_of(self).held = h.held;
        go_on(self);
      },
      [=](const drain&) { state_of(self).draining = true; },
      [=](const stop&) {
        state_of(self).draining = true;
        lose(self, "it was stopped");
        if (const auto& handoffs = state_of(self).setup.handoffs)
          handoffs->report_to(nullptr);
        self->quit();
      },
  };
}

} // namespace troupe
