// A change of the membership in two phases (cluster.md §3.4): the leader asks the members that work with one another to
// prepare a view, and commits it when all of them have; else it gives that view up for good. Both sides as state
// machines without CAF or clocks. Messages may be lost, doubled, late and out of order, leaders and members may die at
// any moment: no two members ever work under different views of one epoch, and every proposal ends.
//
// An epoch names one view for ever. It begins with its leader's term, so that no two leaders use the same one, whatever
// they know of each other, and is not used again when the view is given up. A member that has prepared a view goes on
// under its old one until it hears of the end; each of its heartbeats says what it has, and the leader's answer to that
// is final. What a former leader has left half done nobody needs: the first view of the next one is newer.
#pragma once
#include "cluster/identity.hpp"
#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace troupe {

// The number that a leader's first epoch comes behind.
constexpr std::uint64_t epochs_before(std::uint64_t term) {
  return term << 32;
}
constexpr std::uint64_t term_of(std::uint64_t mepoch) {
  return mepoch >> 32;
}

struct view_limits {
  std::int64_t prepare_ms = 5000; // in which all must have prepared
  std::int64_t retry_ms = 500;    // those that have not are asked again
};

struct view_order {
  enum class kind : std::uint8_t {
    prepare, // the proposal
    commit,  // what was prepared as `mepoch`
    abort,   // likewise: it will not be
    whole    // the committed view, to members that need not prepare it or have missed something
  };
  incarnation_t to = 0;
  kind what = kind::prepare;
  std::uint64_t mepoch = 0;
};

// View: a value with a field mepoch, 0 in one that is none.
template <class View> class view_leader {
public:
  using orders = std::vector<view_order>;
  using members = std::set<incarnation_t>;

  explicit view_leader(const view_limits& limits = {}) : limits_(limits) {}

  // Another term, or the same anew: nothing is committed or proposed, or known of the views of others. Numbers go on.
  void lead(std::uint64_t term) {
    const std::uint64_t last = std::max(last_, epochs_before(term));
    *this = view_leader(limits_);
    last_ = last;
  }
  // Somebody has heard of that epoch: no other view gets it. Those of a later term are another leader's.
  void raise(std::uint64_t mepoch) {
    if (term_of(mepoch) <= term_of(last_))
      last_ = std::max(last_, mepoch);
  }

  void changed() { changed_ = true; }
  bool wants() const { return changed_ && !proposal_; } // then propose() is due, with this epoch:
  std::uint64_t next() const { return last_ + 1; }
  std::uint64_t last() const { return last_; }
  const View& committed() const { return committed_; }
  const View& proposed() const { return proposal_->next; } // there is one

  // asked: who has to prepare it; others: who only hears of it.
  void propose(View next, members asked, members others, std::int64_t now, orders& out) {
    changed_ = false;
    last_ = next.mepoch;
    proposal_ = proposal{std::move(next), asked, std::move(asked), std::move(others), now, now};
    send(out);
    commit_if_all_have(out);
  }
  void prepared(incarnation_t who, std::uint64_t mepoch, orders& out) {
    if (!proposal_ || proposal_->next.mepoch != mepoch)
      return;
    proposal_->missing.erase(who);
    commit_if_all_have(out);
  }
  // It is not waited for any more: what it was asked to prepare will not be.
  void lost(incarnation_t who, orders& out) {
    if (proposal_ && proposal_->missing.contains(who))
      give_up(out);
  }
  // Who had all the time there is, and has not prepared.
  members tick(std::int64_t now, orders& out) {
    if (!proposal_)
      return {};
    if (now - proposal_->began >= limits_.prepare_ms) {
      members late = proposal_->missing;
      give_up(out);
      return late;
    }
    if (now - proposal_->sent >= limits_.retry_ms) {
      proposal_->sent = now;
      send(out);
    }
    return {};
  }
  // A member that this leader knows says which view it works under, and which one it has prepared (0: none).
  void heard(incarnation_t who, std::uint64_t under, std::uint64_t prepared, orders& out) {
    raise(std::max(under, prepared));
    if (under < committed_.mepoch && named_.contains(who))
      out.push_back({who, view_order::kind::whole, committed_.mepoch});
    else if (prepared > committed_.mepoch && !(proposal_ && proposal_->next.mepoch == prepared))
      out.push_back({who, view_order::kind::abort, prepared});
    if (under > committed_.mepoch && term_of(under) == term_of(last_))
      changed_ = true; // it takes nothing that is older
  }

private:
  struct proposal {
    View next;
    members missing, asked, others;
    std::int64_t began = 0, sent = 0;
  };
  void send(orders& out) const {
    for (const incarnation_t who : proposal_->missing)
      out.push_back({who, view_order::kind::prepare, proposal_->next.mepoch});
  }
  void commit_if_all_have(orders& out) {
    if (!proposal_->missing.empty())
      return;
    proposal p = *std::exchange(proposal_, std::nullopt);
    committed_ = std::move(p.next);
    for (const incarnation_t who : p.asked)
      out.push_back({who, view_order::kind::commit, committed_.mepoch});
    for (const incarnation_t who : p.others)
      out.push_back({who, view_order::kind::whole, committed_.mepoch});
    named_ = std::move(p.asked);
    named_.merge(p.others);
  }
  void give_up(orders& out) {
    for (const incarnation_t who : proposal_->asked)
      out.push_back({who, view_order::kind::abort, proposal_->next.mepoch});
    proposal_.reset();
    changed_ = true;
  }

  view_limits limits_;
  std::uint64_t last_ = 0; // epoch that was used last
  bool changed_ = false;
  View committed_{};
  members named_; // who hears of the committed view
  std::optional<proposal> proposal_;
};

template <class View> class view_member {
public:
  // A leader of that term has taken it in.
  void follow(std::uint64_t term) { term_ = std::max(term_, term); }

  ack_code prepare(View next) {
    follow(term_of(next.mepoch));
    if (term_of(next.mepoch) < term_)
      return refuse(ack_code::stale_term);
    if (next.mepoch < std::max(committed_.mepoch, prepared()))
      return refuse(ack_code::stale_epoch);
    if (next.mepoch > committed_.mepoch)
      prepared_ = std::move(next);
    return ack_code::ok;
  }
  // True: committed() is another view.
  bool commit(std::uint64_t mepoch) {
    if (!prepared_ || prepared_->mepoch != mepoch)
      return false; // a copy; or the view itself was lost: the next heartbeat says so
    committed_ = std::move(*std::exchange(prepared_, std::nullopt));
    return true;
  }
  void abort(std::uint64_t mepoch) {
    if (prepared() == mepoch)
      prepared_.reset();
  }
  // Likewise.
  bool take(View whole) {
    if (term_of(whole.mepoch) < term_ || whole.mepoch <= committed_.mepoch) {
      refused_ += whole.mepoch < committed_.mepoch || term_of(whole.mepoch) < term_ ? 1 : 0;
      return false;
    }
    if (prepared() <= whole.mepoch)
      prepared_.reset();
    committed_ = std::move(whole);
    return true;
  }

  const View& committed() const { return committed_; }
  std::uint64_t prepared() const { return prepared_ ? prepared_->mepoch : 0; }
  std::uint64_t refused() const { return refused_; } // messages of older terms and epochs

private:
  ack_code refuse(ack_code why) {
    ++refused_;
    return why;
  }

  std::uint64_t term_ = 0, refused_ = 0;
  View committed_{};
  std::optional<View> prepared_;
};

} // namespace troupe
