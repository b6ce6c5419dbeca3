#include "cluster/meeting_links.hpp"
#include <algorithm>
#include <array>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace troupe {

namespace {

using clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds look_every{20};       // at what the other ranks say
constexpr milliseconds last_word_limit{500}; // for the others to take the reason why a rank leaves
constexpr std::size_t ranks_max = 1024, reason_max = 512, turns = 2;
// A rank that has come to a meeting may be waited for there by one that has not seen the one before complete.
constexpr std::size_t most_ahead = 2;

// From each rank to each other one stream: of what it shows, of the word that it is ready, of the word that it ends.
enum stream_of : std::uint64_t { rows_stream = 1, ready_stream, end_stream };

bulk_frame word(stream_of stream, std::string_view text) {
  bulk_frame f;
  f.kind = frame_kind::a2a_combine;
  f.stream = stream;
  f.payload = own({text.begin(), text.end()});
  return f;
}

} // namespace

struct meeting_links::state {
  state(std::shared_ptr<bulk_context> c, const meeting_links_options& o, bulk_link l)
      : context(std::move(c)), options(o), link(std::move(l)), self(o.self.rank), peers(o.ranks) {
    for (auto& turn : shown)
      turn.resize(o.ranks);
  }

  struct visit { // of a rank to a meeting
    std::uint64_t number = 0;
    payload_bytes rows;
  };
  struct peer {
    std::shared_ptr<bulk_sender> to; // null: it is not there yet
    std::shared_ptr<bulk_receiver> from;
    bool told_ready = false, told_end = false; // of this rank
    bool knows_ready = false;                  // what was told has arrived
    bool ready = false;                        // it has said so
    std::deque<visit> came;                    // to meetings that are not over here
  };

  const std::shared_ptr<bulk_context> context; // outlives the link
  const meeting_links_options options;
  bulk_link link;
  const std::size_t self;
  std::mutex receiving;     // one thread at a time takes what comes; taken before `guard`
  mutable std::mutex guard; // of what follows; nobody waits while holding it
  std::vector<peer> peers;  // [ranks]; that of this rank stays empty
  bool ready = false;
  std::string why;        // it has ended; empty: it has not
  bool last_word = false; // the others are to hear that from here

  // Of the thread that meets.
  std::vector<std::uint8_t> mine;
  std::array<std::vector<payload_bytes>, turns> shown; // [ranks]
  std::uint64_t met = 0;                               // meetings that this rank has come to

  std::optional<error> ended() const {
    const std::lock_guard lock(guard);
    return why.empty() ? std::nullopt : std::optional(error{"ended", why});
  }

  // The others are told, unless one of them has said so.
  void end(const std::string& text, bool tell) {
    {
      const std::lock_guard lock(guard);
      if (!why.empty())
        return;
      why = text.empty() ? "unknown reason" : text.substr(0, reason_max);
      last_word = tell;
    }
    (void)say_words();
  }
  void lose(std::size_t rank, const error& e) { end("rank " + std::to_string(rank) + " is gone: " + e.message, true); }

  // Takes what a rank has said and sent; waits for the first of it at most so long.
  void take_from(std::size_t rank, milliseconds limit) {
    std::shared_ptr<bulk_receiver> from;
    {
      const std::lock_guard lock(guard);
      from = peers[rank].from;
    }
    for (; from; limit = milliseconds(0)) {
      auto arrival = from->receive(limit);
      if (!arrival && arrival.failure().code == "timed_out")
        return;
      if (!arrival)
        return lose(rank, arrival.failure());
      if (arrival->failure)
        return lose(rank, *arrival->failure);
      take(rank, std::move(arrival->frame));
    }
  }

  void take(std::size_t rank, bulk_frame f) {
    if (f.stream == end_stream)
      return end({reinterpret_cast<const char*>(f.payload.bytes.data()), f.payload.bytes.size()}, false);
    {
      const std::lock_guard lock(guard);
      peer& p = peers[rank];
      if (f.stream == ready_stream) {
        p.ready = true;
        return;
      }
      if (f.stream == rows_stream && p.came.size() < most_ahead && f.payload.bytes.size() <= options.place_bytes) {
        p.came.push_back({f.step_or_offset, std::move(f.payload)});
        return;
      }
    }
    end("rank " + std::to_string(rank) + " sends what nobody of this group would", true);
  }

  // Nobody else is taking what comes: does so.
  void take_all(milliseconds limit, std::size_t first) {
    const std::lock_guard lock(receiving);
    take_from(first, limit);
    for (std::size_t r = 0; r < peers.size(); ++r)
      if (r != first)
        take_from(r, milliseconds(0));
  }

  // Says what is to be said to those who have not heard it and can be reached now. False: some could not.
  bool say_words() {
    struct due {
      std::size_t rank;
      std::shared_ptr<bulk_sender> to;
      bulk_frame frame;
    };
    std::vector<due> words;
    {
      const std::lock_guard lock(guard);
      for (std::size_t r = 0; r < peers.size(); ++r) {
        const peer& p = peers[r];
        if (p.to && last_word && !p.told_end)
          words.push_back({r, p.to, word(end_stream, why)});
        else if (p.to && ready && why.empty() && !p.told_ready)
          words.push_back({r, p.to, word(ready_stream, "")});
      }
    }
    bool all = true;
    for (due& d : words) {
      const bool last = d.frame.stream == end_stream;
      const auto sent = d.to->send(std::move(d.frame), milliseconds(0));
      const bool later = !sent && sent.failure().code == "no_credit"; // it has not answered yet
      all = all && !later;
      {
        const std::lock_guard lock(guard);
        (last ? peers[d.rank].told_end : peers[d.rank].told_ready) = !later;
      }
      if (!sent && !later && !last)
        lose(d.rank, sent.failure());
    }
    return all;
  }

  // What was told may still not arrive, and nothing else is sent before the first meeting that would show it.
  void look_after_words() {
    for (std::size_t r = 0; r < peers.size(); ++r) {
      std::shared_ptr<bulk_sender> to;
      {
        const std::lock_guard lock(guard);
        if (peers[r].told_ready && !peers[r].knows_ready)
          to = peers[r].to;
      }
      if (!to)
        continue;
      const auto arrived = to->wait_delivered(ready_stream, milliseconds(0));
      if (arrived) {
        const std::lock_guard lock(guard);
        peers[r].knows_ready = true;
      } else if (arrived.failure().code != "timed_out") {
        lose(r, arrived.failure());
      }
    }
  }

  bool send_rows(std::size_t rank, std::uint64_t number, const payload_bytes& rows, clock::time_point until) {
    std::shared_ptr<bulk_sender> to;
    {
      const std::lock_guard lock(guard);
      to = peers[rank].to;
    }
    if (!to)
      lose(rank, {"unknown", "it was never there"});
    while (!ended()) {
      bulk_frame f;
      f.kind = frame_kind::a2a_dispatch;
      f.stream = rows_stream;
      f.step_or_offset = number;
      f.payload = rows;
      const auto sent = to->send(std::move(f), look_every);
      if (sent)
        return true;
      if (sent.failure().code != "no_credit")
        lose(rank, sent.failure());
      else if (clock::now() >= until)
        end("rank " + std::to_string(rank) + " takes no rows", true);
    }
    return false;
  }

  // Ranks that have not come to the meeting at hand.
  std::vector<std::size_t> missing() const {
    const std::lock_guard lock(guard);
    std::vector<std::size_t> who;
    for (std::size_t r = 0; r < peers.size(); ++r)
      if (r != self && peers[r].came.empty())
        who.push_back(r);
    return who;
  }
};

meeting_links::meeting_links(std::unique_ptr<state> s) : state_(std::move(s)) {}
meeting_links::meeting_links(meeting_links&&) noexcept = default;
meeting_links& meeting_links::operator=(meeting_links&&) noexcept = default;

meeting_links::~meeting_links() {
  if (state_ == nullptr)
    return;
  end("rank " + std::to_string(rank()) + " is gone");
  const auto until = clock::now() + last_word_limit;
  while (!state_->say_words() && clock::now() < until)
    std::this_thread::sleep_for(milliseconds(1));
  for (const state::peer& p : state_->peers)
    if (p.to)
      (void)p.to->wait_delivered(
          end_stream, std::max(milliseconds(0), std::chrono::duration_cast<milliseconds>(until - clock::now())));
}

result<meeting_links> meeting_links::start(std::shared_ptr<bulk_context> context, const meeting_links_options& o) {
  if (o.ranks < 1 || o.ranks > ranks_max || o.self.rank >= o.ranks || o.place_bytes > frame_payload_bytes_max)
    return error{"bad_options", "a meeting over links: 1 to " + std::to_string(ranks_max) +
                                    " ranks and places of at most " + std::to_string(frame_payload_bytes_max) +
                                    " bytes are allowed"};
  bulk_link_options l;
  l.self = o.self;
  l.traffic = traffic_class::a2a;
  l.bind = o.bind;
  l.rules = default_rules(traffic_class::a2a);
  auto link = bulk_link::start(*context, l);
  if (!link)
    return link.failure();
  return meeting_links(std::make_unique<state>(std::move(context), o, std::move(*link)));
}

std::string meeting_links::endpoint() const {
  return state_->link.endpoint();
}

void meeting_links::set_peers(const std::vector<bulk_peer>& peers) {
  state& s = *state_;
  s.link.set_peers(peers);
  const std::lock_guard lock(s.guard);
  for (const bulk_peer& p : peers) {
    if (p.rank >= s.peers.size() || p.rank == s.self || s.peers[p.rank].to)
      continue;
    s.peers[p.rank].to = s.link.sender_to(p.rank);
    s.peers[p.rank].from = s.link.receiver_from(p.rank);
  }
}

std::size_t meeting_links::rank() const {
  return state_->self;
}
std::size_t meeting_links::ranks() const {
  return state_->options.ranks;
}
std::size_t meeting_links::place_bytes() const {
  return state_->options.place_bytes;
}

void meeting_links::be_ready() {
  {
    const std::lock_guard lock(state_->guard);
    state_->ready = true;
  }
  (void)state_->say_words();
}

bool meeting_links::all_ready() const {
  const state& s = *state_;
  const std::lock_guard lock(s.guard);
  for (std::size_t r = 0; r < s.peers.size(); ++r)
    if (r == s.self ? !s.ready : !s.peers[r].ready)
      return false;
  return true;
}

std::span<std::byte> meeting_links::mine(std::size_t bytes) {
  state_->mine.resize(std::min(bytes, place_bytes()));
  return std::as_writable_bytes(std::span(state_->mine));
}

std::span<const std::byte> meeting_links::shown(std::size_t rank) const {
  return std::as_bytes(state_->shown[(state_->met - 1) % turns][rank].bytes);
}

status meeting_links::meet(std::uint64_t number, std::chrono::nanoseconds limit) {
  state& s = *state_;
  if (const auto why = s.ended())
    return *why;
  const auto until = clock::now() + limit;
  auto& now_shown = s.shown[s.met++ % turns];
  now_shown[s.self] = own(std::exchange(s.mine, {}));
  for (std::size_t r = 0; r < s.peers.size(); ++r)
    if (r != s.self && !s.send_rows(r, number, now_shown[s.self], until))
      return *s.ended();
  for (auto late = s.missing(); !late.empty(); late = s.missing()) {
    if (const auto why = s.ended())
      return *why;
    const auto left = until - clock::now();
    if (left <= std::chrono::nanoseconds(0)) {
      std::string who;
      for (const std::size_t r : late)
        who += (who.empty() ? "" : ", ") + std::to_string(r);
      s.end("ranks " + who + " of " + std::to_string(ranks()) + " did not come within " +
                std::to_string(std::chrono::duration_cast<milliseconds>(limit).count()) + " ms",
            true);
      return *s.ended();
    }
    s.take_all(std::min(look_every, std::chrono::ceil<milliseconds>(left)), late.front());
  }
  std::optional<std::uint64_t> other;
  {
    const std::lock_guard lock(s.guard);
    for (std::size_t r = 0; r < s.peers.size(); ++r) {
      if (r == s.self)
        continue;
      state::visit v = std::move(s.peers[r].came.front());
      s.peers[r].came.pop_front();
      now_shown[r] = std::move(v.rows);
      if (v.number != number)
        other = v.number;
    }
  }
  if (other) {
    s.end("the ranks do different things (" + std::to_string(*other) + " and " + std::to_string(number) + ")", true);
    return *s.ended();
  }
  return nothing{};
}

void meeting_links::end(const std::string& why) {
  state_->end(why, true);
}

std::optional<error> meeting_links::failure() {
  state& s = *state_;
  (void)s.say_words();
  s.look_after_words();
  if (std::unique_lock lock(s.receiving, std::try_to_lock); lock) // else a meeting is under way, and finds out itself
    for (std::size_t r = 0; r < s.peers.size() && !s.ended(); ++r)
      s.take_from(r, milliseconds(0));
  return s.ended();
}

} // namespace troupe
