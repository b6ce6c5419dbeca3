#include "actors/scheduler.hpp"

namespace troupe {

namespace {

using self_ptr = scheduler_actor::stateful_pointer<scheduler_state>;

void act(self_ptr self);

stamp next_stamp(scheduler_state& st) {
  stamp s;
  s.msg_id = ++st.next_msg;
  s.from = st.setup.rank;
  return s;
}

tokens tokens_of(const scheduler_state::route& r, sequence_event& e) {
  tokens t;
  t.req = r.req;
  t.branch = r.branch;
  t.attempt = r.attempt;
  t.first_pos = r.prompt_tokens + e.outputs_before;
  if (e.output.sampled) {
    t.ids = {e.output.token};
    t.logprobs = pack_f32({e.output.logprob});
    t.top = pack_top(e.output.top);
  }
  t.prompt_logprobs = pack_f32(e.output.prompt_logprobs);
  t.logits = pack_f32(e.output.logits);
  t.end = static_cast<std::uint8_t>(e.end);
  t.stop_id = e.stop_id.value_or(-1);
  t.error_code = std::move(e.failure.code);
  t.error_text = std::move(e.failure.message);
  t.steps = e.steps;
  return t;
}

void send_events(self_ptr self) {
  auto& st = state_of(self);
  for (sequence_event& e : st.out.events) {
    const auto at = st.routes.find(e.id.value);
    if (at == st.routes.end())
      continue;
    tell(self, at->second.reader, tokens_of(at->second, e));
    if (e.end != finish_reason::none)
      st.routes.erase(at);
  }
}

void lose(self_ptr self, const std::string& why) {
  auto& st = state_of(self);
  if (!st.lost)
    st.lost = error{"engine_lost", "engine " + std::to_string(st.setup.rank) + " cannot go on: " + why};
  st.core->fail_all(*st.lost, st.out);
  act(self);
}

void send_kv_order(self_ptr self, const kv_order& o) {
  auto& st = state_of(self);
  const auto failed = [=](const caf::error& e) { lose(self, "KV manager: " + text(self->system(), e)); };
  if (o.what == kv_order::kind::release) {
    ask(self, st.setup.kv, st.setup.control_limit, release{next_stamp(st), o.id.value}).then([](const ack&) {}, failed);
    return;
  }
  ask(self, st.setup.kv, st.setup.control_limit, reserve{next_stamp(st), o.id.value, o.blocks})
      .then(
          [=](const grant& g) {
            std::vector<block_id> blocks;
            for (const std::int32_t b : g.blocks)
              blocks.push_back(block_id{b});
            auto& s = state_of(self);
            const fit f = g.code == ack_code::ok ? fit::ok : g.code == ack_code::busy ? fit::later : fit::never;
            s.core->grant(sequence_id{g.sequence}, f, blocks, slot_id{g.state}, s.out);
            act(self);
          },
          failed);
}

// Tells the verifier what the step will decode; its plan comes back for a later round.
void consult_verifier(self_ptr self) {
  auto& st = state_of(self);
  spec_load l;
  l.round = ++st.round;
  l.rank = st.setup.rank;
  l.rows = static_cast<std::int32_t>(st.plan->tokens.size());
  l.drafts.assign(st.plan->sequences.size(), 0);
  for (const planned_sequence& s : st.plan->sequences)
    l.kv_tokens.push_back(s.start);
  l.step_ms = st.result->ms;
  tell(self, st.setup.verifier, std::move(l));
}

// One reminder at a time, not one for each step: CAF 0.17 keeps every time limit of a request until it has passed.
void remind(self_ptr self) {
  auto& st = state_of(self);
  if (std::exchange(st.checking, true))
    return;
  tell_later(self, st.setup.step_limit, step_check{st.plan->number});
}

void start_step(self_ptr self) {
  auto& st = state_of(self);
  if (st.lost || !st.core->plan(*st.plan))
    return;
  if (st.plan->kind == step_kind::decode)
    consult_verifier(self);
  tell(self, st.setup.executor, step{st.plan->number, st.plan, st.result});
  remind(self);
}

void finish_step(self_ptr self, const step_done& d) {
  auto& st = state_of(self);
  if (st.lost || d.number != st.plan->number)
    return;
  st.core->complete(*st.result, st.out);
  act(self);
}

// A step that was in flight a whole limit ago and still is will not come back.
void check_step(self_ptr self, const step_check& c) {
  auto& st = state_of(self);
  st.checking = false;
  if (!st.core->in_flight())
    return;
  if (c.number == st.plan->number)
    lose(self, "the executor did not finish step " + std::to_string(c.number) + " within " +
                   std::to_string(st.setup.step_limit.count()) + " ms (step_limit)");
  else
    remind(self);
}

// Carries out what the last call of the state machine ordered, then starts a step if one can start.
void act(self_ptr self) {
  auto& st = state_of(self);
  send_events(self);
  for (const kv_order& o : st.out.kv)
    send_kv_order(self, o);
  st.out.clear();
  start_step(self);
}

std::shared_ptr<sequence_spec> spec_of(const job& j) {
  auto s = std::make_shared<sequence_spec>();
  s->id = sequence_id{j.sequence};
  s->request_id = j.request_id;
  s->params = j.params;
  s->seq_seed = j.seed;
  s->prompt_tokens = static_cast<std::int32_t>(j.tokens.size());
  s->eos_ids = j.eos_ids;
  s->logit_rows = j.logit_rows;
  return s;
}

ack refusal(std::uint64_t msg_id, const error& why) {
  const ack_code code = why.code == "no_space"          ? ack_code::no_space
                        : why.code == "prompt_too_long" ? ack_code::too_large
                                                        : ack_code::wrong_state;
  return {msg_id, code, note_of(why)};
}

ack take(self_ptr self, const submit& s) {
  auto& st = state_of(self);
  const job& j = s.work;
  if (st.lost)
    return refusal(s.head.msg_id, *st.lost);
  if (st.draining)
    return refusal(s.head.msg_id, {"stopping", "the engine takes no new requests"});
  const status queued = st.core->submit(spec_of(j), j.tokens, st.out);
  if (!queued)
    return refusal(s.head.msg_id, queued.failure());
  st.routes[j.sequence] = {caf::actor_cast<session_actor>(self->current_sender()), j.req, j.branch, j.attempt,
                           static_cast<std::int32_t>(j.tokens.size())};
  act(self);
  return {s.head.msg_id, ack_code::ok, {}};
}

ack end_sequence(self_ptr self, const cancel& c) {
  auto& st = state_of(self);
  if (!st.core->abort(sequence_id{c.sequence}, st.out))
    return {c.head.msg_id, ack_code::unknown, {}};
  act(self);
  return {c.head.msg_id, ack_code::ok, {}};
}

} // namespace

scheduler_actor::behavior_type scheduler(self_ptr self, const scheduler_setup& setup) {
  state_of(self).setup = setup;
  state_of(self).core.emplace(setup.limits);
  watch(self, state_of(self).watched, setup.executor,
        [=](const caf::error& why) { lose(self, "executor: " + text(self->system(), why)); });
  return {
      [=](const submit& s) { return take(self, s); },
      [=](const cancel& c) { return end_sequence(self, c); },
      [=](const step_done& d) { finish_step(self, d); },
      [=](const step_check& c) { check_step(self, c); },
      [](const tok_ack&) {},
      [=](const spec_plan& p) {
        state_of(self).drafts = {p.round, p.total_q, p.lengths};
      },
      [=](const scheduler_query&) {
        const auto& core = *state_of(self).core;
        return scheduler_report{core.waiting(), core.running(), core.live(), core.steps()};
      },
      [=](const rank_lost& l) { lose(self, l.why); },
      [=](const drain&) { state_of(self).draining = true; },
      [=](const stop&) {
        state_of(self).draining = true;
        lose(self, "it was stopped");
        self->quit();
      },
  };
}

} // namespace troupe
