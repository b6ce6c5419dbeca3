#include "actors/gateway.hpp"
#include "actors/cluster_access.hpp"
#include "runtime/kv/chain_hash.hpp"
#include "runtime/request/seeds.hpp"
#include <random>
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

using self_ptr = gateway_actor::stateful_pointer<gateway_state>;

constexpr std::size_t most_homeless = 4096; // requests (cluster.md §3.11)

// Hashes of the prompt's whole blocks, as far as a hit may go: where the prompt goes decides what can be found there.
std::vector<std::uint64_t> chain_of(const gateway_state& st, const request_record& r) {
  const gateway_setup& s = st.setup;
  std::vector<std::uint64_t> chain;
  if (st.engines.size() < 2 || !s.limits.prefix_cache || r.params.prompt_logprobs || !r.logit_rows.empty())
    return chain;
  const std::span<const std::int32_t> ids(r.prompt);
  const auto cap =
      static_cast<std::size_t>(hit_cap(s.limits.yoco, static_cast<std::int32_t>(ids.size()), s.limits.yoco_keep));
  std::uint64_t hash = chain_start(s.kv.numerics_id, s.kv.model_id, r.cache_salt);
  for (std::size_t at = 0; at < cap; at += tokens_per_kv_block)
    chain.push_back(hash = chain_next(hash, ids.subspan(at, tokens_per_kv_block)));
  return chain;
}

void ask(self_ptr self, gateway_state::engine& e) {
  e.ask_again = e.asked;
  if (std::exchange(e.asked, true))
    return;
  e.since_asked = 0;
  tell(self, e.scheduler, scheduler_query{});
}

// Has the engines say how much room and work they have, for later choices: one question at a time to each.
void ask_for_room(self_ptr self) {
  for (gateway_state::engine& e : state_of(self).engines)
    if (!e.lost)
      ask(self, e);
}

void lose_engine(gateway_state& st, const rank_lost& l) {
  if (l.rank >= st.engines.size())
    return;
  st.engines[l.rank].lost = l.why;
  st.engines[l.rank].in_doubt = false;
  st.loads[l.rank].accepting = false;
  st.chooser.forget(l.rank);
}

// Its requests hear of it here: from an engine that hangs nothing else would come.
void move_from(self_ptr self, const rank_lost& l) {
  auto& st = state_of(self);
  lose_engine(st, l);
  if (st.setup.replays)
    for (auto& [number, e] : st.live)
      if (e.rank == l.rank || e.prompt_rank == l.rank)
        tell(self, e.session, l);
}

// What an engine has to do still is what it said last and what it was given since; how far the requests have come in
// between is not known here.
void give_work(gateway_state& st, std::size_t rank, std::int64_t tokens) {
  st.loads[rank].outstanding_tokens += tokens;
  st.engines[rank].since_asked += tokens;
}
void take_work(gateway_state& st, std::size_t rank, std::int64_t tokens) {
  std::int64_t& left = st.loads[rank].outstanding_tokens;
  left = std::max<std::int64_t>(left - tokens, 0);
}

void book_off_prompt(gateway_state& st, gateway_state::entry& e) {
  if (e.prompt_rank != no_engine)
    take_work(st, std::exchange(e.prompt_rank, no_engine), static_cast<std::int64_t>(e.request->prompt.size()));
}

void book(gateway_state& st, gateway_state::entry& e, const engine_choice& c) {
  e.rank = c.engine;
  give_work(st, c.engine, e.cost);
  e.prompt_rank = c.prompt;
  if (c.prompt != no_engine)
    give_work(st, c.prompt, static_cast<std::int64_t>(e.request->prompt.size()));
}

void book_off(gateway_state& st, gateway_state::entry& e) {
  book_off_prompt(st, e);
  if (e.rank != no_engine)
    take_work(st, std::exchange(e.rank, no_engine), e.cost);
}

// Tokens that the longest outputs of all branches have.
std::int64_t output_room(const gateway_state& st, const request_record& r) {
  const std::int64_t room = st.setup.limits.max_model_len - static_cast<std::int64_t>(r.prompt.size());
  return std::min<std::int64_t>(r.params.max_tokens, std::max<std::int64_t>(room, 0)) * r.params.n;
}

engine_choice choose(gateway_state& st, const request_record& r, bool undivided = false) {
  return st.chooser.choose(st.loads,
                           {static_cast<std::int32_t>(r.prompt.size()), output_room(st, r),
                            r.params.prompt_logprobs || !r.logit_rows.empty(), undivided},
                           chain_of(st, r));
}

placed place_of(gateway_state& st, const engine_choice& c) {
  gateway_state::engine& e = st.engines[c.engine];
  if (!e.counters)
    e.counters = std::make_shared<token_counters>();
  placed p{static_cast<std::uint32_t>(c.engine), e.scheduler, {}, e.joined, e.window, e.counters};
  if (c.prompt == no_engine)
    return p;
  const handoff_place& to = e.at;
  p.prompt = {st.engines[c.prompt].scheduler,
              static_cast<std::uint32_t>(c.prompt),
              st.engines[c.prompt].joined,
              st.engines[c.prompt].window,
              {++st.next_handoff, true, p.rank, to.node, to.endpoint, to.incarnation, to.key}};
  return p;
}

constexpr auto look_for_room_again = std::chrono::milliseconds(20),
               look_for_others_again = std::chrono::milliseconds(200);

void look_later(self_ptr self, std::chrono::milliseconds when) {
  if (!std::exchange(state_of(self).looking, true))
    tell_later(self, when, tick{});
}

void end_turn(gateway_state::entry& e) {
  if (std::exchange(e.homeless, false))
    ++e.turn;
}

// Of a request that no engine was there for after so many have lost it: the next may end as soon as the last did.
std::chrono::milliseconds pause_after(std::uint32_t losses) {
  constexpr std::chrono::milliseconds first(500), longest(30000);
  return losses < 2 ? std::chrono::milliseconds(0) : std::min(first * (1 << std::min(losses - 2, 6u)), longest);
}

// Without an engine a request waits: for the next that joins, or for room.
void wait_for_place(self_ptr self, std::uint64_t number, gateway_state::entry& e, const engine_choice& c) {
  auto& st = state_of(self);
  if (!c.full) {
    if (!st.engines_given_up.empty())
      tell(self, e.session, give_up{engine_missing, st.engines_given_up});
    st.homeless.push_back(number);
    if (!std::exchange(e.homeless, true)) {
      const auto pause = pause_after(e.losses);
      e.not_before = self->clock().now() + pause;
      tell_later(self, st.setup.engine_wait + pause, still_homeless{number, e.turn});
    }
    return;
  }
  end_turn(e);
  st.crowded.insert(number);
  look_later(self, look_for_room_again);
}

// A live request that has no engine gets one, or waits for the next that joins.
void place(self_ptr self, std::uint64_t number) {
  auto& st = state_of(self);
  const auto at = st.live.find(number);
  if (at == st.live.end())
    return;
  gateway_state::entry& e = at->second;
  const engine_choice c = choose(st, *e.request, e.undivided);
  if (c.engine == no_engine)
    return wait_for_place(self, number, e, c);
  end_turn(e);
  book(st, e, c);
  tell(self, e.session, place_of(st, c));
}

// There is an engine more, or it is time for more requests to go there.
void place_homeless(self_ptr self) {
  auto& st = state_of(self);
  const auto now = self->clock().now();
  for (const std::uint64_t number : std::exchange(st.homeless, {})) {
    if (const auto at = st.live.find(number); at != st.live.end() && now < at->second.not_before) {
      st.homeless.push_back(number);
      look_later(self, look_for_others_again);
    } else {
      place(self, number);
    }
  }
}

// Engines that a session holds for lost may be well: they are asked. True: there are some.
bool ask_the_doubted(self_ptr self) {
  bool any = false;
  for (gateway_state::engine& e : state_of(self).engines) {
    any = any || e.in_doubt;
    if (e.in_doubt)
      ask(self, e);
  }
  return any;
}

// The first of those that wait for room ask again; the others would only be refused too.
void look_for_room(self_ptr self) {
  constexpr std::size_t at_once = 8;
  auto& st = state_of(self);
  st.looking = false;
  for (engine_load& l : st.loads)
    l.full = false;
  const std::vector<std::uint64_t> all(st.crowded.begin(), st.crowded.end());
  for (std::size_t i = 0; i < all.size() && i < at_once; ++i) {
    st.crowded.erase(all[i]);
    place(self, all[i]);
  }
}

// What waits is looked at again, now and then.
void look_around(self_ptr self) {
  look_for_room(self);
  const bool doubted = ask_the_doubted(self);
  if (!state_of(self).crowded.empty())
    look_later(self, look_for_room_again);
  else if (doubted)
    look_later(self, look_for_others_again);
  if (std::ranges::any_of(state_of(self).loads, &engine_load::accepting)) // else they wait for the next that joins
    place_homeless(self);
}

void note_room(self_ptr self, const scheduler_report& r) {
  auto& st = state_of(self);
  const auto from = caf::actor_cast<caf::actor_addr>(self->current_sender());
  for (std::size_t i = 0; i < st.engines.size(); ++i) {
    gateway_state::engine& e = st.engines[i];
    if (e.scheduler.address() != from)
      continue;
    e.asked = false;
    st.loads[i].free_blocks = r.free_blocks;
    st.loads[i].outstanding_tokens = r.outstanding_tokens + e.since_asked;
    if (std::exchange(e.ask_again, false))
      ask(self, e);
    if (!r.able || !std::exchange(e.in_doubt, false))
      continue;
    ++e.joined; // what sessions say of the time before counts no more
    e.lost.reset();
    st.loads[i].accepting = true;
    place_homeless(self);
  }
}

void end_prompt(self_ptr self, const prompt_done& d) {
  auto& st = state_of(self);
  if (const auto at = st.live.find(d.req.number); at != st.live.end())
    book_off_prompt(st, at->second);
}

void find_another(self_ptr self, const place_wanted& p) {
  auto& st = state_of(self);
  const auto at = st.live.find(p.req.number);
  if (at == st.live.end())
    return;
  book_off(st, at->second);
  at->second.losses += p.scheduler ? 1 : 0;
  if (p.scheduler && p.rank < st.engines.size() && st.engines[p.rank].scheduler == p.scheduler &&
      st.engines[p.rank].joined == p.joined && !st.engines[p.rank].lost) {
    lose_engine(st, {p.rank, p.why});
    st.engines[p.rank].in_doubt = true;
    look_later(self, look_for_others_again);
  }
  at->second.undivided = at->second.undivided || p.undivided;
  if (p.full && p.rank < st.loads.size())
    st.loads[p.rank].full = true;
  place(self, p.req.number);
}

void take_engine(self_ptr self, const engine_info& joined) {
  auto& st = state_of(self);
  if (st.engines.size() <= joined.rank) {
    st.engines.resize(joined.rank + 1, {.scheduler = {}, .lost = "it has not started", .at = {}});
    st.loads.resize(joined.rank + 1, {false, 0, 0, 0});
  }
  gateway_state::engine& e = st.engines[joined.rank];
  // A client that is its own gateway may be here before the first worker, and go on when all workers are others.
  const std::string id = id_of(joined.model);
  if (joined.model.texts != st.setup.texts || (!st.setup.kv.model_id.empty() && id != st.setup.kv.model_id)) {
    lose_engine(st, {joined.rank, "it has another model"});
    spdlog::error(
        "event=engine_refused rank={} has=\"{}\" requests_have=\"{}\": start this process anew if the cluster's "
        "model was changed on purpose",
        joined.rank, id, st.setup.kv.model_id.empty() ? "texts " + st.setup.texts : st.setup.kv.model_id);
    return;
  }
  if (st.setup.kv.model_id.empty()) {
    st.setup.limits = joined.limits;
    st.setup.kv.numerics_id = joined.numerics_id;
    st.setup.kv.model_id = id;
  }
  e.metrics.held_messages += e.window->held_so_far();
  e.window = std::make_shared<message_window>(st.setup.unacked_messages); // nobody answers what the last one was sent
  e.scheduler = joined.scheduler;
  ++e.joined;
  e.lost.reset();
  e.asked = e.in_doubt = false;
  e.at = joined.handoffs;
  engine_load& l = st.loads[joined.rank];
  l.accepting = true;
  l.full = false;
  l.kind = joined.kind;
  l.free_blocks = l.blocks = joined.limits.kv_blocks - 1;
  place_homeless(self);
}

branch_record unserved_record(const request_record& r, std::uint32_t rank, finish_reason why, const error& failure) {
  branch_record b;
  b.rank = rank;
  b.finish_reason = why == finish_reason::abort ? "abort" : "error";
  b.cause = failure.code;
  b.prompt_tokens = static_cast<std::int64_t>(r.prompt.size());
  b.max_tokens = r.params.max_tokens;
  b.end = std::chrono::duration<double>(std::chrono::steady_clock::now() - r.accepted).count();
  return b;
}

void close(self_ptr self, const done& d) {
  auto& st = state_of(self);
  const auto at = st.live.find(d.req.number);
  if (at == st.live.end())
    return;
  if (at->second.rank == no_engine && st.crowded.erase(d.req.number) == 0)
    std::erase(st.homeless, d.req.number);
  gateway_state::entry& e = at->second;
  for (const branch_record& b : d.branches) {
    e.cost -= b.output_tokens;
    if (b.rank < st.engines.size())
      st.engines[b.rank].metrics.take(b);
  }
  for (const std::size_t rank : {e.rank, e.prompt_rank}) // of a session that failed
    for (std::size_t i = 0; rank != no_engine && i < e.sequences.size(); ++i)
      st.engines[rank].window->answered(e.sequences[i]);
  book_off(st, e);
  st.live.erase(at);
  ++st.served;
  ask_for_room(self);
  if (st.stopping && st.live.empty())
    self->quit();
}

// A session that ended without saying done: its readers get an end, its sequences are cancelled.
void session_ended(self_ptr self, const std::shared_ptr<const request_record>& r, std::uint64_t seed,
                   const std::string& why) {
  auto& st = state_of(self);
  const auto at = st.live.find(r->req.number);
  if (at == st.live.end())
    return;
  const std::size_t rank = at->second.rank;
  if (rank != no_engine)
    for (const std::uint64_t sequence : at->second.sequences)
      tell_from_outside(st.engines[rank].scheduler, cancel{{}, r->req, 1, sequence, "session lost"});
  const error failure{"internal", "the session ended early: " + why};
  const branch_record lost =
      unserved_record(*r, rank == no_engine ? 0 : static_cast<std::uint32_t>(rank), finish_reason::error, failure);
  end_unserved(*r, seed, finish_reason::error, failure);
  close(self, done{r->req, std::vector(at->second.sequences.size(), lost)});
}

// A request that gets no session: its branches end at once and count for the first engine.
void refuse(gateway_state& st, const request_record& r, std::uint64_t seed, finish_reason why, const error& failure) {
  r.live->take(r.id);
  for (std::int32_t i = 0; i < r.params.n && !st.engines.empty(); ++i)
    st.engines.front().metrics.take(unserved_record(r, 0, why, failure));
  end_unserved(r, seed, why, failure);
}

// What earlier processes had of this request, by branch; empty: nothing of any.
std::vector<std::optional<ledger_entry>> take_recovered(self_ptr self, const request_record& r,
                                                        const session_setup& s) {
  auto& st = state_of(self);
  std::vector<std::optional<ledger_entry>> all;
  for (std::int32_t i = 0; i < r.params.n; ++i) {
    auto found = st.recovered.take(ledger_request_of(r, s.seed, static_cast<std::uint32_t>(i), s.terms));
    for (const ledger_closed& c : found.useless)
      tell(self, st.setup.ledger, ledger_note{c});
    if (!found.why_not.empty())
      spdlog::warn("request {}: the ledger holds output of another request of this id ({}), which is not used", r.id,
                   found.why_not);
    all.push_back(std::move(found.entry));
  }
  if (std::ranges::none_of(all, [](const auto& e) { return e.has_value(); }))
    all.clear();
  return all;
}

void give_ledger(self_ptr self, session_setup& s) {
  auto& st = state_of(self);
  if (!st.setup.ledger)
    return;
  s.ledger = st.setup.ledger;
  s.terms = {st.setup.kv.numerics_id + " " + st.setup.kv.model_id, st.setup.limits.yoco, st.setup.limits.yoco_keep,
             st.setup.eos_ids};
  s.recovered = take_recovered(self, *s.request, s);
}

ack abort_request(self_ptr self, const cancel& c) {
  auto& st = state_of(self);
  const auto at = st.live.find(c.req.number);
  if (at == st.live.end())
    return {c.head.msg_id, ack_code::unknown, {}};
  tell_from_outside(at->second.session, c);
  return {c.head.msg_id, ack_code::ok, {}};
}

void open(self_ptr self, const std::shared_ptr<const request_record>& r) {
  auto& st = state_of(self);
  const std::uint64_t seed = resolve_seed(*r, st.setup.seed, st.setup.random_bits);
  if (st.stopping)
    return refuse(st, *r, seed, finish_reason::abort, {"shutdown", "the engine takes no new requests"});
  if (st.closed)
    return refuse(st, *r, seed, finish_reason::error, *st.closed);
  const std::int64_t cost = static_cast<std::int64_t>(r->prompt.size()) + output_room(st, *r);
  const engine_choice c = choose(st, *r);
  const std::size_t rank = c.engine;
  if (rank == no_engine && !st.setup.replays)
    return refuse(st, *r, seed, finish_reason::error,
                  {"engine_lost", "no engine is left: " + st.engines.front().lost.value_or("none was started")});
  if (rank == no_engine && !c.full && !st.engines_given_up.empty())
    return refuse(st, *r, seed, finish_reason::error, {engine_missing, st.engines_given_up});
  if (rank == no_engine && st.homeless.size() + st.crowded.size() >= most_homeless)
    return refuse(
        st, *r, seed, finish_reason::error,
        {"overloaded", std::to_string(most_homeless) + " requests wait for an engine already; try again later"});
  session_setup s;
  s.request = r;
  s.vocabulary = st.setup.vocabulary;
  s.eos_ids = st.setup.eos_ids;
  s.seed = seed;
  s.gateway = caf::actor_cast<caf::actor>(self);
  s.replays = st.setup.replays;
  s.max_attempts = st.setup.max_attempts;
  s.closes_aborted = st.setup.serves_others;
  give_ledger(self, s);
  const bool goes_on = !s.recovered.empty(); // the session submits it, behind what it has
  if (rank != no_engine && !goes_on) {
    const placed p = place_of(st, c);
    s.scheduler = p.scheduler;
    s.rank = p.rank;
    s.prompt = p.prompt;
    s.joined = p.joined;
    s.window = p.window;
    s.counters = p.counters;
  }
  for (std::int32_t i = 0; i < r->params.n; ++i)
    s.sequences.push_back(++st.next_sequence);
  gateway_state::entry entry;
  entry.request = r;
  entry.sequences = s.sequences;
  entry.cost = cost;
  if (rank != no_engine) {
    book(st, entry, c);
    st.engines[rank].metrics.params_n.observe(r->params.n);
  } else {
    wait_for_place(self, r->req.number, entry, c);
  }
  entry.session = self->spawn(session, s);
  const bool aborted = r->live->take(r->id);
  watch(self, st.watched, entry.session,
        [=](const caf::error& why) { session_ended(self, r, seed, text(self->system(), why)); });
  // Behind a prompt that another engine computes the session asks for the other branches, once there is room.
  for (std::size_t i = 0; i < (s.prompt.scheduler ? 1 : s.sequences.size()) && s.scheduler; ++i)
    send_submission(*s.window, entry.session, s.scheduler, submission(s, i));
  if (goes_on && rank != no_engine)
    tell(self, entry.session, place_of(st, c));
  st.live.emplace(r->req.number, std::move(entry));
  if (aborted) // the abort went past it
    (void)abort_request(self, cancel{{}, r->req, 1, 0, "caller"});
  ask_for_room(self);
}

void stop_all(self_ptr self) {
  auto& st = state_of(self);
  st.stopping = true;
  for (auto& [number, e] : st.live)
    tell(self, e.session, stop{});
  if (st.live.empty())
    self->quit();
}

// No engine came for too long: silence has a limit.
void end_homeless(self_ptr self, const still_homeless& s) {
  auto& st = state_of(self);
  const auto at = st.live.find(s.number);
  if (at == st.live.end() || !at->second.homeless || at->second.turn != s.turn)
    return;
  std::string why = st.engines.empty() ? "none was ever there" : "";
  for (std::size_t rank = 0; rank < st.engines.size(); ++rank)
    why +=
        (rank == 0 ? "engine " : "; engine ") + std::to_string(rank) + ": " +
        st.engines[rank].lost.value_or(st.loads[rank].kind == engine_kind::prompt ? "computes prompts alone" : "well");
  tell(self, at->second.session,
       give_up{engine_missing, "no engine took the request within " + std::to_string(st.setup.engine_wait.count()) +
                                   " ms (cluster.join_timeout_s): " + why});
}

void end_all_homeless(self_ptr self, const engines_given_up& g) {
  auto& st = state_of(self);
  st.engines_given_up = g.why;
  if (g.why.empty())
    return;
  for (const std::uint64_t number : st.homeless)
    if (const auto at = st.live.find(number); at != st.live.end())
      tell(self, at->second.session, give_up{engine_missing, g.why});
}

void end_all(self_ptr self, const give_up& g) {
  auto& st = state_of(self);
  st.closed = error{g.code, g.text};
  for (auto& [number, e] : st.live)
    tell(self, e.session, g);
}

gateway_report report_of(const gateway_state& st) {
  gateway_report r{st.live.size(), st.served, {}, {}};
  for (const engine_load& l : st.loads)
    r.outstanding.push_back(l.outstanding_tokens);
  for (const gateway_state::engine& e : st.engines) {
    request_metrics& m = r.metrics.emplace_back(e.metrics);
    m.held_messages += e.window->held_so_far();
    if (!e.counters)
      continue;
    m.prompt_tokens = e.counters->prompt.load(std::memory_order_relaxed);
    m.generation_tokens = e.counters->generation.load(std::memory_order_relaxed);
  }
  return r;
}

} // namespace

std::uint64_t resolve_seed(const request_record& r, std::optional<std::uint64_t> run_seed,
                           const std::function<std::uint64_t()>& random_bits) {
  if (r.params.seq_seed)
    return *r.params.seq_seed;
  if (run_seed || r.seed_from_id)
    return derived_seed(run_seed.value_or(0), r.id);
  return random_bits() >> 11;
}

std::uint64_t random_bits_of_system() {
  std::random_device source;
  return static_cast<std::uint64_t>(source()) << 32 | source();
}

gateway_actor::behavior_type gateway(self_ptr self, const gateway_setup& setup) {
  auto& st = state_of(self);
  st.setup = setup;
  if (setup.replays) { // its engines serve other gateways too: theirs start elsewhere
    st.next_sequence = setup.random_bits();
    st.next_handoff = setup.random_bits();
  }
  st.recovered = recovered_branches(std::move(st.setup.recovered), setup.serves_others);
  st.setup.recovered.clear();
  if (setup.serves_others && setup.ledger)
    tell_later(self, setup.forget_after, forget_recovered{});
  if (setup.ledger)
    tell(self, setup.ledger, ledger_user{caf::actor_cast<caf::actor>(self)});
  for (const scheduler_actor& s : setup.schedulers) {
    st.engines.push_back({.scheduler = s, .lost = {}, .at = {}});
    st.loads.push_back({true, 0, setup.kv.blocks - 1, setup.kv.blocks - 1, engine_kind::normal, false});
  }
  return {
      [=](const open_request& o) { open(self, o.request); },
      [=](const cancel& c) { return abort_request(self, c); },
      [=](const request_refused& r) {
        if (!state_of(self).engines.empty()) // counts for the first engine
          state_of(self).engines.front().metrics.refuse(r.code, r.branches);
      },
      [=](const done& d) { close(self, d); },
      [=](const scheduler_report& r) { note_room(self, r); },
      [=](const rank_lost& l) { move_from(self, l); },
      [=](const engine_joined& j) { take_engine(self, j.engine); },
      [=](const engines_given_up& g) { end_all_homeless(self, g); },
      [=](const place_wanted& p) { find_another(self, p); },
      [=](const prompt_done& d) { end_prompt(self, d); },
      [=](const ledger_failed& f) {
        state_of(self).closed =
            error{"ledger_failed", "the ledger of requests cannot be written, nothing new is begun: " + f.why.message};
      },
      [=](const tick&) { look_around(self); },
      [=](const forget_recovered&) {
        for (const ledger_closed& c : state_of(self).recovered.take_all())
          tell(self, state_of(self).setup.ledger, ledger_note{c});
      },
      [=](const still_homeless& s) { end_homeless(self, s); },
      [=](const gateway_query&) { return report_of(state_of(self)); },
      [=](const drain&) {
        state_of(self).closed = error{cluster_stopped, "the cluster is being stopped, nothing new is begun"};
      },
      [=](const give_up& g) { end_all(self, g); },
      [=](const stop&) { stop_all(self); },
  };
}

} // namespace troupe
