#include "actors/gateway_client.hpp"
#include "cluster/connect.hpp"
#include "runtime/request/seeds.hpp"
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

using namespace std::chrono_literals;
using self_ptr = gateway_client_actor::stateful_pointer<gateway_client_state>;
using state = gateway_client_state;

constexpr auto look_every = 100ms;
constexpr std::int64_t slowest_link = std::int64_t{1} << 20; // bytes a second

// Of a request on its way, about: its lists are all that can be long.
std::int64_t bytes_of(const request_record& r) {
  return static_cast<std::int64_t>(sizeof(std::int32_t) * (r.prompt.size() + r.logit_rows.size()));
}

// A reader's exception must not end the client: the other requests go on.
void tell_reader(const request_record& r, const generation_event& e) {
  try {
    if (r.on_event)
      r.on_event(e);
  } catch (...) {
  }
}

// One branch has ended. True: it was the last one of the request, which is no more there.
bool end_branch(self_ptr self, std::uint64_t number, std::size_t index, generation_event e) {
  auto& st = state_of(self);
  state::request& r = st.live.at(number);
  r.branches[index].ended = true;
  const auto record = r.record;
  const bool last = --r.left == 0;
  if (last) {
    if (st.window)
      st.window->answered(number); // if it was not sent yet, it never is
    st.live.erase(number);
    record->live->remove(record->id);
  }
  tell_reader(*record, e);
  return last;
}

// The rest of the request ends here.
void end_request(self_ptr self, std::uint64_t number, finish_reason why, const error& failure) {
  const state::request r = state_of(self).live.at(number);
  for (std::size_t i = 0; i < r.branches.size(); ++i) {
    if (r.branches[i].ended)
      continue;
    generation_event e;
    e.id = r.record->id;
    e.index = static_cast<int>(i);
    e.result.emplace();
    e.result->id = e.id;
    e.result->index = e.index;
    e.result->prompt_tokens = static_cast<int>(r.record->prompt.size());
    e.result->seq_seed = branch_seed(r.seed, static_cast<std::uint32_t>(i));
    e.result->finish_reason = why == finish_reason::abort ? "abort" : "error";
    if (why == finish_reason::error)
      e.result->failure = failure;
    end_branch(self, number, i, e);
  }
}

// Those of the requests that the gateway had, or all.
void end_requests(self_ptr self, bool all, const error& why) {
  std::vector<std::uint64_t> ending;
  for (const auto& [number, r] : state_of(self).live)
    if (all || r.asked)
      ending.push_back(number);
  for (const std::uint64_t number : ending)
    end_request(self, number, finish_reason::error, why);
}

// Since that attachment.
bool is_attached(const state& st, std::uint64_t attachment) {
  return st.entry != nullptr && st.attachments == attachment;
}

error lost(const state& st, const std::string& more) {
  return {"gateway_lost", st.setup.gateway + " was lost (" + st.why + "): " + more};
}

void lose_gateway(self_ptr self, const std::string& why) {
  auto& st = state_of(self);
  if (!st.entry)
    return;
  unwatch(self, st.watched, st.entry);
  st.entry = gateway_entry_actor();
  st.why = why;
  st.alone_since = self->clock().now();
  st.unanswered_bytes = 0;
  st.window.reset();
  spdlog::warn("event=gateway_lost gateway={} live={} durable={} why=\"{}\"", st.setup.gateway, st.live.size(),
               st.answer.durable, why);
  if (st.stopped)
    end_requests(self, true, {cluster_stopped, "the cluster was stopped"});
  else if (!st.answer.durable)
    end_requests(self, false, lost(st, "its requests ended with it; submit them again"));
  std::vector<std::uint64_t> aborted;
  for (const auto& [number, r] : st.live)
    if (r.aborted)
      aborted.push_back(number);
  for (const std::uint64_t number : aborted) // the next gateway is not asked for them
    end_request(self, number, finish_reason::abort, {});
  for (auto& [number, r] : st.live) {
    r.asked = false;
    for (state::branch& b : r.branches)
      b.heard = 0;
  }
}

void ask_now(self_ptr self, std::uint64_t number) {
  auto& st = state_of(self);
  state::request& r = st.live.at(number);
  const request_record& q = *r.record;
  r.asked = true;
  const std::int64_t bytes = bytes_of(q);
  st.unanswered_bytes += bytes;
  const auto limit = st.setup.control_limit + std::chrono::milliseconds(1000 * st.unanswered_bytes / slowest_link);
  gateway_request g{number,       q.id,       q.prompt,         q.params,     r.seed,
                    q.logit_rows, q.priority, q.deadline_steps, q.cache_salt, q.chunk_checkpoints};
  ask(self, st.entry, limit, std::move(g))
      .then(
          [=, at = st.attachments](const ack& a) {
            auto& s = state_of(self);
            if (!is_attached(s, at))
              return;
            s.unanswered_bytes -= bytes;
            s.window->answered(number);
            if (a.code != ack_code::ok && s.live.contains(number))
              end_request(self, number, finish_reason::error, error_of(a));
          },
          [=, at = st.attachments](const caf::error& e) {
            if (is_attached(state_of(self), at))
              lose_gateway(self, "it does not answer: " + text(self->system(), e));
          });
}

void ask_for(self_ptr self, std::uint64_t number) {
  state_of(self).window->send(number, [=] { ask_now(self, number); });
}

void take_answer(self_ptr self, const gateway_entry_actor& from, const attached& a) {
  auto& st = state_of(self);
  st.finding = false;
  st.given_up = a.given_up;
  if (a.code != ack_code::ok) {
    st.refused = st.refused || a.code != ack_code::busy;
    st.why = a.why;
    if (a.given_up)
      end_requests(self, true, {engine_missing, a.why});
    return;
  }
  st.answer = a;
  st.entry = from;
  ++st.attachments;
  st.window = std::make_shared<message_window>(st.setup.cluster.unacked_messages);
  watch(self, st.watched, from, [=, at = st.attachments](const caf::error& e) {
    if (is_attached(state_of(self), at))
      lose_gateway(self, text(self->system(), e));
  });
  for (auto& [number, r] : st.live)
    ask_for(self, number);
}

void reach(self_ptr self, const cluster_status& s) {
  auto& st = state_of(self);
  const auto at = std::ranges::find_if(s.members, [&](const member_report& m) {
    return m.known.who.role == member_role::gateway && m.known.who.name == st.setup.gateway && m.known.who.port != 0 &&
           m.known.state == member_state::active;
  });
  if (at == s.members.end()) {
    st.finding = false;
    if (s.leads)
      st.why = st.setup.gateway + " is not there";
    return;
  }
  const auto found = connect<gateway_entry_actor>(self->system(), {at->known.who.host, at->known.who.port});
  if (!found) {
    st.finding = false;
    st.why = found.failure().message;
    return;
  }
  const gateway_entry_actor entry = *found;
  ask(self, entry, st.setup.control_limit, attach{st.setup.name, st.setup.cluster.configuration, st.setup.texts})
      .then([=](const attached& a) { take_answer(self, entry, a); },
            [=](const caf::error& e) {
              state_of(self).finding = false;
              state_of(self).why = "it does not answer: " + text(self->system(), e);
            });
}

void find_gateway(self_ptr self) {
  auto& st = state_of(self);
  if (const auto& now = st.setup.cluster.coordinators_now)
    if (auto there = now(); !there.empty())
      st.setup.cluster.coordinators = std::move(there);
  const endpoint& at = st.setup.cluster.coordinators[st.next++ % st.setup.cluster.coordinators.size()];
  const auto found = connect<membership_actor>(self->system(), at);
  if (!found) {
    st.why = found.failure().message;
    return;
  }
  st.finding = true;
  ask(self, *found, st.setup.control_limit, status_query{})
      .then([=](const cluster_status& s) { reach(self, s); },
            [=](const caf::error&) { state_of(self).finding = false; });
}

void look(self_ptr self) {
  auto& st = state_of(self);
  tell_later(self, look_every, tick{});
  if (st.entry)
    return;
  if (st.stopped)
    return end_requests(self, true, {cluster_stopped, "the cluster was stopped"});
  if (!st.finding && !st.refused)
    find_gateway(self);
  if (st.refused || self->clock().now() - st.alone_since > st.setup.absence_limit)
    end_requests(self, true,
                 lost(st, "no gateway of that name has taken the request within " +
                              std::to_string(st.setup.absence_limit.count()) + " ms; see troupe status"));
}

ack abort_request(self_ptr self, const cancel& c) {
  auto& st = state_of(self);
  const auto at = st.live.find(c.req.number);
  if (at == st.live.end())
    return {c.head.msg_id, ack_code::unknown, {}};
  at->second.aborted = true;
  if (st.entry && at->second.asked)
    tell(self, st.entry, gateway_cancel{c.req.number});
  else
    end_request(self, c.req.number, finish_reason::abort, {});
  return {c.head.msg_id, ack_code::ok, {}};
}

void open(self_ptr self, const std::shared_ptr<const request_record>& r) {
  auto& st = state_of(self);
  state::request q;
  q.record = r;
  q.seed = resolve_seed(*r, st.setup.seed, st.setup.random_bits);
  q.branches.resize(static_cast<std::size_t>(r->params.n));
  q.left = q.branches.size();
  const bool aborted = r->live->take(r->id);
  st.live.emplace(r->req.number, std::move(q));
  if (st.entry)
    ask_for(self, r->req.number);
  if (aborted) // the abort went past it
    (void)abort_request(self, cancel{{}, r->req, 1, 0, "caller"});
}

void take_news(self_ptr self, const gateway_news& batch) {
  auto& st = state_of(self);
  if (!st.entry || caf::actor_cast<caf::actor_addr>(self->current_sender()) != st.entry.address())
    return;
  for (const branch_news& n : batch.news) {
    const auto at = st.live.find(n.number);
    const auto index = static_cast<std::size_t>(n.branch);
    if (at == st.live.end() || index >= at->second.branches.size() || at->second.branches[index].ended)
      continue;
    state::branch& b = at->second.branches[index];
    const std::size_t known = std::min(b.given - b.heard, n.text.size()); // of an earlier gateway
    b.heard += n.text.size();
    b.given = std::max(b.given, b.heard);
    generation_event e{at->second.record->id, n.branch, n.text.substr(known), std::nullopt};
    if (!n.result.empty()) {
      e.result = unpack_result(n.result);
      if (!e.result) {
        end_request(self, n.number, finish_reason::error, {"internal", "the gateway sent a result that is none"});
        continue;
      }
      end_branch(self, n.number, index, std::move(e));
    } else if (!e.text.empty()) {
      tell_reader(*at->second.record, e);
    }
  }
  tell(self, st.entry, news_taken{});
}

void stop_all(self_ptr self) {
  auto& st = state_of(self);
  std::vector<std::uint64_t> all;
  for (const auto& [number, r] : st.live)
    all.push_back(number);
  st.window.reset(); // what waits to be sent does not go any more
  for (const std::uint64_t number : all) {
    if (st.entry)
      tell(self, st.entry, gateway_cancel{number});
    end_request(self, number, finish_reason::abort, {});
  }
  if (st.entry)
    unwatch(self, st.watched, st.entry);
  self->quit();
}

void tell_what_is_awaited(self_ptr self, const awaited_query& q) {
  const auto& st = state_of(self);
  if (!st.entry)
    return q.told(st.setup.gateway + " is lost (" + st.why + ")");
  ask(self, st.entry, st.setup.control_limit, waits_query{})
      .then([=](const waits_answer& a) { q.told(a.why); },
            [=](const caf::error&) { q.told(state_of(self).setup.gateway + " does not answer"); });
}

} // namespace

gateway_client_actor::behavior_type gateway_client(self_ptr self, const gateway_client_setup& setup) {
  state_of(self).setup = setup;
  state_of(self).alone_since = self->clock().now();
  tell(self, gateway_client_actor(self), tick{});
  return {
      [=](const open_request& o) { open(self, o.request); },
      [=](const cancel& c) { return abort_request(self, c); },
      [](const request_refused&) {}, // the metrics are the gateway's, of what it has seen
      [=](const gateway_news& n) { take_news(self, n); },
      [=](const detached& d) {
        if (caf::actor_cast<caf::actor_addr>(self->current_sender()) != state_of(self).entry.address())
          return;
        state_of(self).stopped = d.stopped;
        lose_gateway(self, d.why);
      },
      [=](const gateway_client_query&) {
        const auto& st = state_of(self);
        return gateway_client_report{st.entry, st.refused || st.given_up, st.why, st.answer};
      },
      [=](const awaited_query& q) { tell_what_is_awaited(self, q); },
      [=](const tick&) { look(self); },
      [=](const stop&) { stop_all(self); },
  };
}

} // namespace troupe
