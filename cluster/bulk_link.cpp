#include "cluster/bulk_link.hpp"
#include "cluster/loopback.hpp"
#include "cluster/refused_bytes.hpp"
#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <zmq.h>

namespace troupe {

namespace {

using clock = std::chrono::steady_clock;

constexpr int high_water_mark = 4; // frames; what may be on the way in bytes is for credit to say
constexpr std::chrono::milliseconds try_again{2};
constexpr std::size_t frames_in_a_row = 8; // taken from one socket before the others have their turn

// A descriptor that a thread in zmq::poll wakes up for.
class doorbell {
public:
  doorbell() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~doorbell() { ::close(fd_); }
  doorbell(const doorbell&) = delete;
  doorbell& operator=(const doorbell&) = delete;
  void ring() const {
    const std::uint64_t one = 1;
    (void)!::write(fd_, &one, sizeof one); // full: it rings already
  }
  void answer() const {
    std::uint64_t rings = 0;
    (void)!::read(fd_, &rings, sizeof rings);
  }
  int descriptor() const { return fd_; }

private:
  int fd_;
};

// A peer of one view, shared by the pump, its sender and its receiver.
struct peer_state {
  peer_state(const bulk_link_options& o, const bulk_peer& p)
      : who(p), out(o.self, p.rank, p.incarnation, o.rules),
        in(o.self, p.rank, p.incarnation, o.rules, o.most_streams) {}

  const bulk_peer who;
  outgoing_peer out;
  incoming_peer in;
  std::condition_variable out_changed, in_changed;
  std::optional<error> gone;

  void end(const error& why) {
    gone = why;
    out.close(why);
    out_changed.notify_all();
    in_changed.notify_all();
  }
};

// What users and pump share; everything in it but the bell is guarded.
struct link_state {
  mutable std::mutex guard;
  doorbell bell;
  bool ended = false;
  std::map<std::uint32_t, std::shared_ptr<peer_state>> peers;
  std::uint64_t mepoch = 0;
  bulk_counters others; // of peers that are gone, and of what belongs to none
};

error peer_gone(std::uint32_t rank) {
  return {"peer_gone", "rank " + std::to_string(rank) + " is no longer in the view, or was started anew"};
}

class link_sender final : public bulk_sender {
public:
  link_sender(std::shared_ptr<link_state> link, std::shared_ptr<peer_state> peer, std::uint32_t src)
      : link_(std::move(link)), peer_(std::move(peer)), src_(src) {}

  status send(bulk_frame frame, std::chrono::milliseconds limit) override {
    const bool too_large =
        frame.meta.size() > frame_meta_bytes_max || frame.payload.bytes.size() > frame_payload_bytes_max;
    if (too_large || !carries_bulk(frame.kind))
      return error{too_large ? "too_large" : "bad_options",
                   "stream " + std::to_string(frame.stream) + ": a frame of kind " +
                       std::to_string(static_cast<int>(frame.kind)) + " with " + std::to_string(frame.meta.size()) +
                       " + " + std::to_string(frame.payload.bytes.size()) + " bytes cannot be sent"};
    frame.src = src_;
    frame.dst = peer_->who.rank;
    frame.body_crc = frame_body_crc(bytes_of(frame.meta), frame.payload.bytes);
    const auto end = clock::now() + limit;
    std::unique_lock lock(link_->guard);
    for (;;) {
      const auto taken = peer_->out.offer(frame, clock::now());
      if (!taken)
        return taken.failure();
      if (*taken)
        break;
      if (peer_->out_changed.wait_until(lock, end) == std::cv_status::timeout && clock::now() >= end)
        return error{"no_credit", "rank " + std::to_string(peer_->who.rank) + " takes no more of stream " +
                                      std::to_string(frame.stream) + " now, or has not answered yet"};
    }
    link_->bell.ring();
    return nothing{};
  }

  status wait_delivered(std::uint64_t stream, std::chrono::milliseconds limit) override {
    const auto end = clock::now() + limit;
    std::unique_lock lock(link_->guard);
    for (;;) {
      const auto delivered = peer_->out.delivered(stream);
      if (!delivered)
        return delivered.failure();
      if (*delivered)
        return nothing{};
      if (peer_->out_changed.wait_until(lock, end) == std::cv_status::timeout && clock::now() >= end)
        return error{"timed_out", "stream " + std::to_string(stream) + " has not been acknowledged in time"};
    }
  }

  void abandon(std::uint64_t stream) override {
    const std::lock_guard lock(link_->guard);
    peer_->out.abandon(stream, clock::now());
    peer_->out_changed.notify_all();
    link_->bell.ring();
  }

  void set_mepoch(std::uint64_t mepoch) override {
    const std::lock_guard lock(link_->guard);
    peer_->out.set_mepoch(mepoch);
    peer_->out_changed.notify_all();
  }

private:
  std::shared_ptr<link_state> link_;
  std::shared_ptr<peer_state> peer_;
  std::uint32_t src_;
};

class link_receiver final : public bulk_receiver {
public:
  link_receiver(std::shared_ptr<link_state> link, std::shared_ptr<peer_state> peer)
      : link_(std::move(link)), peer_(std::move(peer)) {}

  result<bulk_arrival> receive(std::chrono::milliseconds limit) override {
    const auto end = clock::now() + limit;
    std::unique_lock lock(link_->guard);
    for (;;) {
      if (auto arrival = peer_->in.take()) {
        if (peer_->in.replying()) // with credit
          link_->bell.ring();
        return std::move(*arrival);
      }
      if (peer_->gone)
        return *peer_->gone;
      if (peer_->in_changed.wait_until(lock, end) == std::cv_status::timeout && clock::now() >= end)
        return error{"timed_out", "nothing came from rank " + std::to_string(peer_->who.rank) + " in time"};
    }
  }

  void set_mepoch(std::uint64_t mepoch) override {
    const std::lock_guard lock(link_->guard);
    peer_->in.set_mepoch(mepoch);
  }
  std::uint64_t stale_frames() const override {
    const std::lock_guard lock(link_->guard);
    return peer_->in.counters().stale_frames;
  }

private:
  std::shared_ptr<link_state> link_;
  std::shared_ptr<peer_state> peer_;
};

// ---- sockets

// A small payload is copied; a large one is kept alive until ZeroMQ has sent it.
zmq::message_t message_of(const payload_bytes& payload) {
  constexpr std::size_t small = 512;
  if (payload.bytes.size() <= small)
    return {payload.bytes.data(), payload.bytes.size()};
  auto kept = std::make_unique<std::shared_ptr<const void>>(payload.owner);
  void* data = const_cast<std::uint8_t*>(payload.bytes.data()); // ZeroMQ only reads it
  return {data, payload.bytes.size(),
          [](void*, void* owner) {
            const std::unique_ptr<std::shared_ptr<const void>> ends(static_cast<std::shared_ptr<const void>*>(owner));
          },
          kept.release()};
}
payload_bytes payload_of(zmq::message_t message) {
  const auto kept = std::make_shared<zmq::message_t>(std::move(message));
  return {{static_cast<const std::uint8_t*>(kept->data()), kept->size()}, kept};
}
byte_span span_of(const zmq::message_t& message) {
  return {static_cast<const std::uint8_t*>(message.data()), message.size()};
}

// False: it takes no more now, or the peer is not connected.
bool send_frame(zmq::socket_t& socket, const std::string* routing_id, const wire_frame& frame) {
  try {
    if (routing_id != nullptr &&
        !socket.send(zmq::buffer(*routing_id), zmq::send_flags::sndmore | zmq::send_flags::dontwait))
      return false;
    const std::string head = head_and_meta(frame);
    if (!socket.send(zmq::buffer(head), zmq::send_flags::sndmore | zmq::send_flags::dontwait))
      return false;
    return socket.send(message_of(frame.payload), zmq::send_flags::dontwait).has_value();
  } catch (const zmq::error_t&) { // EHOSTUNREACH of a ROUTER: the peer has gone
    return false;
  }
}

// All parts of the next message; empty if there is none.
std::vector<zmq::message_t> receive_message(zmq::socket_t& socket) {
  std::vector<zmq::message_t> parts;
  for (bool more = true; more; more = parts.back().more())
    if (!socket.recv(parts.emplace_back(), zmq::recv_flags::dontwait)) {
      parts.pop_back();
      break;
    }
  return parts;
}

// Connections to a socket that end before they have greeted as ZeroMQ does.
class failed_greetings {
public:
  failed_greetings(zmq::context_t& context, zmq::socket_t& of) : events_(context, zmq::socket_type::pair) {
    static std::atomic<std::uint64_t> monitors{0};
    const std::string at = "inproc://troupe.greetings." + std::to_string(++monitors);
    events_.set(zmq::sockopt::linger, 0);
    if (::zmq_socket_monitor(of.handle(), at.c_str(),
                             ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL) == 0)
      events_.connect(at);
  }
  zmq::socket_t& events() { return events_; }
  void say(const std::string& at) {
    while (!receive_message(events_).empty())
      refuse_bytes(at, "what came is no greeting of ZeroMQ, or it ended inside one");
  }

private:
  zmq::socket_t events_;
};

void set_up(zmq::socket_t& socket) {
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::sndhwm, high_water_mark);
  socket.set(zmq::sockopt::rcvhwm, high_water_mark);
  socket.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(frame_payload_bytes_max + frame_meta_bytes_max));
  // A server falls silent towards a key that the view does not hold yet; after so long the client asks again.
  socket.set(zmq::sockopt::handshake_ivl, 2000);
  socket.set(zmq::sockopt::tcp_keepalive, 1);
  socket.set(zmq::sockopt::tcp_keepalive_idle, 5);
  socket.set(zmq::sockopt::tcp_keepalive_intvl, 2);
  socket.set(zmq::sockopt::tcp_keepalive_cnt, 3);
}

// HOST of tcp://HOST:PORT, without the brackets of IPv6; empty for anything else.
std::string host_of(const std::string& endpoint) {
  constexpr std::string_view scheme = "tcp://";
  const std::size_t colon = endpoint.rfind(':');
  if (!endpoint.starts_with(scheme) || colon <= scheme.size())
    return {};
  std::string host = endpoint.substr(scheme.size(), colon - scheme.size());
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  return host;
}
bool may_use(security_mode mode, const std::string& endpoint) {
  return mode == security_mode::mutual ? !host_of(endpoint).empty() : is_loopback_address(host_of(endpoint));
}
error refused_address(const std::string& endpoint) {
  return {"refused_address", endpoint +
                                 ": not an address of this host (127.0.0.0/8 or ::1, in digits), and without mutual "
                                 "security nothing leaves the host; use tcp://127.0.0.1:PORT or set "
                                 "security.mode = \"mutual\""};
}

// How a DEALER calls itself: ROUTERs tell peers and their incarnations apart by it before they read a frame.
std::string routing_id_of(std::uint32_t rank, std::uint64_t incarnation) {
  return std::to_string(rank) + "." + std::to_string(incarnation);
}

} // namespace

std::string any_port_of(const std::string& address) {
  const bool v6 = address.find(':') != std::string::npos;
  return "tcp://" + (v6 ? "[" + address + "]" : address) + ":*";
}

stream_rules default_rules(traffic_class c) {
  stream_rules rules;
  rules.credit_bytes = std::uint64_t{c == traffic_class::kv ? 64U : c == traffic_class::weight ? 32U : 16U} << 20;
  return rules;
}

bulk_context::bulk_context(security_mode mode, curve_keys keys, int io_threads)
    : mode_(mode), keys_(std::move(keys)), context_(io_threads) {
  if (mode == security_mode::mutual)
    gate_ = std::make_unique<curve_gate>(context_);
}

void bulk_context::admit(std::set<std::string> public_keys) {
  if (gate_)
    gate_->admit(std::move(public_keys));
}

// ---- the thread that owns the sockets

class bulk_link::pump {
public:
  pump(bulk_context& context, const bulk_link_options& options, zmq::socket_t router)
      : context_(context), options_(options), router_(std::move(router)), failed_greetings_(context.zmq(), router_),
        endpoint_(router_.get(zmq::sockopt::last_endpoint)) {}
  ~pump() {
    {
      const std::lock_guard lock(state_->guard);
      state_->ended = true;
      for (auto& [rank, peer] : state_->peers)
        peer->end({"closed", "the link was closed here"});
    }
    state_->bell.ring();
    if (thread_.joinable())
      thread_.join();
  }
  pump(const pump&) = delete;
  pump& operator=(const pump&) = delete;

  void start() {
    thread_ = std::thread([this] { run(); });
  }
  const std::string& endpoint() const { return endpoint_; }
  const bulk_link_options& options() const { return options_; }
  security_mode mode() const { return context_.mode(); }
  const std::shared_ptr<link_state>& state() const { return state_; }

private:
  // The pump's own view of a peer.
  struct outlet {
    std::shared_ptr<peer_state> peer;
    std::optional<zmq::socket_t> dealer; // none if nothing is sent to it
    bool blocked = false;                // the socket took no more
    std::string routing_id;              // at the ROUTER, once it has spoken
    bool reply_blocked = false;
    std::uint64_t failed = 0; // streams, when users were last told
  };

  void run();
  bool follow_view();
  std::optional<zmq::socket_t> connect(const bulk_peer& peer);
  void flush(outlet& to);
  std::chrono::milliseconds pause() const;
  void take_from_router();
  void take_from_dealer(outlet& from);
  void belongs_to_none(bool bad);

  bulk_context& context_;
  bulk_link_options options_;
  zmq::socket_t router_;
  failed_greetings failed_greetings_;
  std::string endpoint_;
  std::shared_ptr<link_state> state_ = std::make_shared<link_state>();
  std::map<std::uint32_t, outlet> outlets_; // the thread's
  std::thread thread_;
};

void bulk_link::pump::run() {
  if (options_.niceness != 0) // of this thread alone, on Linux
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), ::getpriority(PRIO_PROCESS, 0) + options_.niceness);
  std::vector<zmq::pollitem_t> items;
  while (follow_view()) {
    items.assign({{nullptr, state_->bell.descriptor(), ZMQ_POLLIN, 0},
                  {router_.handle(), 0, ZMQ_POLLIN, 0},
                  {failed_greetings_.events().handle(), 0, ZMQ_POLLIN, 0}});
    for (auto& [rank, o] : outlets_) {
      flush(o);
      if (o.dealer)
        items.push_back({o.dealer->handle(), 0, static_cast<short>(ZMQ_POLLIN | (o.blocked ? ZMQ_POLLOUT : 0)), 0});
    }
    try {
      zmq::poll(items.data(), items.size(), pause());
    } catch (const zmq::error_t& e) {
      if (e.num() != EINTR)
        return;
      continue;
    }
    if ((items[0].revents & ZMQ_POLLIN) != 0)
      state_->bell.answer();
    if ((items[1].revents & ZMQ_POLLIN) != 0)
      take_from_router();
    if ((items[2].revents & ZMQ_POLLIN) != 0)
      failed_greetings_.say(endpoint_);
    std::size_t at = 3;
    for (auto& [rank, o] : outlets_)
      if (o.dealer && (items[at++].revents & ZMQ_POLLIN) != 0)
        take_from_dealer(o);
  }
}

// Sockets for the peers of the view. False: the link has ended.
bool bulk_link::pump::follow_view() {
  std::map<std::uint32_t, std::shared_ptr<peer_state>> view;
  {
    const std::lock_guard lock(state_->guard);
    if (state_->ended)
      return false;
    view = state_->peers;
  }
  std::erase_if(outlets_, [&view](const auto& o) {
    const auto known = view.find(o.first);
    return known == view.end() || known->second != o.second.peer;
  });
  for (const auto& [rank, peer] : view)
    if (!outlets_.contains(rank))
      outlets_.emplace(rank, outlet{.peer = peer, .dealer = connect(peer->who), .routing_id = {}});
  return true;
}

std::optional<zmq::socket_t> bulk_link::pump::connect(const bulk_peer& peer) {
  if (peer.endpoint.empty() || !may_use(context_.mode(), peer.endpoint))
    return std::nullopt;
  try {
    zmq::socket_t dealer(context_.zmq(), zmq::socket_type::dealer);
    set_up(dealer);
    dealer.set(zmq::sockopt::immediate, true);
    dealer.set(zmq::sockopt::connect_timeout, 3000);
    dealer.set(zmq::sockopt::reconnect_ivl, 100);
    dealer.set(zmq::sockopt::reconnect_ivl_max, 1000);
    dealer.set(zmq::sockopt::ipv6, peer.endpoint.find('[') != std::string::npos);
    dealer.set(zmq::sockopt::routing_id, routing_id_of(options_.self.rank, options_.self.incarnation));
    if (context_.mode() == security_mode::mutual)
      use_curve(dealer, context_.keys(), peer.public_key);
    dealer.connect(peer.endpoint);
    return dealer;
  } catch (const zmq::error_t& e) {
    const std::lock_guard lock(state_->guard);
    if (const auto p = state_->peers.find(peer.rank); p != state_->peers.end())
      p->second->end({"unreachable", peer.endpoint + ": " + e.what()});
    return std::nullopt;
  }
}

// Sends what there is to send to a peer, as far as the sockets take it.
void bulk_link::pump::flush(outlet& o) {
  peer_state& peer = *o.peer;
  const auto next = [&](auto&& ask) {
    const std::lock_guard lock(state_->guard);
    return ask();
  };
  o.blocked = false;
  while (o.dealer) {
    const auto frame = next([&] { return peer.out.next(clock::now()); });
    if (!frame)
      break;
    if (!send_frame(*o.dealer, nullptr, *frame)) {
      o.blocked = true;
      break;
    }
    next([&] { peer.out.sent(*frame, clock::now()); });
  }
  o.reply_blocked = false;
  while (!o.routing_id.empty()) {
    const auto frame = next([&] { return peer.in.next(); });
    if (!frame)
      break;
    if (!send_frame(router_, &o.routing_id, *frame)) {
      o.reply_blocked = true;
      break;
    }
    next([&] { peer.in.sent(*frame); });
  }
  const std::lock_guard lock(state_->guard);
  if (std::exchange(o.failed, peer.out.counters().failed_streams) != peer.out.counters().failed_streams)
    peer.out_changed.notify_all();
}

// Until when nothing is to be done unless something comes.
std::chrono::milliseconds bulk_link::pump::pause() const {
  const auto now = clock::now();
  auto first = now + std::chrono::milliseconds(500);
  const std::lock_guard lock(state_->guard);
  for (const auto& [rank, o] : outlets_) {
    if (o.reply_blocked) // a ROUTER does not say which of its peers takes more
      first = std::min(first, now + try_again);
    if (o.dealer) // while the socket takes nothing, what is due has to wait
      first = std::min(
          first, std::max(o.peer->out.due(now), now + (o.blocked ? std::chrono::milliseconds(20) : try_again / 2)));
  }
  return std::chrono::ceil<std::chrono::milliseconds>(first - now);
}

void bulk_link::pump::belongs_to_none(bool bad) {
  if (bad)
    refuse_bytes(endpoint_, "what came is no frame");
  const std::lock_guard lock(state_->guard);
  ++(bad ? state_->others.bad_frames : state_->others.strangers);
}

void bulk_link::pump::take_from_router() {
  for (std::size_t n = 0; n < frames_in_a_row; ++n) {
    auto parts = receive_message(router_);
    if (parts.empty())
      return;
    if (parts.size() != 3) {
      belongs_to_none(true);
      continue;
    }
    const std::string from = parts[0].to_string();
    const char* key = ::zmq_msg_gets(parts[1].handle(), "User-Id"); // of an encrypted connection
    const std::string user = key != nullptr ? key : "";
    auto frame = read_frame(span_of(parts[1]), payload_of(std::move(parts[2])));
    if (!frame) {
      belongs_to_none(true);
      continue;
    }
    const auto o = outlets_.find(frame->header.src);
    // The view here may be older than the sender's: no answer, it greets again.
    if (o == outlets_.end() ||
        (o->second.peer->who.incarnation != 0 &&
         from != routing_id_of(frame->header.src, o->second.peer->who.incarnation)) ||
        (context_.mode() == security_mode::mutual && user != o->second.peer->who.public_key)) {
      belongs_to_none(false);
      continue;
    }
    o->second.routing_id = from;
    const std::lock_guard lock(state_->guard);
    peer_state& peer = *o->second.peer;
    peer.in.arrived(std::move(*frame));
    if (peer.in.waiting())
      peer.in_changed.notify_all();
  }
}

void bulk_link::pump::take_from_dealer(outlet& from) {
  for (std::size_t n = 0; n < 8 * frames_in_a_row; ++n) { // small ones
    auto parts = receive_message(*from.dealer);
    if (parts.empty())
      return;
    auto frame = parts.size() == 2 ? read_frame(span_of(parts[0]), payload_of(std::move(parts[1]))) : std::nullopt;
    if (!frame) {
      belongs_to_none(true);
      continue;
    }
    const std::lock_guard lock(state_->guard);
    from.peer->out.arrived(*frame, clock::now());
    from.peer->out_changed.notify_all();
  }
}

// ---- the link

bulk_link::bulk_link(std::unique_ptr<pump> p) : pump_(std::move(p)) {}
bulk_link::bulk_link(bulk_link&&) noexcept = default;
bulk_link& bulk_link::operator=(bulk_link&&) noexcept = default;
bulk_link::~bulk_link() = default;

result<bulk_link> bulk_link::start(bulk_context& context, const bulk_link_options& options) {
  if (!may_use(context.mode(), options.bind))
    return refused_address(options.bind);
  try {
    zmq::socket_t router(context.zmq(), zmq::socket_type::router);
    set_up(router);
    router.set(zmq::sockopt::router_mandatory, true);
    router.set(zmq::sockopt::router_handover,
               true); // a peer that reconnects before its old connection is seen to be dead
    router.set(zmq::sockopt::ipv6, options.bind.find('[') != std::string::npos);
    if (context.mode() == security_mode::mutual)
      serve_curve(router, context.keys());
    router.bind(options.bind);
    auto p = std::make_unique<pump>(context, options, std::move(router));
    p->start();
    return bulk_link(std::move(p));
  } catch (const zmq::error_t& e) {
    return error{"cannot_bind", options.bind + ": " + e.what()};
  }
}

std::string bulk_link::endpoint() const {
  return pump_->endpoint();
}

void bulk_link::set_peers(const std::vector<bulk_peer>& peers) {
  link_state& s = *pump_->state();
  const std::lock_guard lock(s.guard);
  std::map<std::uint32_t, std::shared_ptr<peer_state>> next;
  for (const bulk_peer& p : peers) {
    const auto known = s.peers.find(p.rank);
    if (known != s.peers.end() && known->second->who == p) {
      next[p.rank] = known->second;
      continue;
    }
    auto& added = next[p.rank] = std::make_shared<peer_state>(pump_->options(), p);
    added->out.set_mepoch(s.mepoch);
    added->in.set_mepoch(s.mepoch);
    if (!p.endpoint.empty() && !may_use(pump_->mode(), p.endpoint))
      added->out.close(refused_address(p.endpoint));
  }
  for (auto& [rank, peer] : s.peers)
    if (const auto stays = next.find(rank); stays == next.end() || stays->second != peer) {
      s.others += peer->out.counters();
      s.others += peer->in.counters();
      peer->end(peer_gone(rank));
    }
  s.peers = std::move(next);
  s.bell.ring();
}

std::shared_ptr<bulk_sender> bulk_link::sender_to(std::uint32_t rank) {
  const auto& s = pump_->state();
  const std::lock_guard lock(s->guard);
  const auto peer = s->peers.find(rank);
  return peer == s->peers.end() ? nullptr : std::make_shared<link_sender>(s, peer->second, pump_->options().self.rank);
}

std::shared_ptr<bulk_receiver> bulk_link::receiver_from(std::uint32_t rank) {
  const auto& s = pump_->state();
  const std::lock_guard lock(s->guard);
  const auto peer = s->peers.find(rank);
  return peer == s->peers.end() ? nullptr : std::make_shared<link_receiver>(s, peer->second);
}

void bulk_link::set_mepoch(std::uint64_t mepoch) {
  link_state& s = *pump_->state();
  const std::lock_guard lock(s.guard);
  s.mepoch = mepoch;
  for (auto& [rank, peer] : s.peers) {
    peer->out.set_mepoch(mepoch);
    peer->in.set_mepoch(mepoch);
    peer->out_changed.notify_all();
  }
}

bulk_counters bulk_link::counters() const {
  const link_state& s = *pump_->state();
  const std::lock_guard lock(s.guard);
  bulk_counters sum = s.others;
  for (const auto& [rank, peer] : s.peers) {
    sum += peer->out.counters();
    sum += peer->in.counters();
  }
  return sum;
}

} // namespace troupe
