#include "actors/handoff_endpoint.hpp"
#include "cluster/handoff_frames.hpp"
#include "cluster/passing_fault.hpp"
#include "runtime/base/engine_options.hpp"
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

namespace troupe {

namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

constexpr std::size_t ring_capacity = std::size_t{8} << 20;
constexpr auto look_every = 50ms; // at leases, and at whether the process ends
constexpr auto try_again = 20ms;  // to reach a receiver
constexpr auto wait_for_room = 20ms;

sha256_digest digest_of(std::span<const std::uint8_t> bytes) {
  sha256 all;
  all.update(bytes);
  return all.finish();
}

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(clock::now().time_since_epoch()).count();
}

} // namespace

struct handoff_endpoint::impl {
  explicit impl(const handoff_setup& s) : setup(s) {}

  struct leaving { // a cache that is sent from here
    outgoing_handoff machine;
    bool begun = false;        // something of it was sent,
    std::uint64_t channel = 0; // over this one of its target's
    std::uint64_t mepoch = 0;  // by this epoch
    bool held_back = false;    // flows_again is waited for
    clock::time_point finished{};
  };
  struct target { // an engine that caches go to, and the thread that sends them
    handoff_ticket where;
    std::map<std::uint64_t, leaving> handoffs;
    std::uint64_t last = 0;               // whose turn to send was last
    std::vector<std::uint64_t> abandoned; // of which the receiver is to hear no more: told by the thread, it may block
    std::condition_variable changed;
    std::shared_ptr<bulk_sender> channel;
    std::uint64_t channels = 0; // number of that one
    std::thread thread;
  };
  struct coming {
    std::uint32_t from = 0;
    incoming_handoff machine;
    std::uint64_t mepoch = 0; // of what has come
  };

  image_shape shape_of(std::int32_t positions) const {
    image_shape s = setup.shape;
    s.positions = positions;
    return s;
  }
  bool by_ring(const std::string& node) const { return setup.shared_memory && node == setup.node; }

  void send_loop(target& t);
  bool send_one(std::unique_lock<std::mutex>& lock, target& t);
  std::map<std::uint64_t, leaving>::iterator next_to_send(target& t, std::optional<image_chunk>& chunk);
  std::shared_ptr<bulk_sender> connect(target& t);
  status wait_until_taken(bulk_sender& channel, std::uint64_t id) const;
  void sent(target& t, std::uint64_t id, const image_chunk& chunk, const status& how);
  void settle(target& t, std::uint64_t id);
  void receive_loop(handoff_sender_place from);
  std::shared_ptr<bulk_receiver> listen(const handoff_sender_place& from, std::optional<shared_memory>& segment);
  void arrived(std::uint32_t from, const bulk_frame& frame, const result<arrived_chunk>& c);
  void settle_arrival(std::uint64_t id);
  void fail_all_from(std::uint32_t rank, const error& why, std::optional<std::uint64_t> older_than = {});
  void tick_arrivals(std::uint32_t from);
  void tell(handoff_note n) {
    if (report)
      report(std::move(n));
  }

  handoff_setup setup;
  std::optional<bulk_link> link;
  std::atomic<bool> stopping{false};
  mutable std::mutex mutex; // guards all below
  std::function<void(handoff_note)> report;
  std::map<std::uint32_t, std::unique_ptr<target>> targets; // by rank
  std::unordered_map<std::uint64_t, std::uint32_t> target_of;
  std::unordered_map<std::uint64_t, coming> comings;
  handoff_counters counts;
  std::map<std::uint32_t, link_epoch> epochs; // by rank
  std::uint64_t stale = 0;                    // frames
  std::vector<std::thread> receivers;
};

handoff_endpoint::handoff_endpoint(const handoff_setup& setup) : impl_(std::make_unique<impl>(setup)) {
  impl& m = *impl_;
  if (setup.uses_link) {
    if (!m.setup.bulk)
      m.setup.bulk = std::make_shared<bulk_context>();
    auto link = bulk_link::start(*m.setup.bulk, {.self = setup.self,
                                                 .traffic = traffic_class::kv,
                                                 .bind = setup.senders.empty() ? "tcp://127.0.0.1:*" : setup.bind,
                                                 .rules = default_rules(traffic_class::kv)});
    if (!link)
      throw passing_fault("", "data.port", setup.bind, link.failure().message,
                          "give another port, or stop what listens there");
    m.link.emplace(std::move(*link));
    set_sender_keys({});
  }
  for (const handoff_sender_place& s : setup.senders)
    m.receivers.emplace_back([&m, s] { m.receive_loop(s); });
}

handoff_endpoint::~handoff_endpoint() {
  impl& m = *impl_;
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(m.mutex);
    m.stopping = true;
    m.report = nullptr;
    for (auto& [rank, t] : m.targets) {
      t->changed.notify_all();
      threads.push_back(std::move(t->thread));
    }
    std::ranges::move(m.receivers, std::back_inserter(threads));
  }
  for (std::thread& t : threads)
    t.join();
}

void handoff_endpoint::set_sender_keys(const std::map<std::uint32_t, std::string>& keys) {
  impl& m = *impl_;
  if (!m.link || m.setup.senders.empty())
    return;
  std::vector<bulk_peer> peers;
  for (const handoff_sender_place& s : m.setup.senders)
    if (!m.by_ring(s.node)) {
      const auto key = keys.find(s.rank);
      peers.push_back({s.rank, 0, {}, key == keys.end() ? std::string() : key->second});
    }
  m.link->set_peers(peers);
}

void handoff_endpoint::set_epochs(const std::map<std::uint32_t, link_epoch>& epochs) {
  const std::lock_guard lock(impl_->mutex);
  impl_->epochs = epochs;
}

std::uint64_t handoff_endpoint::stale_frames() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stale;
}

void handoff_endpoint::report_to(std::function<void(handoff_note)> report) {
  const std::lock_guard lock(impl_->mutex);
  impl_->report = std::move(report);
}

std::string handoff_endpoint::address() const {
  return impl_->link && !impl_->setup.senders.empty() ? impl_->link->endpoint() : std::string();
}

handoff_counters handoff_endpoint::counters() const {
  const std::lock_guard lock(impl_->mutex);
  handoff_counters c = impl_->counts;
  c.sending = impl_->target_of.size();
  c.receiving = impl_->comings.size();
  return c;
}

// ---- what leaves

void handoff_endpoint::open(const handoff_ticket& ticket, std::int32_t positions) {
  impl& m = *impl_;
  const std::lock_guard lock(m.mutex);
  auto& t = m.targets[ticket.peer];
  if (!t)
    t = std::make_unique<impl::target>();
  if (t->where.incarnation != ticket.incarnation)
    t->channel.reset(); // another process stands there now
  t->where = ticket;
  t->handoffs.emplace(ticket.id, impl::leaving{outgoing_handoff(m.shape_of(positions), m.setup.times, now_ms())});
  m.target_of[ticket.id] = ticket.peer;
  if (!t->thread.joinable())
    t->thread = std::thread([&m, to = t.get()] { m.send_loop(*to); });
}

bool handoff_endpoint::add(std::uint64_t id, std::shared_ptr<const image_bytes> bytes, bool last, std::int32_t cached) {
  impl& m = *impl_;
  const std::lock_guard lock(m.mutex);
  const auto to = m.target_of.find(id);
  if (to == m.target_of.end())
    return true;
  impl::target& t = *m.targets.at(to->second);
  impl::leaving& l = t.handoffs.at(id);
  l.machine.add(std::move(bytes), last, cached, now_ms());
  if (last) {
    l.finished = clock::now();
    m.counts.tail_bytes_max = std::max(m.counts.tail_bytes_max,
                                       static_cast<std::uint64_t>(std::max<std::int64_t>(l.machine.bytes_at_end(), 0)));
  }
  l.held_back = !last && l.machine.waiting_bytes() > static_cast<std::int64_t>(m.setup.credit_bytes);
  t.changed.notify_all();
  return !l.held_back;
}

void handoff_endpoint::drop(std::uint64_t id) {
  impl& m = *impl_;
  const std::lock_guard lock(m.mutex);
  m.comings.erase(id);
  const auto to = m.target_of.find(id);
  if (to == m.target_of.end())
    return;
  impl::target& t = *m.targets.at(to->second);
  const auto l = t.handoffs.find(id);
  if (l->second.begun && !l->second.machine.committed())
    t.abandoned.push_back(id);
  t.handoffs.erase(l);
  m.target_of.erase(to);
}

// The oldest handoff that has something to send.
std::map<std::uint64_t, handoff_endpoint::impl::leaving>::iterator
handoff_endpoint::impl::next_to_send(target& t, std::optional<image_chunk>& chunk) {
  const std::int64_t now = now_ms();
  for (auto l = t.handoffs.begin(); l != t.handoffs.end();) {
    const auto at = l++;
    at->second.machine.tick(now);
    if (at->second.machine.over())
      settle(t, at->first);
  }
  auto at = t.handoffs.upper_bound(t.last); // in turns
  for (std::size_t i = 0; i < t.handoffs.size(); ++i, ++at) {
    if (at == t.handoffs.end())
      at = t.handoffs.begin();
    if ((chunk = at->second.machine.next(now))) {
      t.last = at->first;
      return at;
    }
  }
  return t.handoffs.end();
}

void handoff_endpoint::impl::send_loop(target& t) {
  std::unique_lock lock(mutex);
  while (!stopping)
    if (!send_one(lock, t))
      t.changed.wait_for(lock, look_every);
}

// Null: the receiver is not to be reached now.
std::shared_ptr<bulk_sender> handoff_endpoint::impl::connect(target& t) {
  if (t.channel)
    return t.channel;
  if (by_ring(t.where.node)) {
    const auto name = channel_segment(setup.self.cluster, setup.node, setup.self.rank, t.where.peer, traffic_class::kv);
    auto ring = name ? ring_sender::attach(*name, setup.self.rank, t.where.peer)
                     : result<std::unique_ptr<ring_sender>>(name.failure());
    if (!ring)
      return nullptr;
    t.channel = std::move(*ring);
  } else if (link) {
    std::vector<bulk_peer> peers;
    for (const auto& [rank, other] : targets)
      if (!by_ring(other->where.node))
        peers.push_back({rank, other->where.incarnation, other->where.endpoint, other->where.key});
    link->set_peers(peers);
    t.channel = link->sender_to(t.where.peer);
  }
  ++t.channels;
  return t.channel;
}

status handoff_endpoint::impl::wait_until_taken(bulk_sender& channel, std::uint64_t id) const {
  const auto last = clock::now() + std::chrono::milliseconds(setup.times.lease_ms);
  for (;;) {
    const status how = channel.wait_delivered(id, wait_for_room);
    if (how || how.failure().code != "timed_out" || clock::now() >= last || stopping)
      return how;
  }
}

// False: there is nothing to do at the moment. The lock is not held while a chunk is sent.
bool handoff_endpoint::impl::send_one(std::unique_lock<std::mutex>& lock, target& t) {
  if (!t.abandoned.empty()) {
    const std::vector<std::uint64_t> all = std::exchange(t.abandoned, {});
    const std::shared_ptr<bulk_sender> over = t.channel;
    lock.unlock();
    for (const std::uint64_t id : all)
      if (over)
        over->abandon(id);
    lock.lock();
    return true;
  }
  std::optional<image_chunk> chunk;
  const auto at = next_to_send(t, chunk);
  if (at == t.handoffs.end())
    return false;
  const std::uint64_t id = at->first;
  leaving& l = at->second;
  const std::shared_ptr<bulk_sender> channel = connect(t);
  if (!channel) {
    t.changed.wait_for(lock, try_again);
    return true;
  }
  if (l.begun && l.channel != t.channels) {
    l.machine.end({"handoff_failed", "the channel to rank " + std::to_string(t.where.peer) + " was lost"});
    settle(t, id);
    return true;
  }
  l.channel = t.channels;
  if (!l.begun)
    l.mepoch = epochs[t.where.peer].send;
  bulk_frame frame = frame_of(id, *chunk, l.begun ? std::nullopt : std::optional(l.machine.shape()));
  frame.mepoch = l.mepoch;
  lock.unlock();
  if (chunk->kind == chunk_kind::data)
    chunk->digest = digest_of(chunk->bytes);
  status how = channel->send(std::move(frame), wait_for_room);
  if (how && chunk->kind == chunk_kind::commit)
    how = wait_until_taken(*channel, id);
  lock.lock();
  sent(t, id, *chunk, how);
  return true;
}

void handoff_endpoint::impl::sent(target& t, std::uint64_t id, const image_chunk& chunk, const status& how) {
  const auto at = t.handoffs.find(id);
  if (at == t.handoffs.end()) { // dropped meanwhile
    if (how && chunk.kind != chunk_kind::commit)
      t.abandoned.push_back(id);
    return;
  }
  leaving& l = at->second;
  if (how) {
    l.begun = true;
    l.machine.sent(chunk, now_ms());
    if (chunk.kind == chunk_kind::commit)
      l.machine.delivered(now_ms());
    if (chunk.kind == chunk_kind::data)
      counts.sent_bytes += chunk.bytes.size();
    if (l.held_back && l.machine.waiting_bytes() <= static_cast<std::int64_t>(setup.credit_bytes / 2)) {
      l.held_back = false;
      tell({id, handoff_note::news::flows_again, nullptr, 0, {}});
    }
  } else if (how.failure().code != "no_credit") {
    t.channel.reset();
    if (l.begun || chunk.kind == chunk_kind::commit)
      l.machine.end({"handoff_failed", "rank " + std::to_string(t.where.peer) + ": " + how.failure().message});
  }
  settle(t, id);
}

// Reports a handoff that is over, and forgets it.
void handoff_endpoint::impl::settle(target& t, std::uint64_t id) {
  const auto at = t.handoffs.find(id);
  if (at == t.handoffs.end() || !at->second.machine.over())
    return;
  const leaving& l = at->second;
  if (const auto& why = l.machine.failure()) {
    ++counts.failed;
    counts.expired += why->code == "lease_expired" ? 1 : 0;
    if (l.begun && !l.machine.committed())
      t.abandoned.push_back(id);
    tell({id, handoff_note::news::failed, nullptr, 0, *why});
  } else {
    ++counts.sent;
    const double tail = std::chrono::duration<double, std::milli>(clock::now() - l.finished).count();
    counts.tail_ms_sum += tail;
    counts.tail_ms_max = std::max(counts.tail_ms_max, tail);
    tell({id, handoff_note::news::sent, nullptr, 0, {}});
  }
  t.handoffs.erase(at);
  target_of.erase(id);
}

// ---- what arrives

void handoff_endpoint::expect(const handoff_ticket& ticket, std::int32_t positions) {
  impl& m = *impl_;
  const std::lock_guard lock(m.mutex);
  m.comings.insert_or_assign(
      ticket.id, impl::coming{ticket.peer, incoming_handoff(m.shape_of(positions), m.setup.times, now_ms())});
}

// Null: not at the moment.
std::shared_ptr<bulk_receiver> handoff_endpoint::impl::listen(const handoff_sender_place& from,
                                                              std::optional<shared_memory>& segment) {
  segment.reset();
  const auto name = channel_segment(setup.self.cluster, setup.node, from.rank, setup.self.rank, traffic_class::kv);
  if (!name)
    return nullptr;
  auto made = make_ring_channel(*name, ring_capacity);
  if (!made)
    return nullptr;
  segment.emplace(std::move(*made));
  auto ring = ring_receiver::attach(*name);
  return ring ? std::move(*ring) : nullptr;
}

void handoff_endpoint::impl::receive_loop(handoff_sender_place from) {
  std::optional<shared_memory> segment;
  std::shared_ptr<bulk_receiver> receiver; // null: it is to be had anew
  std::uint64_t floor = 0, refused = 0;    // of this receiver
  for (;;) {
    {
      const std::lock_guard lock(mutex);
      if (stopping)
        return;
      tick_arrivals(from.rank);
      if (const std::uint64_t now = epochs[from.rank].floor; receiver && floor != now) {
        receiver->set_mepoch(floor = now);
        fail_all_from(from.rank, {"handoff_failed", "rank " + std::to_string(from.rank) + " is gone"}, now);
      }
      if (receiver)
        stale += receiver->stale_frames() - std::exchange(refused, receiver->stale_frames());
    }
    if (!receiver) {
      floor = refused = 0;
      if (receiver = by_ring(from.node) ? listen(from, segment) : link->receiver_from(from.rank); !receiver)
        std::this_thread::sleep_for(look_every);
      continue;
    }
    const auto a = receiver->receive(look_every);
    auto chunk =
        a && !a->failure ? chunk_of(a->frame) : result<arrived_chunk>(error{"handoff_failed", "it was given up"});
    if (chunk && chunk->chunk.kind == chunk_kind::data)
      chunk->chunk.digest = digest_of(chunk->chunk.bytes);
    const std::lock_guard lock(mutex);
    if (a) {
      arrived(from.rank, a->frame, chunk);
    } else if (a.failure().code != "timed_out") {
      fail_all_from(from.rank, {"handoff_failed", "rank " + std::to_string(from.rank) + ": " + a.failure().message});
      receiver.reset(); // its sender is gone: a new one gets a new ring; or its key has become known
    }
  }
}

void handoff_endpoint::impl::arrived(std::uint32_t from, const bulk_frame& frame, const result<arrived_chunk>& c) {
  const auto at = comings.find(frame.stream);
  if (at == comings.end() || at->second.from != from)
    return;
  at->second.mepoch = frame.mepoch;
  incoming_handoff& machine = at->second.machine;
  if (!c) {
    machine.end({"handoff_failed", c.failure().message});
  } else {
    if (c->shape)
      machine.check(*c->shape);
    machine.take(c->chunk, now_ms());
    counts.received_bytes += c->chunk.bytes.size();
  }
  settle_arrival(frame.stream);
}

void handoff_endpoint::impl::settle_arrival(std::uint64_t id) {
  const auto at = comings.find(id);
  if (at == comings.end() || !at->second.machine.over())
    return;
  incoming_handoff& machine = at->second.machine;
  if (machine.whole()) {
    ++counts.received;
    const std::int32_t cached = machine.cached();
    tell({id, handoff_note::news::arrived, machine.take_image(), cached, {}});
  } else {
    ++counts.failed;
    counts.expired += machine.failure()->code == "lease_expired" ? 1 : 0;
    tell({id, handoff_note::news::failed, nullptr, 0, *machine.failure()});
  }
  comings.erase(at);
}

void handoff_endpoint::impl::fail_all_from(std::uint32_t rank, const error& why,
                                           std::optional<std::uint64_t> older_than) {
  std::vector<std::uint64_t> ids;
  for (auto& [id, c] : comings)
    if (c.from == rank && c.machine.received_bytes() > 0 && // else its sender may still come
        (!older_than || c.mepoch < *older_than)) {
      c.machine.end(why);
      ids.push_back(id);
    }
  for (const std::uint64_t id : ids)
    settle_arrival(id);
}

void handoff_endpoint::impl::tick_arrivals(std::uint32_t from) {
  std::vector<std::uint64_t> over;
  for (auto& [id, c] : comings)
    if (c.from == from) {
      c.machine.tick(now_ms());
      if (c.machine.over())
        over.push_back(id);
    }
  for (const std::uint64_t id : over)
    settle_arrival(id);
}

} // namespace troupe
