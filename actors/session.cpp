#include "actors/session.hpp"
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

void cancel_sequence(self_ptr self, std::size_t index, const char* reason) {
  auto& st = state_of(self);
  cancel c;
  c.req = st.setup.request->req;
  c.attempt = st.branches[index].attempt();
  c.sequence = st.setup.sequences[index];
  c.reason = reason;
  ask(self, st.setup.scheduler, st.setup.control_limit, std::move(c)).then([](const ack&) {}, [](const caf::error&) {});
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

// Passes on what changed. With the last branch's end the request's id is free, the gateway informed and the session
// over.
void publish(self_ptr self, std::size_t index, branch::update u) {
  auto& st = state_of(self);
  if (u.cancel)
    cancel_sequence(self, index, "stop string");
  if (u.text.empty() && !u.ended)
    return;
  const request_record& r = *st.setup.request;
  generation_event e;
  e.id = r.id;
  e.index = static_cast<int>(index);
  e.text = std::move(u.text);
  if (u.ended) {
    e.result = st.branches[index].result();
    if (--st.live == 0) {
      if (std::exchange(st.waits_for_grammar, false))
        tell(self, st.setup.grammars, grammar_unwanted{r.req.number});
      r.live->remove(r.id);
      tell_from_outside(st.setup.gateway, farewell(st));
    }
  }
  tell_reader(r, e);
  if (u.ended && st.live == 0) {
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
  for (std::size_t i = 0; i < st.branches.size(); ++i) {
    if (st.branches[i].ended())
      continue;
    if (!st.waits_for_grammar)
      cancel_sequence(self, i, "abort");
    publish(self, i, st.branches[i].end(finish_reason::abort, {cause, {}}, age_ms(*st.setup.request)));
  }
}

// The engine's answer to a submission.
void take_ack(self_ptr self, const ack& a) {
  auto& st = state_of(self);
  if (a.code != ack_code::ok && a.msg_id < st.branches.size())
    publish(self, a.msg_id, st.branches[a.msg_id].end(finish_reason::error, error_of(a), age_ms(*st.setup.request)));
}

void ask_for_grammar(self_ptr self) {
  auto& st = state_of(self);
  const request_record& r = *st.setup.request;
  st.waits_for_grammar = true;
  tell(
      self, st.setup.grammars,
      grammar_wanted{r.req.number, std::make_shared<const constraint>(constraint_of(*r.params.so_args)), r.cache_salt});
}

void take_grammar(self_ptr self, const grammar_done& d) {
  auto& st = state_of(self);
  if (!std::exchange(st.waits_for_grammar, false))
    return;
  if (!d.grammar) {
    fail_branches(self, {d.failure.code, "so_args.schema: " + d.failure.message});
    return;
  }
  const structured_output_args& a = *st.setup.request->params.so_args;
  const auto c = std::make_shared<const sequence_constraint>(
      sequence_constraint{d.grammar, {a.trigger_token_ids, a.bound_token_id}});
  for (std::size_t i = 0; i < st.branches.size(); ++i)
    tell(self, st.setup.scheduler, constrained_submit{submission(st.setup, i), c});
}

// Who was to compile the constraint has ended.
void ask_another_pool(self_ptr self, const new_grammar_pool& n) {
  auto& st = state_of(self);
  st.setup.grammars = n.pool;
  if (!st.waits_for_grammar)
    return;
  if (n.pool)
    return ask_for_grammar(self);
  st.waits_for_grammar = false;
  fail_branches(self, no_grammar_pool());
}

// Without one of them the request cannot go on, or be aborted.
void watch_others(self_ptr self) {
  auto& st = state_of(self);
  watch(self, st.watched, st.setup.gateway, [=](const caf::error& why) {
    for (std::size_t i = 0; i < state_of(self).branches.size(); ++i)
      cancel_sequence(self, i, "gateway lost");
    fail_branches(self, {"engine_lost", "the gateway ended: " + text(self->system(), why)});
  });
  const std::string name = "engine " + std::to_string(st.setup.rank);
  watch(self, st.watched, st.setup.scheduler, [=](const caf::error& why) {
    fail_branches(self, {"engine_lost", name + " ended: " + text(self->system(), why)});
  });
}

branch_setup setup_of(const session_setup& s, std::size_t index) {
  branch_setup b;
  b.id = s.request->id;
  b.index = static_cast<int>(index);
  b.prompt_tokens = static_cast<std::int32_t>(s.request->prompt.size());
  b.params = s.request->params;
  b.seed = branch_seed(s.seed, static_cast<std::uint32_t>(index));
  return b;
}

} // namespace

session_actor::behavior_type session(self_ptr self, const session_setup& setup) {
  auto& st = state_of(self);
  st.setup = setup;
  for (std::size_t i = 0; i < setup.sequences.size(); ++i)
    st.branches.emplace_back(setup.vocabulary, setup_of(setup, i));
  st.live = st.branches.size();
  watch_others(self);
  if (setup.request->params.so_args)
    ask_for_grammar(self);
  return {
      [=](const tokens& t) {
        auto& s = state_of(self);
        if (t.req != s.setup.request->req || t.branch >= s.branches.size())
          return tok_ack{-1, 0};
        branch& b = s.branches[t.branch];
        publish(self, t.branch, b.take(t, age_ms(*s.setup.request)));
        return tok_ack{b.next_position(), b.attempt()};
      },
      [=](const ack& a) { take_ack(self, a); },
      [=](const cancel& c) {
        abort_all(self, c.reason);
        return ack{c.head.msg_id, ack_code::ok, {}};
      },
      [=](const grammar_done& d) { take_grammar(self, d); },
      [=](const new_grammar_pool& n) { ask_another_pool(self, n); },
      [=](const stop&) { abort_all(self, "shutdown"); },
  };
}

error no_grammar_pool() {
  return {"so_internal", "constraints cannot be compiled any more: what compiled them has ended too often; requests "
                         "without so_args go on, restart the process for others"};
}

submit submission(const session_setup& setup, std::size_t index) {
  const request_record& r = *setup.request;
  submit m;
  m.head.msg_id = index;
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
  if (index > 0)
    m.work.fork_of = setup.sequences[0];
  return m;
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
