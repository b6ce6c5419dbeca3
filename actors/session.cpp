#include "actors/session.hpp"
#include "actors/cluster_access.hpp"
#include "runtime/request/seeds.hpp"

namespace troupe {

namespace {

using self_ptr = session_actor::stateful_pointer<session_state>;

double age_ms(const request_record& r) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - r.accepted).count();
}

// A reader's exception must not end the session: the other branches and the bookkeeping go on.
void tell_reader(const request_record& r, const generation_event& e) {
  try {
    if (r.on_event)
      r.on_event(e);
  } catch (...) {
  }
}

using stage = session_state::handing_stage;

cancel cancel_of(const session_state& st, std::size_t index, const char* reason) {
  return {{}, st.setup.request->req, st.branches[index].attempt(), st.setup.sequences[index], reason};
}

// The engine that computes the prompt has no more part in the request.
void leave_prompt(self_ptr self, stage next) {
  auto& st = state_of(self);
  if (std::exchange(st.handing, next) != stage::computing)
    return;
  st.setup.prompt.window->answered(st.setup.sequences[st.handed]);
  unwatch(self, st.watched, st.setup.prompt.scheduler);
}

// Nobody waits any more for what the engines answer to the branch's submissions; one that was held is not sent.
void settle(const session_state& st, std::size_t index) {
  st.setup.window->answered(st.setup.sequences[index]);
  if (st.setup.prompt.window)
    st.setup.prompt.window->answered(st.setup.sequences[index]);
}

// Likewise of all branches, the last ones first: those are held, and room for them would let them go.
void settle_all(const session_state& st) {
  for (std::size_t i = st.branches.size(); i > 0; --i)
    settle(st, i - 1);
}

// What is still to be heard of the branch is not waited for.
void cancel_sequence(self_ptr self, std::size_t index, const char* reason) {
  auto& st = state_of(self);
  settle(st, index);
  if (st.handing == stage::computing && index == st.handed) {
    tell_from_outside(st.setup.prompt.scheduler, cancel_of(st, index, reason));
    leave_prompt(self, stage::done);
  }
  if (st.setup.scheduler)
    ask(self, st.setup.scheduler, st.setup.control_limit, cancel_of(st, index, reason))
        .then([](const ack&) {}, [](const caf::error&) {});
}

done farewell(const session_state& st) {
  done d{st.setup.request->req, {}};
  for (std::size_t i = 0; i < st.branches.size(); ++i) {
    d.branches.push_back(st.branches[i].record());
    d.branches.back().rank = st.setup.rank;
    d.branches.back().max_tokens = st.setup.request->params.max_tokens;
  }
  return d;
}

// Its engine has no room for the prompt's cache (full), or holds nothing of the request any more: nothing has begun, so
// the attempt stays.
void ask_for_place(self_ptr self, bool full, const std::string& why) {
  auto& st = state_of(self);
  unwatch(self, st.watched, std::exchange(st.setup.scheduler, {}));
  st.handing = stage::none;
  settle_all(st);
  tell_from_outside(st.setup.gateway,
                    place_wanted{st.setup.request->req, full, false, st.setup.rank, {}, st.setup.joined, why});
}

// What the ledger on disk is told of a branch.
void note(self_ptr self, std::size_t index, auto record) {
  auto& st = state_of(self);
  record.req = st.ledger_keys[index];
  record.branch = static_cast<std::uint32_t>(index);
  tell(self, st.setup.ledger, ledger_note{std::move(record)});
}

// Tokens that end a branch are not told before its end is: nobody goes on behind them.
void note_output(self_ptr self, const tokens& t, std::int64_t from) {
  if (state_of(self).branches[t.branch].ended())
    return;
  if (auto news = news_of(t, from))
    note(self, t.branch, std::move(*news));
}

void note_attempt(self_ptr self, std::size_t index) {
  auto& st = state_of(self);
  if (st.setup.ledger)
    note(self, index, ledger_attempt{{}, 0, st.branches[index].attempt()});
}

// An aborted branch stays open, and one that the cluster did not end: whoever asks the next process for it goes on
// where it was. Not so an aborted one in a process that goes on itself.
void note_end(self_ptr self, std::size_t index) {
  auto& st = state_of(self);
  const branch& b = st.branches[index];
  const std::string cause = b.record().cause;
  const bool stays = cause == cluster_stopped || cause == engine_missing ||
                     (b.result().finish_reason == "abort" && !(st.setup.closes_aborted && cause != "shutdown"));
  if (st.setup.ledger && !stays)
    note(self, index, ledger_closed{});
}

// Passes on what changed. With the last branch's end the request's id is free, the gateway informed and the session
// over.
void publish(self_ptr self, std::size_t index, branch::update u) {
  auto& st = state_of(self);
  const bool prompt_left = u.ended && st.handing == stage::computing && index == st.handed;
  if (u.cancel || prompt_left)
    cancel_sequence(self, index, u.cancel ? "stop string" : "ended");
  if (u.text.empty() && !u.ended)
    return;
  if (u.ended)
    settle(st, index);
  const request_record& r = *st.setup.request;
  generation_event e;
  e.id = r.id;
  e.index = static_cast<int>(index);
  e.text = std::move(u.text);
  if (u.ended) {
    e.result = st.branches[index].result();
    if (--st.live == 0) {
      r.live->remove(r.id);
      tell_from_outside(st.setup.gateway, farewell(st));
    }
  }
  tell_reader(r, e);
  if (u.ended)
    note_end(self, index);
  if (u.ended && st.live > 0 && st.handing == stage::reserving && index == st.handed)
    ask_for_place(self, false, "its first branch has ended"); // which would have begun the others
  if (u.ended && st.live == 0) {
    leave_prompt(self, stage::done);
    if (st.setup.scheduler)
      unwatch(self, st.watched, st.setup.scheduler);
    unwatch(self, st.watched, st.setup.gateway);
    self->quit();
  }
}

void fail_branches(self_ptr self, const error& why) {
  auto& st = state_of(self);
  for (std::size_t i = 0; i < st.branches.size(); ++i)
    publish(self, i, st.branches[i].end(finish_reason::error, why, age_ms(*st.setup.request)));
}

void abort_all(self_ptr self, const std::string& cause) {
  auto& st = state_of(self);
  settle_all(st);
  for (std::size_t i = 0; i < st.branches.size(); ++i) {
    if (st.branches[i].ended())
      continue;
    cancel_sequence(self, i, "abort");
    publish(self, i, st.branches[i].end(finish_reason::abort, {cause, {}}, age_ms(*st.setup.request)));
  }
}

enum class lost_part : std::uint8_t { engine, prompt_engine, handoff };

// A request that only waited for an engine that was lost has not tried it. But it may be what ends engines before they
// can say that they have begun: this many are enough of that, too.
std::uint32_t most_unbegun(const session_state& st) {
  return 4 * st.setup.max_attempts;
}

// Why there is no further attempt. No other request has the same fate, as it has when engines are lost.
error exhausted(const session_state& st, bool begun, const error& last) {
  return {
      "attempts_exhausted",
      last.message + "; " +
          (begun ? std::to_string(st.setup.max_attempts) + " engines were tried (max_attempts)"
                 : std::to_string(st.unbegun) + " engines were lost before they began with it (4 times max_attempts)")};
}

// Whether what the request leaves had begun with it.
bool was_begun(const session_state& st, lost_part lost) {
  switch (lost) {
  case lost_part::engine:
    return st.begun;
  case lost_part::prompt_engine:
    return st.prompt_begun;
  case lost_part::handoff:
    return st.begun || st.prompt_begun;
  }
  return true;
}

// The request cannot go on where it is. Its branches go on elsewhere, each as a new attempt: what the old engines may
// still say is of an earlier one and not heard.
void leave_engine(self_ptr self, const error& why, lost_part lost = lost_part::engine) {
  auto& st = state_of(self);
  const scheduler_actor left = std::exchange(st.setup.scheduler, {}), prompt = st.setup.prompt.scheduler;
  if (left)
    unwatch(self, st.watched, left);
  if (st.handing == stage::computing)
    tell_from_outside(prompt, cancel_of(st, st.handed, "moved"));
  leave_prompt(self, stage::none);
  settle_all(st);
  const bool begun = was_begun(st, lost), hopeless = !begun && ++st.unbegun >= most_unbegun(st);
  for (std::size_t i = 0; i < st.branches.size() && st.live > 0; ++i) {
    if (st.branches[i].ended())
      continue;
    if (left) // it may live and compute others of them
      tell_from_outside(left,
                        cancel{{}, st.setup.request->req, st.branches[i].attempt(), st.setup.sequences[i], "moved"});
    if (!hopeless && st.branches[i].begin_next_attempt(begun))
      note_attempt(self, i);
    else
      publish(self, i, st.branches[i].end(finish_reason::error, exhausted(st, begun, why), age_ms(*st.setup.request)));
  }
  if (st.live == 0)
    return;
  st.begun = st.prompt_begun = false;
  place_wanted wanted{st.setup.request->req, false,      lost == lost_part::handoff, st.setup.rank, left,
                      st.setup.joined,       why.message};
  if (lost == lost_part::prompt_engine)
    wanted.rank = st.setup.prompt.rank, wanted.scheduler = prompt, wanted.joined = st.setup.prompt.joined;
  if (lost == lost_part::handoff)
    wanted.scheduler = scheduler_actor();
  tell_from_outside(st.setup.gateway, std::move(wanted));
}

bool lacks_room(const session_state& st, const error& why) {
  return why.code == "no_room" && st.handing == stage::reserving;
}

// Refusals and ends of an engine that was lost or takes nothing new: others may.
bool says_elsewhere(const session_setup& s, const std::string& code) {
  return s.replays && (code == "engine_lost" || code == "stopping");
}

bool sent_by(self_ptr self, const scheduler_actor& who) {
  return caf::actor_cast<caf::actor_addr>(self->current_sender()) == caf::actor_cast<caf::actor_addr>(who);
}

// Which of its engines speaks.
lost_part part_of_sender(self_ptr self) {
  const auto& st = state_of(self);
  return st.handing == stage::computing && sent_by(self, st.setup.prompt.scheduler) ? lost_part::prompt_engine
                                                                                    : lost_part::engine;
}

// The engine's answer to a submission, unless that was of an earlier attempt.
void take_ack(self_ptr self, const ack& a) {
  auto& st = state_of(self);
  const lost_part part = part_of_sender(self);
  const std::size_t index = a.msg_id & 0xFFFFFFFF;
  if (index >= st.branches.size() || a.msg_id >> 32 != st.branches[index].attempt() ||
      (part == lost_part::engine && !sent_by(self, st.setup.scheduler)))
    return;
  (part == lost_part::engine ? st.setup.window : st.setup.prompt.window)->answered(st.setup.sequences[index]);
  if (a.code == ack_code::ok)
    return;
  const error why = error_of(a);
  if (lacks_room(st, why))
    ask_for_place(self, true, why.message);
  else if (says_elsewhere(st.setup, why.code))
    leave_engine(self, why, part);
  else
    publish(self, index, st.branches[index].end(finish_reason::error, why, age_ms(*st.setup.request)));
}

tok_ack take_tokens(self_ptr self, const tokens& t) {
  auto& st = state_of(self);
  if (t.req != st.setup.request->req || t.branch >= st.branches.size())
    return {0, -1, 0};
  branch& b = st.branches[t.branch];
  const bool current = t.attempt == b.attempt() && !b.ended();
  if (lacks_room(st, {t.error_code, {}})) {
    if (current)
      ask_for_place(self, true, t.error_text);
  } else if (says_elsewhere(st.setup, t.error_code)) {
    if (current)
      leave_engine(self, {t.error_code, t.error_text}, part_of_sender(self));
  } else {
    const std::int64_t from = b.next_position();
    const std::size_t before = b.outputs();
    branch::update u = b.take(t, age_ms(*st.setup.request));
    if (st.setup.counters)
      st.setup.counters->take(before, b.outputs(), st.setup.request->prompt.size());
    if (current && st.setup.ledger)
      note_output(self, t, from);
    publish(self, t.branch, std::move(u));
  }
  return {st.setup.sequences[t.branch], b.next_position(), b.attempt()};
}

void watch_scheduler(self_ptr self) {
  auto& st = state_of(self);
  const std::string name = "engine " + std::to_string(st.setup.rank);
  watch(self, st.watched, st.setup.scheduler, [=](const caf::error& why) {
    const error lost{"engine_lost", name + " ended: " + text(self->system(), why)};
    if (state_of(self).setup.replays)
      leave_engine(self, lost);
    else
      fail_branches(self, lost);
  });
}

// Of a submission: its answer names the branch and the attempt.
std::uint64_t message_id(std::size_t branch, std::uint32_t attempt) {
  return std::uint64_t{attempt} << 32 | branch;
}

// Of the engine that goes on.
handoff_ticket rest_ticket(const session_setup& setup) {
  handoff_ticket t;
  t.id = setup.prompt.ticket.id;
  t.peer = setup.prompt.rank;
  return t;
}

// The first branch that has not ended.
std::size_t first_live(const session_state& st) {
  const auto at = std::ranges::find_if(st.branches, [](const branch& b) { return !b.ended(); });
  return static_cast<std::size_t>(at - st.branches.begin());
}

// Live branches [from, ...) begin on the engine, behind what they have given out already.
void begin_branches(self_ptr self, std::size_t first, std::size_t from, std::size_t to) {
  auto& st = state_of(self);
  for (std::size_t i = from; i < to; ++i) {
    const branch& b = st.branches[i];
    if (b.ended())
      continue;
    submit s = submission(st.setup, i);
    s.head.msg_id = message_id(i, b.attempt());
    s.work.attempt = b.attempt();
    s.work.emitted.assign(b.emitted().begin(), b.emitted().end());
    s.work.fork_of = i == first ? 0 : st.setup.sequences[first];
    if (i != first)
      s.work.handoff = {};
    else if (st.setup.prompt.scheduler)
      s.work.handoff = rest_ticket(st.setup);
    send_submission(*st.setup.window, session_actor(self), st.setup.scheduler, std::move(s));
  }
}

// Every live branch begins on this engine. Behind a prompt that another one computes, first the one whose prompt it is.
void take_place(self_ptr self, const placed& p) {
  auto& st = state_of(self);
  if (st.live == 0 || st.setup.scheduler)
    return;
  st.setup.scheduler = p.scheduler;
  st.setup.rank = p.rank;
  st.setup.joined = p.joined;
  st.setup.window = p.window;
  st.setup.counters = p.counters;
  st.setup.prompt = p.prompt;
  watch_scheduler(self);
  const std::size_t first = first_live(st);
  st.handed = first;
  st.handing = p.prompt.scheduler ? stage::reserving : stage::none;
  begin_branches(self, first, first, p.prompt.scheduler ? first + 1 : st.branches.size());
}

void note_begun(self_ptr self, const begun& b) {
  auto& st = state_of(self);
  if (b.branch < st.branches.size() && b.attempt == st.branches[b.branch].attempt())
    (sent_by(self, st.setup.scheduler) ? st.begun : st.prompt_begun) = true;
}

// There is room for the prompt's cache: it may be computed.
void compute_prompt(self_ptr self, const reserved& r) {
  auto& st = state_of(self);
  if (st.handing != stage::reserving || r.branch != st.handed || !sent_by(self, st.setup.scheduler) ||
      r.attempt != st.branches[st.handed].attempt())
    return;
  st.handing = stage::computing;
  watch(self, st.watched, st.setup.prompt.scheduler, [=](const caf::error& why) {
    if (state_of(self).handing == stage::computing)
      leave_engine(self,
                   {"engine_lost", "engine " + std::to_string(state_of(self).setup.prompt.rank) +
                                       " ended: " + text(self->system(), why)},
                   lost_part::prompt_engine);
  });
  submit s = submission(st.setup, st.handed);
  s.head.msg_id = message_id(st.handed, r.attempt);
  s.work.attempt = r.attempt;
  s.work.fork_of = 0;
  s.work.params.so_args.reset(); // it draws nothing
  s.work.handoff = st.setup.prompt.ticket;
  send_submission(*st.setup.prompt.window, session_actor(self), st.setup.prompt.scheduler, std::move(s));
  begin_branches(self, st.handed, st.handed + 1, st.branches.size());
}

void note_moved(self_ptr self, const moved& m) {
  auto& st = state_of(self);
  if (st.handing != stage::computing || m.branch != st.handed || m.attempt != st.branches[st.handed].attempt())
    return;
  leave_prompt(self, stage::done);
  st.begun = true; // no prefill step says so
  tell_from_outside(st.setup.gateway, prompt_done{st.setup.request->req});
}

void lose_handoff(self_ptr self, const handoff_lost& l) {
  auto& st = state_of(self);
  if (st.handing != stage::none && st.handing != stage::done && l.branch == st.handed &&
      l.attempt == st.branches[st.handed].attempt() && st.live > 0)
    leave_engine(self, {l.code, l.text}, l.code == "engine_lost" ? part_of_sender(self) : lost_part::handoff);
}

void lose_rank(self_ptr self, const rank_lost& l) {
  auto& st = state_of(self);
  const error why{"engine_lost", "engine " + std::to_string(l.rank) + ": " + l.why};
  const bool prompt = st.handing == stage::reserving || st.handing == stage::computing;
  if (st.setup.scheduler && st.setup.rank == l.rank)
    leave_engine(self, why);
  else if (prompt && st.setup.prompt.rank == l.rank)
    leave_engine(self, why, lost_part::prompt_engine);
}

void end_all(self_ptr self, const error& why, const char* told) {
  settle_all(state_of(self));
  for (std::size_t i = 0; i < state_of(self).branches.size(); ++i)
    if (!state_of(self).branches[i].ended())
      cancel_sequence(self, i, told);
  fail_branches(self, why);
}

// Without one of them the request cannot go on, or be aborted.
void watch_others(self_ptr self) {
  auto& st = state_of(self);
  watch(self, st.watched, st.setup.gateway, [=](const caf::error& why) {
    end_all(self, {"engine_lost", "the gateway ended: " + text(self->system(), why)}, "gateway lost");
  });
  if (st.setup.scheduler)
    watch_scheduler(self);
}

branch_setup setup_of(const session_setup& s, std::size_t index) {
  branch_setup b;
  b.id = s.request->id;
  b.index = static_cast<int>(index);
  b.prompt_tokens = static_cast<std::int32_t>(s.request->prompt.size());
  b.params = s.request->params;
  b.seed = branch_seed(s.seed, static_cast<std::uint32_t>(index));
  b.max_attempts = s.max_attempts;
  return b;
}

// True: the branch goes on behind what an earlier process had of it, under the name that the ledger knows.
bool restore(self_ptr self, std::size_t index) {
  auto& st = state_of(self);
  if (st.setup.recovered.empty() || !st.setup.recovered[index])
    return false;
  const ledger_entry& e = *st.setup.recovered[index];
  st.ledger_keys[index] = e.request.req;
  branch::update u = st.branches[index].restore(tokens_of(e.output), e.request.attempt + 1, age_ms(*st.setup.request));
  if (u.ended) { // a session would have told its end in place of these tokens
    note(self, index, ledger_closed{});
    st.ledger_keys[index] = st.setup.request->req;
    st.branches[index] = branch(st.setup.vocabulary, setup_of(st.setup, index));
    return false;
  }
  note_attempt(self, index);
  publish(self, index, std::move(u));
  return true;
}

void begin_ledger(self_ptr self) {
  auto& st = state_of(self);
  const session_setup& s = st.setup;
  for (std::size_t i = 0; s.ledger && i < st.branches.size(); ++i) {
    st.ledger_keys.push_back(s.request->req);
    if (!restore(self, i))
      note(self, i, ledger_request_of(*s.request, s.seed, static_cast<std::uint32_t>(i), s.terms));
  }
  st.setup.recovered.clear();
}

} // namespace

session_actor::behavior_type session(self_ptr self, const session_setup& setup) {
  auto& st = state_of(self);
  st.setup = setup;
  for (std::size_t i = 0; i < setup.sequences.size(); ++i)
    st.branches.emplace_back(setup.vocabulary, setup_of(setup, i));
  st.live = st.branches.size();
  if (setup.prompt.scheduler)
    st.handing = stage::reserving;
  watch_others(self);
  begin_ledger(self);
  return {
      [=](const tokens& t) { return take_tokens(self, t); },
      [=](const ack& a) { take_ack(self, a); },
      [=](const cancel& c) {
        abort_all(self, c.reason);
        return ack{c.head.msg_id, ack_code::ok, {}};
      },
      [=](const placed& p) { take_place(self, p); },
      [=](const begun& b) { note_begun(self, b); },
      [=](const reserved& r) { compute_prompt(self, r); },
      [=](const moved& m) { note_moved(self, m); },
      [=](const handoff_lost& l) { lose_handoff(self, l); },
      [=](const rank_lost& l) { lose_rank(self, l); },
      [=](const give_up& g) {
        end_all(self, {g.code, g.text}, "given up");
      },
      [=](const stop&) { abort_all(self, "shutdown"); },
  };
}

submit submission(const session_setup& setup, std::size_t index) {
  const request_record& r = *setup.request;
  submit m;
  m.head.msg_id = message_id(index, 1);
  m.work.req = r.req;
  m.work.branch = static_cast<std::uint32_t>(index);
  m.work.sequence = setup.sequences[index];
  m.work.request_id = r.id;
  m.work.tokens = r.prompt;
  m.work.params = r.params;
  m.work.seed = branch_seed(setup.seed, m.work.branch);
  m.work.eos_ids = setup.eos_ids;
  m.work.logit_rows = r.logit_rows;
  m.work.priority = r.priority;
  m.work.deadline_steps = r.deadline_steps;
  m.work.cache_salt = r.cache_salt;
  m.work.chunk_checkpoints = r.chunk_checkpoints;
  if (index > 0)
    m.work.fork_of = setup.sequences[0];
  else if (setup.prompt.scheduler)
    m.work.handoff = rest_ticket(setup);
  return m;
}

void send_submission(message_window& through, const session_actor& from, const scheduler_actor& to, submit s) {
  const std::uint64_t key = s.work.sequence;
  through.send(key, [from, to, s = std::move(s)]() mutable { tell_as(from, to, std::move(s)); });
}

void end_unserved(const request_record& request, std::uint64_t seed, finish_reason why, const error& failure) {
  request.live->remove(request.id);
  for (std::int32_t i = 0; i < request.params.n; ++i) {
    generation_event e;
    e.id = request.id;
    e.index = i;
    e.result.emplace();
    e.result->id = request.id;
    e.result->index = i;
    e.result->prompt_tokens = static_cast<int>(request.prompt.size());
    e.result->seq_seed = branch_seed(seed, static_cast<std::uint32_t>(i));
    e.result->finish_reason = why == finish_reason::abort ? "abort" : "error";
    if (why == finish_reason::error)
      e.result->failure = failure;
    tell_reader(request, e);
  }
}

} // namespace troupe
