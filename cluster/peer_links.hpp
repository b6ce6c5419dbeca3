// Links of a process to the other ranks of its expert group: each side asks, the other answers on demand, so that
// nobody has to take part in a step that has no rows for it. Two kinds of questions, rows of steps and pieces of
// weights, with rings and threads of their own: large copies do not stand in the way of steps. None of the threads is
// the actor system's.
//
// A link belongs to one start of each of both processes. It is made anew for as long as the peer is a member: when it
// breaks, whoever waits on it is told, and it is connected again.
#pragma once
#include "cluster/bulk_link.hpp"
#include "cluster/frame_pipe.hpp"
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace troupe {

enum class question_kind : std::uint8_t { rows, weights };
inline constexpr std::size_t question_kinds = 2;

// Answers the questions of one peer; called by one thread.
class question_server {
public:
  virtual ~question_server() = default;
  // Sends one answer, under the question's number. A failure breaks the link.
  virtual status serve(const frame_view& question, frame_writer& answers) = 0;
};

// A connected link. Whoever asks keeps it alive and uses it as long as it is up; one thread for each kind.
class peer_link {
public:
  struct asking {
    std::unique_ptr<frame_writer> questions;
    std::unique_ptr<frame_reader> answers;
  };
  asking& at(question_kind k) { return kinds_[static_cast<std::size_t>(k)]; }
  std::uint64_t incarnation() const { return incarnation_; } // of the peer
  std::uint64_t number() const { return number_; }           // unique in this process
  bool up() const { return up_.load(std::memory_order_acquire); }
  // It is of no more use, whatever the rings say: it ends and is made anew.
  void give_up() { up_.store(false, std::memory_order_release); }

private:
  friend class peer_links;
  std::uint64_t incarnation_ = 0, number_ = 0;
  std::array<asking, question_kinds> kinds_;
  std::atomic<bool> up_{true};
};

struct peer_links_setup {
  std::string cluster, node; // names of segments are made of them
  // Not empty: peers share no memory with this process, or shall not; they are reached over ZeroMQ, and reach it at
  // this address ("127.0.0.1"), at ports that endpoints() tells.
  std::string tcp_address;
  std::shared_ptr<bulk_context> bulk{}; // for that; null: one of its own, without encryption
  std::int32_t rank = 0;                // of this process in the group
  std::string group;                    // told apart from others of the cluster by this, as a part of a segment's name
  std::uint64_t incarnation = 0;        // of this process
  std::size_t frame_bytes = std::size_t{256} << 10; // largest payload
  std::size_t frames_out = 2;                       // questions that wait for their answer, of one kind and link
  std::function<std::unique_ptr<question_server>(std::int32_t peer, question_kind)> serve;
  std::function<void()> on_change; // a link went up or down; on a thread of this object, which holds no lock
};

// Whose process stands at a rank at the moment.
struct group_peer {
  std::int32_t rank = 0;
  std::uint64_t incarnation = 0;
  std::vector<std::string> endpoints{}; // as peer_links::endpoints(); unused inside a host
  std::string key{};                    // public CURVE key; empty without encryption
  friend bool operator==(const group_peer&, const group_peer&) = default;
};

class peer_links {
public:
  explicit peer_links(peer_links_setup setup); // throws config_error: the address cannot be listened on
  ~peer_links();
  peer_links(const peer_links&) = delete;
  peer_links& operator=(const peer_links&) = delete;

  // The other ranks that are there, until close(). Links to others end, links to new ones are connected in the
  // background.
  void set_peers(const std::vector<group_peer>& peers);
  // Null: not connected.
  std::shared_ptr<peer_link> link_to(std::int32_t rank) const;
  std::vector<std::string> endpoints() const; // [question_kinds] of this process, empty inside a host
  void close();                               // leaves all links in order

private:
  struct peer;
  void follow(const std::vector<group_peer>& peers, bool last);
  struct serving {
    std::unique_ptr<frame_reader> questions;
    std::unique_ptr<frame_writer> answers;
  };
  using both_kinds = std::array<serving, question_kinds>;
  void run(peer& p);
  bool connect_rings(const peer& p, peer_link& link, both_kinds& served);
  bool connect_bulk(const peer& p, peer_link& link, both_kinds& served);
  void serve(peer& p, peer_link& link, question_kind kind, frame_reader& questions, frame_writer& answers);
  result<std::string> segment(const group_peer& from, const group_peer& to, question_kind kind, bool question) const;

  peer_links_setup setup_;
  std::vector<bulk_link> bulk_; // [question_kinds]
  mutable std::mutex guard_;    // of peers_ and of each one's current link
  std::vector<std::unique_ptr<peer>> peers_;
  bool closed_ = false;
  std::atomic<std::uint64_t> links_made_{0};
};

} // namespace troupe
