#include "actors/worker_process.hpp"
#include "actors/engine_snapshot_of.hpp"
#include "actors/self_test.hpp"
#include "cluster/build_id.hpp"
#include "cluster/certificates.hpp"
#include "cluster/passing_fault.hpp"
#include <map>
#include <set>

namespace troupe {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t pool_threads = 2;

bool follows(const worker_setup& s) {
  return s.ranks && !s.ranks->leads();
}

bool has_ranks_elsewhere(const worker_setup& s) {
  return s.ranks && s.ranks->place().on_several_nodes();
}

bool hands_over(const worker_setup& s) {
  return s.kind != engine_kind::normal && !follows(s);
}

bool hands_over_by_link(const worker_setup& s) {
  return hands_over(s) && (!s.handoffs.shared_memory || s.handoffs.several_nodes);
}

// What carries bulk bytes to processes that share no memory with this one. Where other hosts may listen it is
// encrypted; whose keys to trust is learned over the control plane.
std::shared_ptr<bulk_context> bulk_of(const worker_setup& s) {
  if (!hands_over_by_link(s) && (!s.experts || s.experts->tcp_address.empty()) && !has_ranks_elsewhere(s))
    return nullptr;
  if (!s.process.cluster.tls)
    return std::make_shared<bulk_context>();
  const auto keys = read_curve_keys(s.process.cluster.curve_file);
  if (!keys)
    throw config_error("", "security.curve_dir", s.process.cluster.curve_file, keys.failure().message,
                       "make the keys of this node with troupe keygen");
  return std::make_shared<bulk_context>(security_mode::mutual, *keys);
}

std::shared_ptr<handoff_endpoint> endpoint_of(const worker_setup& s, const process_setup& p,
                                              const std::shared_ptr<bulk_context>& bulk) {
  if (!hands_over(s))
    return nullptr;
  handoff_setup h;
  h.self = {s.process.cluster.name, s.rank, s.process.incarnation, build_id()};
  h.node = s.process.node;
  h.shape = {p.caches.block_bytes, p.caches.slot_bytes, 0, id_of(p.model)};
  h.times = s.handoffs.times;
  if (s.kind == engine_kind::completion)
    h.senders = s.handoffs.senders;
  h.shared_memory = s.handoffs.shared_memory;
  h.uses_link = hands_over_by_link(s);
  h.bulk = bulk;
  h.bind = "tcp://" + to_string(s.handoffs.at);
  if (s.handoffs.at.port == 0)
    h.bind.replace(h.bind.rfind(':') + 1, std::string::npos, "*");
  h.credit_bytes = s.handoffs.credit_bytes;
  return std::make_shared<handoff_endpoint>(h);
}

model_process without_gateway(const worker_setup& s, const std::shared_ptr<bulk_context>& bulk) {
  std::optional<expert_group_place> experts = s.experts;
  if (experts)
    experts->bulk = bulk;
  if (s.ranks)
    s.ranks->use(bulk);
  model_process p = make_model_process(s.engine, experts ? &*experts : nullptr, s.ranks);
  p.setup->front.vocabulary.reset();
  if (!p.setup->part && !s.ranks && s.engine.ep == 1 && s.engine.cp == 1)
    p.setup->model.self_test = self_test(*p.setup->engines.front(), p.setup->limits);
  if (follows(s))
    p.setup->grammars = {};
  p.setup->rank = s.rank;
  p.setup->limits.unacked_tokens = s.unacked_tokens;
  p.setup->limits.kv_watermark = s.kv_watermark;
  p.setup->kind = s.kind;
  p.setup->handoffs = endpoint_of(s, *p.setup, bulk);
  if (p.setup->handoffs)
    p.setup->handoffs_at = {s.process.node, p.setup->handoffs->address(), s.process.incarnation,
                            bulk ? bulk->keys().public_key : std::string()};
  return p;
}

// The other ranks of a group that are there. A view that does not name one says nothing of it: a new leader hears of
// its members one by one.
class known_peers {
public:
  explicit known_peers(const expert_group_place& place) : place_(place) {}

  std::vector<group_peer> after(const view& v) {
    for (const member_entry& e : v.members) {
      const auto rank = static_cast<std::int32_t>(e.who.rank) - static_cast<std::int32_t>(place_.first);
      if (e.who.role != member_role::worker || rank < 0 || rank >= place_.ranks || rank == place_.rank)
        continue;
      if (!is_over(e.state))
        peers_[rank] = {rank, e.who.incarnation, e.who.links, e.who.key};
      else if (const auto at = peers_.find(rank); at != peers_.end() && at->second.incarnation == e.who.incarnation)
        peers_.erase(at);
    }
    std::vector<group_peer> all;
    for (const auto& [rank, peer] : peers_)
      all.push_back(peer);
    return all;
  }

private:
  expert_group_place place_;
  std::map<std::int32_t, group_peer> peers_; // by rank of the group
};

// The public keys of workers, likewise.
class known_keys {
public:
  void hear(const view& v) {
    for (const member_entry& e : v.members) {
      if (e.who.role != member_role::worker || e.who.key.empty())
        continue;
      if (!is_over(e.state)) {
        of_ranks_[e.who.rank] = e.who.key;
        there_[e.who.rank] = e.who.incarnation;
      } else if (const auto at = there_.find(e.who.rank); at != there_.end() && at->second == e.who.incarnation) {
        there_.erase(at);
      }
    }
  }
  // A rank that was lost comes back with its node's key.
  const std::map<std::uint32_t, std::string>& of_ranks() const { return of_ranks_; }
  std::set<std::string> of_those_there() const {
    std::set<std::string> keys;
    for (const auto& [rank, incarnation] : there_)
      keys.insert(of_ranks_.at(rank));
    return keys;
  }

private:
  std::map<std::uint32_t, std::string> of_ranks_;
  std::map<std::uint32_t, std::uint64_t> there_; // by rank, their incarnations
};

// hear: void(const view&), first of every view. Who is new is heard before the view counts, so that it is expected
// everywhere when it comes; who is over when it counts.
template <class F> void hear_both_phases(member_setup& m, F hear) {
  const auto shared = std::make_shared<F>(std::move(hear));
  m.on_prepare = [shared, next = m.on_prepare](view v) {
    std::erase_if(v.members, [](const member_entry& e) { return is_over(e.state); });
    (*shared)(v);
    if (next)
      next(v);
  };
  m.on_view = [shared, next = m.on_view](const view& v) {
    (*shared)(v);
    if (next)
      next(v);
  };
}

} // namespace

worker_process::worker_process(const worker_setup& s)
    : ranks_(s.ranks), bulk_(bulk_of(s)), process_(without_gateway(s, bulk_)),
      config_(s.process.cluster, pool_threads) {
  process_.setup->on_engine_lost = [this](const std::string& why) { expel(why); }; // its node agent starts another
  root_ = system_.spawn(worker_root, std::shared_ptr<const process_setup>(process_.setup));
  started parts;
  {
    caf::scoped_actor self{system_};
    ask(self.ptr(), root_, 30000ms, start{}).receive([&](const started& p) { parts = p; }, [](const caf::error&) {});
  }
  const auto port = publish(system_, root_, s.at);
  if ((parts.engines.empty() && !follows(s)) || !port) {
    parts = {};
    end(10s);
    if (port)
      throw passing_fault("", "engine", s.process.name, "did not start within 30 s", "see what keeps this host busy");
    throw passing_fault("", "control.port", std::to_string(s.at.port), port.failure().message,
                        "give another port, or stop what listens there");
  }
  port_ = *port;
  member_setup m = member_setup_of(s.process, member_role::worker, s.rank, {s.at.host, port_});
  m.who.model = process_.setup->model;
  if (!parts.engines.empty()) {
    m.scheduler = scheduler_ = parts.engines.front().scheduler;
    m.engine = root_;
  }
  m.on_expelled = [this](const std::string& why) { expel(why); };
  m.on_stop = [this](bool) { told_to_stop_ = true; };
  if (ranks_)
    enter_engine(s, m);
  if (process_.setup->part)
    enter_group(parts, m);
  else if (ranks_)
    ranks_->be_ready();
  if (bulk_)
    tell_keys(m);
  if (process_.setup->handoffs)
    tell_epochs(m);
  member_ = system_.spawn<caf::detached>(cluster_member, m);
}

// Who may send bulk bytes, before anybody is connected to.
void worker_process::tell_keys(member_setup& m) {
  m.who.key = bulk_->keys().public_key;
  hear_both_phases(m, [bulk = bulk_, handoffs = process_.setup->handoffs, keys = known_keys()](const view& v) mutable {
    keys.hear(v);
    bulk->admit(keys.of_those_there());
    if (handoffs)
      handoffs->set_sender_keys(keys.of_ranks());
  });
}

// Caches of prompts that processes send which are over, or are not yet known to be, are none.
void worker_process::tell_epochs(member_setup& m) {
  const std::shared_ptr<handoff_endpoint> handoffs = process_.setup->handoffs;
  const auto epochs = std::make_shared<link_epochs>(m.who.incarnation);
  m.on_prepare = [handoffs, epochs, next = m.on_prepare](const view& v) {
    epochs->prepare(v);
    handoffs->set_epochs(epochs->of_ranks());
    if (next)
      next(v);
  };
  m.on_view = [handoffs, epochs, next = m.on_view](const view& v) {
    epochs->commit(v);
    handoffs->set_epochs(epochs->of_ranks());
    if (next)
      next(v);
  };
  m.refused = [handoffs] { return handoffs->stale_frames(); };
}

// Its engine takes steps while the ranks that hold the other experts are there. Where other processes compute with it,
// it takes the first when they are there for all of them, and ends when one of them misses some: a step that waits for
// rows on one rank waits on every other.
void worker_process::enter_group(const started& parts, member_setup& m) {
  const std::shared_ptr<expert_part> part = process_.setup->part;
  store_ = system_.spawn(expert_store, part, [this](const std::string& why) { expel(why); });
  tell_from_outside(parts.placement, load_reader{[to = store_](const load& l) { tell_from_outside(to, l); }});
  m.who.links = part->links()->endpoints();
  m.able = [part, ranks = m.able](bool told) {
    const bool able = part->able(told);
    return able && (!ranks || ranks(told));
  };
  if (scheduler_ && process_.setup->limits.nextn > 0)
    finder_ = system_.spawn<caf::detached>(verifier_finder,
                                           verifier_finder_setup{root_, part->place().first, process_.setup->rank});
  if (finder_)
    m.on_view = [to = finder_, next = m.on_view](const view& v) {
      tell_from_outside(to, v);
      if (next)
        next(v);
    };
  hear_both_phases(
      m, [part, peers = known_peers(part->place())](const view& v) mutable { part->set_peers(peers.after(v)); });
  m.on_coordinator = [to = store_](const membership_actor& c) { tell_from_outside(to, coordinator_found{c}); };
  const auto was_able = std::make_shared<bool>(false); // these two are called in turns
  part->start(
      [this, was_able](const std::string& why) {
        if (ranks_ && *was_able)
          ranks_->fail("rank " + std::to_string(ranks_->place().rank) + ": " + why);
        else if (scheduler_)
          tell_from_outside(scheduler_, rank_lost{process_.setup->rank, why});
      },
      [this, was_able] {
        *was_able = true;
        if (ranks_)
          ranks_->be_ready();
        if (scheduler_)
          tell_from_outside(scheduler_, rank_back{});
      });
}

// The ranks of an engine end together: what is alive goes on elsewhere, and node agents start all of them anew.
void worker_process::enter_engine(const worker_setup& s, member_setup& m) {
  m.able = [ranks = ranks_](bool) { return ranks->able(); };
  m.who.context = ranks_->entry();
  m.on_view = [ranks = ranks_](const view& v) { ranks->hear(v); };
  if (!ranks_->leads())
    m.steps = [ranks = ranks_] { return ranks->steps(); };
  ranks_->start(
      [this, rank = s.rank](const std::string& why) {
        if (scheduler_)
          tell_from_outside(scheduler_, rank_lost{rank, why});
        expel("its engine has ended: " + why);
      },
      process_.follower);
}

void worker_process::expel(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!expelled_)
    expelled_ = why;
}

worker_process::~worker_process() {
  end(120s);
}

scheduler_report worker_process::report() const {
  if (!scheduler_)
    return {};
  caf::scoped_actor self{system_};
  return report_of<scheduler_report>(self, scheduler_, scheduler_query{});
}

std::optional<std::string> worker_process::expelled() const {
  const std::lock_guard lock(mutex_);
  return expelled_;
}

void worker_process::end(std::chrono::milliseconds limit) {
  if (member_)
    tell_from_outside(member_, stop{});
  if (store_)
    tell_from_outside(store_, stop{});
  store_ = expert_store_actor();
  if (finder_)
    tell_from_outside(finder_, stop{});
  finder_ = verifier_finder_actor();
  if (ranks_ && !scheduler_)
    ranks_->stop();
  tell_from_outside(root_, stop{});
  if (const std::size_t left = wait_for_actors(system_, limit))
    give_up_on_actors(left);
  if (process_.setup->part) // only now: the last step may need the others, and theirs this rank
    process_.setup->part->stop();
  if (ranks_)
    ranks_->stop();
}

} // namespace troupe
