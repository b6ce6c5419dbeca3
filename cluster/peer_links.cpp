#include "cluster/peer_links.hpp"
#include "cluster/build_id.hpp"
#include "cluster/bulk_pipe.hpp"
#include <algorithm>
#include <utility>

namespace troupe {

namespace {

using namespace std::chrono_literals;

constexpr auto connect_again = 5ms;
constexpr auto look_every = 50ms; // at whether the link is to end, while nothing comes

} // namespace

struct peer_links::peer {
  explicit peer(const group_peer& w) : who(w) {}
  const group_peer who;
  std::shared_ptr<peer_link> link; // guarded
  std::atomic<bool> closing{false};
  std::mutex mutex; // for `changed` alone
  std::condition_variable changed;
  std::thread thread;

  // Sleeps, unless the link is to end.
  void pause(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, time, [&] { return closing.load(); });
  }
  void close() {
    {
      const std::lock_guard lock(mutex);
      closing = true;
    }
    changed.notify_all();
  }
};

peer_links::peer_links(peer_links_setup setup) : setup_(std::move(setup)) {
  if (setup_.tcp_address.empty())
    return;
  if (!setup_.bulk)
    setup_.bulk = std::make_shared<bulk_context>();
  for (const traffic_class traffic : {traffic_class::a2a, traffic_class::weight}) {
    bulk_link_options o;
    o.self = {setup_.cluster + "." + setup_.group, static_cast<std::uint32_t>(setup_.rank), setup_.incarnation,
              build_id()};
    o.traffic = traffic;
    o.bind = any_port_of(setup_.tcp_address);
    o.rules = default_rules(traffic);
    auto link = bulk_link::start(*setup_.bulk, o);
    if (!link)
      throw config_error("", "data.bind", setup_.tcp_address, link.failure().message,
                         "give an address of this host, or data.intra_host = \"shm\" with all ranks on one node");
    bulk_.push_back(std::move(*link));
  }
}
peer_links::~peer_links() {
  close();
}

void peer_links::close() {
  follow({}, true);
}

void peer_links::set_peers(const std::vector<group_peer>& peers) {
  follow(peers, false);
}

std::vector<std::string> peer_links::endpoints() const {
  std::vector<std::string> all;
  for (const bulk_link& l : bulk_)
    all.push_back(l.endpoint());
  return all;
}

void peer_links::follow(const std::vector<group_peer>& peers, bool last) {
  for (std::size_t k = 0; k < bulk_.size(); ++k) {
    std::vector<bulk_peer> there;
    for (const group_peer& p : peers)
      there.push_back({static_cast<std::uint32_t>(p.rank), p.incarnation,
                       k < p.endpoints.size() ? p.endpoints[k] : std::string(), p.key});
    bulk_[k].set_peers(there);
  }
  std::vector<std::unique_ptr<peer>> ended;
  {
    const std::lock_guard lock(guard_);
    if (closed_)
      return;
    closed_ = last;
    for (auto& p : peers_)
      if (std::ranges::find(peers, p->who) == peers.end())
        ended.push_back(std::move(p));
    std::erase(peers_, nullptr);
    for (const group_peer& who : peers) {
      if (std::ranges::any_of(peers_, [&](const auto& p) { return p->who == who; }))
        continue;
      peers_.push_back(std::make_unique<peer>(who));
      peer& added = *peers_.back();
      added.thread = std::thread([this, &added] { run(added); });
    }
  }
  for (const auto& p : ended)
    p->close();
  for (const auto& p : ended)
    p->thread.join();
}

std::shared_ptr<peer_link> peer_links::link_to(std::int32_t rank) const {
  const std::lock_guard lock(guard_);
  for (const auto& p : peers_)
    if (p->who.rank == rank && p->link && p->link->up())
      return p->link;
  return nullptr;
}

// Of one direction: "troupe.<cluster>.<node>.<group>.<rank>.<incarnation>-<rank>.<incarnation>.<what>".
result<std::string> peer_links::segment(const group_peer& from, const group_peer& to, question_kind kind,
                                        bool question) const {
  const auto end_of = [](const group_peer& p) { return std::to_string(p.rank) + "." + std::to_string(p.incarnation); };
  const std::string what =
      std::string(kind == question_kind::rows ? "rows" : "weights") + (question ? ".ask" : ".answer");
  return segment_name(segment_part(setup_.cluster), segment_part(setup_.node), setup_.group + "." + end_of(from),
                      end_of(to) + "." + what);
}

// Questions of this process go into the peer's segment, its answers come through one of our own, and the other way
// round. True once all are there.
bool peer_links::connect_rings(const peer& p, peer_link& link, both_kinds& served) {
  const group_peer self{setup_.rank, setup_.incarnation};
  const auto in = [&](question_kind kind, bool question, std::unique_ptr<frame_reader>& reader) {
    const auto name = segment(p.who, self, kind, question);
    if (reader || !name)
      return;
    if (auto made = ring_frame_reader::create(*name, frame_ring_bytes(setup_.frame_bytes, setup_.frames_out)))
      reader = std::move(*made);
  };
  const auto out = [&](question_kind kind, bool question, std::unique_ptr<frame_writer>& writer) {
    const auto name = segment(self, p.who, kind, question);
    if (writer || !name)
      return;
    if (auto opened = ring_frame_writer::open(*name))
      writer = std::move(*opened);
  };
  bool all = true;
  for (std::size_t k = 0; k < question_kinds; ++k) {
    const auto kind = static_cast<question_kind>(k);
    in(kind, false, link.kinds_[k].answers);
    in(kind, true, served[k].questions);
    out(kind, true, link.kinds_[k].questions);
    out(kind, false, served[k].answers);
    all = all && link.kinds_[k].answers && served[k].questions && link.kinds_[k].questions && served[k].answers;
  }
  return all;
}

bool peer_links::connect_bulk(const peer& p, peer_link& link, both_kinds& served) {
  constexpr std::array<frame_kind, question_kinds> questions{frame_kind::a2a_dispatch, frame_kind::weight_chunk};
  for (std::size_t k = 0; k < question_kinds; ++k) {
    const auto rank = static_cast<std::uint32_t>(p.who.rank);
    const auto sender = bulk_[k].sender_to(rank);
    const auto receiver = bulk_[k].receiver_from(rank);
    if (!sender || !receiver)
      return false;
    bulk_inlet inlet(receiver);
    link.kinds_[k] = {std::make_unique<bulk_frame_writer>(sender, 2 * link.number_, setup_.frame_bytes),
                      inlet.answers()};
    served[k] = {inlet.questions(questions[k]),
                 std::make_unique<bulk_frame_writer>(sender, 2 * link.number_ + 1, setup_.frame_bytes)};
  }
  return true;
}

void peer_links::run(peer& p) {
  while (!p.closing) {
    auto link = std::make_shared<peer_link>();
    link->incarnation_ = p.who.incarnation;
    link->number_ = ++links_made_;
    both_kinds served;
    while (!p.closing && !(bulk_.empty() ? connect_rings(p, *link, served) : connect_bulk(p, *link, served)))
      p.pause(connect_again);
    if (p.closing)
      return;
    {
      const std::lock_guard lock(guard_);
      p.link = link;
    }
    setup_.on_change();
    const auto answer = [&](question_kind kind) {
      const serving& s = served[static_cast<std::size_t>(kind)];
      serve(p, *link, kind, *s.questions, *s.answers);
    };
    std::thread other([&] { answer(question_kind::weights); });
    answer(question_kind::rows);
    other.join();
    {
      const std::lock_guard lock(guard_);
      p.link.reset();
    }
    setup_.on_change();
    p.pause(connect_again);
  }
}

// Until the peer, or this side, is done with the link.
void peer_links::serve(peer& p, peer_link& link, question_kind kind, frame_reader& questions, frame_writer& answers) {
  try { // no exception leaves its thread: whatever cannot be served ends this link alone
    const auto server = setup_.serve(p.who.rank, kind);
    while (!p.closing && link.up()) {
      const auto question = questions.front(look_every);
      if (!question && question.failure().code == "timed_out")
        continue;
      if (!question || !server->serve(*question, answers))
        break;
      questions.pop();
    }
  } catch (const std::exception&) {
  }
  link.give_up();
}

} // namespace troupe
