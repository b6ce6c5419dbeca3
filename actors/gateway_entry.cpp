#include "actors/gateway_entry.hpp"
#include "actors/request_checks.hpp"
#include <algorithm>
#include <functional>
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

using namespace std::chrono_literals;
using self_ptr = gateway_door_actor::stateful_pointer<gateway_entry_state>;
using state = gateway_entry_state;

constexpr std::size_t most_batches_out = 4, most_news_in_batch = 256;
constexpr std::size_t most_bytes_in_batch = std::size_t{1} << 20; // but at least one piece of news
constexpr auto look_every = 100ms, answer_limit = 5000ms;

void add(state::amount& sum, const state::amount& a) {
  sum.requests += a.requests;
  sum.tokens += a.tokens;
}

void release(state& st, const state::amount& a) {
  st.admitted.requests -= a.requests;
  st.admitted.tokens -= a.tokens;
  *st.setup.live = static_cast<std::uint64_t>(st.admitted.requests);
}

state::client* client_of_sender(self_ptr self) {
  auto& st = state_of(self);
  const auto at = st.clients.find(caf::actor_cast<caf::actor_addr>(self->current_sender()));
  return at == st.clients.end() ? nullptr : &at->second;
}

// What is held for a client goes out as far as it has taken what went before.
void send_news(self_ptr self, state::client& c) {
  while (!c.held.empty() && c.out.size() < most_batches_out) {
    gateway_news batch;
    state::batch& b = c.out.emplace_back(state::batch{state::clock::now(), {}});
    std::size_t bytes = 0;
    while (!c.held.empty() && batch.news.size() < most_news_in_batch && bytes < most_bytes_in_batch) {
      add(b.ends, c.held.front().ends);
      bytes += c.held.front().news.text.size() + c.held.front().news.result.size();
      batch.news.push_back(std::move(c.held.front().news));
      c.held.pop_front();
    }
    tell(self, c.reader, std::move(batch));
  }
}

// Nobody hears any more what comes of its requests.
void drop_requests(self_ptr self, state::client& c) {
  auto& st = state_of(self);
  for (const auto& [theirs, number] : c.numbers) {
    state::request& r = st.live.at(number);
    r.reader = caf::actor_addr();
    release(st, {1, r.tokens}); // now: the same client may ask for the same ones at once
    tell_from_outside(st.setup.gateway, cancel{{}, {st.setup.origin, number}, 1, 0, "client lost"});
  }
  c.numbers.clear();
  for (const state::held_news& h : c.held)
    release(st, h.ends);
  for (const state::batch& b : c.out)
    release(st, b.ends);
  c.held.clear();
  c.out.clear();
  c.live = std::make_shared<live_requests>();
}

void drop_client(self_ptr self, const caf::actor_addr& who, const std::string& why) {
  auto& st = state_of(self);
  const auto at = st.clients.find(who);
  if (at == st.clients.end())
    return;
  spdlog::info("event=client_left client={} live={} why=\"{}\"", at->second.name, at->second.numbers.size(), why);
  drop_requests(self, at->second);
  st.clients.erase(at);
}

attached take_client(self_ptr self, const attach& a) {
  auto& st = state_of(self);
  attached answer;
  if (a.configuration != st.setup.configuration) {
    answer.code = ack_code::digest_mismatch;
    answer.why = a.client + " has configuration " + a.configuration + ", the cluster runs " + st.setup.configuration +
                 "; give it the cluster's file";
    return answer;
  }
  if (a.texts != st.setup.texts) {
    answer.code = ack_code::digest_mismatch;
    answer.why = a.client + " has another config.json or tokenizer.json (digest " + a.texts + ") than " +
                 st.setup.name + " (digest " + st.setup.texts + "); give it the cluster's model folder";
    return answer;
  }
  if (st.front.code != ack_code::ok)
    return st.front;
  const auto who = caf::actor_cast<caf::actor_addr>(self->current_sender());
  if (const auto at = st.clients.find(who); at != st.clients.end()) {
    drop_requests(self, at->second);
    return st.front;
  }
  state::client& c = st.clients[who];
  c.name = a.client;
  c.reader = caf::actor_cast<gateway_reader_actor>(self->current_sender());
  spdlog::info("event=client_attached client={}", c.name);
  watch(self, st.watched, c.reader, [=](const caf::error& e) { drop_client(self, who, text(self->system(), e)); });
  return st.front;
}

ack refusal(const gateway_request& q, ack_code code, const error& why) {
  return {q.number, code, note_of(why)};
}

ack take_request(self_ptr self, const gateway_request& q) {
  auto& st = state_of(self);
  state::client* c = client_of_sender(self);
  if (c == nullptr)
    return refusal(q, ack_code::unknown, {"gateway_lost", st.setup.name + " does not know this client any more"});
  if (const status good = check_request({q.prompt, q.logit_rows, q.chunk_checkpoints, q.deadline_steps}, q.params,
                                        st.front.limits, st.setup.vocab);
      !good)
    return refusal(q, ack_code::wrong_state, good.failure());
  const gateway_limits& l = st.setup.limits;
  const auto length = static_cast<std::int64_t>(q.prompt.size());
  const std::int64_t outputs = std::clamp<std::int64_t>(q.params.max_tokens, 1, st.front.limits.max_model_len);
  const state::amount cost{1, length + outputs * q.params.n};
  const bool fits = st.admitted.requests < l.requests && st.admitted.tokens + cost.tokens <= l.tokens;
  if (!fits && st.admitted.requests > 0) // the only one is taken however large it is
    return refusal(q, ack_code::overloaded,
                   {"overloaded", st.setup.name + " has " + std::to_string(st.admitted.requests) + " requests of " +
                                      std::to_string(st.admitted.tokens) +
                                      " tokens (gateway.queue_requests, gateway.queue_tokens); try again later"});
  if (std::ranges::adjacent_find(q.logit_rows, std::greater_equal()) != q.logit_rows.end())
    return refusal(q, ack_code::wrong_state, {"invalid_params", "logit_rows: give each once, in ascending order"});
  if (c->numbers.contains(q.number))
    return refusal(q, ack_code::wrong_state,
                   {"duplicate_id", "request number " + std::to_string(q.number) + " of this client is in use"});
  auto r = std::make_shared<request_record>();
  const std::uint64_t number = ++st.next_number;
  r->req = {st.setup.origin, number};
  r->id = q.id;
  if (const status claimed = c->live->add(q.id, r->req); !claimed)
    return refusal(q, ack_code::wrong_state, claimed.failure());
  r->prompt = q.prompt;
  r->params = q.params;
  r->params.seq_seed = q.seed;
  r->logit_rows = q.logit_rows;
  r->priority = q.priority;
  r->deadline_steps = q.deadline_steps;
  r->cache_salt = q.cache_salt;
  r->chunk_checkpoints = q.chunk_checkpoints;
  r->live = c->live;
  r->accepted = state::clock::now();
  r->on_event = [number, who = self->address()](const generation_event& e) {
    if (const auto to = caf::actor_cast<gateway_door_actor>(who))
      tell_from_outside(to, session_news{number, e});
  };
  c->numbers[q.number] = number;
  st.live[number] = {c->reader.address(), q.number, std::vector<bool>(static_cast<std::size_t>(q.params.n), true),
                     cost.tokens};
  add(st.admitted, cost);
  *st.setup.live = static_cast<std::uint64_t>(st.admitted.requests);
  tell_from_outside(st.setup.gateway, open_request{r});
  return {q.number, ack_code::ok, {}};
}

void end_request(self_ptr self, const gateway_cancel& g) {
  auto& st = state_of(self);
  const state::client* c = client_of_sender(self);
  if (c == nullptr)
    return;
  if (const auto at = c->numbers.find(g.number); at != c->numbers.end())
    tell_from_outside(st.setup.gateway, cancel{{}, {st.setup.origin, at->second}, 1, 0, "caller"});
}

void pass_on(self_ptr self, const session_news& n) {
  auto& st = state_of(self);
  const auto at = st.live.find(n.number);
  if (at == st.live.end())
    return;
  state::request& r = at->second;
  const auto branch = static_cast<std::size_t>(n.event.index);
  if (branch >= r.open.size() || !r.open[branch])
    return; // of a session that failed, after its end
  if (n.event.result)
    r.open[branch] = false;
  const bool last = std::ranges::find(r.open, true) == r.open.end();
  if (const auto to = st.clients.find(r.reader); to != st.clients.end()) {
    state::client& c = to->second;
    c.held.push_back({{r.number, n.event.index, n.event.text, n.event.result ? pack_result(*n.event.result) : ""},
                      last ? state::amount{1, r.tokens} : state::amount{}});
    if (last)
      c.numbers.erase(r.number);
    send_news(self, c);
  }
  if (last)
    st.live.erase(at);
}

void take_credit(self_ptr self) {
  state::client* c = client_of_sender(self);
  if (c == nullptr || c->out.empty())
    return;
  release(state_of(self), c->out.front().ends);
  c->out.pop_front();
  if (!c->out.empty()) // which is what it takes now
    c->out.front().sent = state::clock::now();
  send_news(self, *c);
}

void note_engines(self_ptr self, const directory_report& r) {
  auto& st = state_of(self);
  st.asking = false;
  st.waits_for = r.waits_for;
  if (st.front.code != ack_code::ok) {
    st.front.given_up = r.given_up;
    st.front.why = r.given_up ? r.waits_for : "no worker is ready";
  }
  if (r.engines.empty())
    return; // requests wait for one, as soon as some engine was ever there
  st.front.engines = r.engines.size();
  if (st.front.code == ack_code::ok || !st.at_start.enough(r, state::clock::now()))
    return;
  st.front.code = ack_code::ok;
  st.front.given_up = false;
  st.front.why.clear();
  st.front.limits = r.engines.front().limits;
  st.front.numerics_id = r.engines.front().numerics_id;
}

void look(self_ptr self) {
  auto& st = state_of(self);
  if (!std::exchange(st.asking, true))
    ask(self, st.setup.directory, answer_limit, directory_query{})
        .then([=](const directory_report& r) { note_engines(self, r); },
              [=](const caf::error&) { state_of(self).asking = false; });
  const auto now = state::clock::now();
  std::vector<caf::actor_addr> silent;
  for (const auto& [who, c] : st.clients)
    if (!c.out.empty() && now > c.out.front().sent + st.setup.limits.taking_limit)
      silent.push_back(who);
  for (const caf::actor_addr& who : silent) {
    const std::string why =
        "it took nothing for " + std::to_string(st.setup.limits.taking_limit.count()) + " ms while results were there";
    const gateway_reader_actor reader = st.clients.at(who).reader;
    unwatch(self, st.watched, reader);
    drop_client(self, who, why);
    tell(self, reader, detached{why});
  }
  tell_later(self, look_every, tick{});
}

// Sessions that end after this speak to nobody: with a ledger their requests stay open in it.
void stop_all(self_ptr self) {
  auto& st = state_of(self);
  for (auto& [who, c] : st.clients) {
    unwatch(self, st.watched, c.reader);
    tell(self, c.reader, detached{"it was stopped", st.setup.cluster_stops->load()});
  }
  unwatch(self, st.watched, st.setup.gateway);
  self->quit();
}

caf::typed_response_promise<metrics_answer> tell_metrics(self_ptr self, const metrics_query& q) {
  auto answer = self->make_response_promise<metrics_answer>();
  ask(self, state_of(self).setup.metrics, 60000ms, q)
      .then([answer](const metrics_answer& a) mutable { answer.deliver(a); },
            [answer](const caf::error& e) mutable { answer.deliver(e); });
  return answer;
}

} // namespace

gateway_door_actor::behavior_type gateway_entry(self_ptr self, const gateway_entry_setup& setup) {
  auto& st = state_of(self);
  st.setup = setup;
  st.front.code = ack_code::busy;
  st.front.why = "no worker is ready";
  st.front.durable = setup.durable;
  watch(self, st.watched, setup.gateway, [=](const caf::error& e) {
    if (const auto& f = state_of(self).setup.on_failed)
      f("its gateway ended: " + text(self->system(), e));
  });
  tell(self, gateway_door_actor(self), tick{});
  return {
      [=](const attach& a) { return take_client(self, a); },
      [=](const gateway_request& q) { return take_request(self, q); },
      [=](const gateway_cancel& c) { end_request(self, c); },
      [=](const news_taken&) { take_credit(self); },
      [=](const metrics_query& q) { return tell_metrics(self, q); },
      [=](const waits_query&) { return waits_answer{state_of(self).waits_for}; },
      [=](const session_news& n) { pass_on(self, n); },
      [=](const tick&) { look(self); },
      [=](const stop&) { stop_all(self); },
  };
}

metrics_teller_actor::behavior_type metrics_teller(metrics_teller_actor::pointer self,
                                                   std::function<std::string()> text_of) {
  return {
      [=](const metrics_query&) { return metrics_answer{text_of()}; },
      [=](const stop&) { self->quit(); },
  };
}

} // namespace troupe
