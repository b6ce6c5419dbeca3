// The coordinator's side of membership (cluster.md §3.4): the member table, views in two phases, reform after a death,
// take-over. Events in, orders out; time is steady, in ms. Only a leader whose lease holds may carry orders out:
// whoever owns this object asks the lease before each of them.
//
// Every proposal has a number of its own, mepoch, above all earlier ones. Its upper half is the term that began it:
// terms are on the disks of a majority, so no number is given twice even by leaders that know nothing of one another.
#pragma once
#include "cluster/failure_detector.hpp"
#include "cluster/view_follower.hpp"
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

struct membership_settings {
  failure_settings failure;
  view_settings view;
  std::int64_t collect_ms = 2000; // a new leader listens at least so long before it decides
  std::int64_t retry_ms = 500;
  std::string build_id;
  std::uint32_t proto = 1;
};

struct member_progress { // of a heartbeat
  rank_id rank;
  incarnation_t incarnation = 0;
  std::uint64_t mepoch = 0; // newest committed view that it knows
  std::uint64_t step = 0;   // last one that it committed
  bool queued = false;      // work waits for steps
};

struct membership_orders {
  struct prepare {
    rank_id to;
    view_proposal proposal;
  };
  struct commit {
    rank_id to;
    shared_view view;
  };
  struct abort {
    rank_id to;
    std::uint64_t mepoch = 0;
  };
  struct kill { // and free what it left behind
    node_id node;
    rank_id rank;
    incarnation_t incarnation = 0;
  };
  struct refusal {
    rank_id to;
    incarnation_t incarnation = 0;
    ack_code code = ack_code::ok;
    std::string why;
  };
  struct change { // of a member's state
    rank_id rank;
    member_state state = member_state::joining;
    std::string why;
  };
  std::vector<prepare> prepares;
  std::vector<commit> commits;
  std::vector<abort> aborts;
  std::vector<kill> kills;
  std::vector<refusal> refusals;
  std::vector<change> changes;
  std::vector<std::uint32_t> cover; // groups that lost ranks and stand still: covered() is waited for
  std::vector<rank_id> replay;      // dead, and out of the view: their requests start over elsewhere
  void clear() { *this = {}; }
};

class membership_core {
public:
  // known_mepoch: the highest that the lease's voters told. The first leader of a cluster begins with 0.
  membership_core(const membership_settings& settings, std::uint64_t term, std::uint64_t known_mepoch,
                  std::int64_t now);

  // ---- members

  // A process says who it is, and to a new leader what it knows; again and again until it is in a view. Refusals:
  // version_mismatch (build, protocol, or another device kind or numerics id than its group), wrong_state (the rank was
  // somebody else's in this term), stale_epoch (this incarnation is dead).
  void join(const member_info& info, const view_report& report, std::int64_t now, membership_orders& out);
  void warming(rank_id rank, incarnation_t incarnation, membership_orders& out);
  // Its self-test gave this digest, which must be the group's.
  void ready(rank_id rank, incarnation_t incarnation, const std::string& digest, std::int64_t now,
             membership_orders& out);
  void drain(rank_id rank, std::int64_t now, membership_orders& out);
  // Nothing is left on it that anybody needs: it may go.
  void drained(rank_id rank, std::int64_t now, membership_orders& out);

  // ---- evidence

  void heartbeat(const member_progress& p, std::int64_t now, membership_orders& out);
  void exited(rank_id rank, incarnation_t incarnation, const std::string& how, std::int64_t now,
              membership_orders& out); // seen by its agent, or its connection closed by the kernel
  void link(rank_id rank, incarnation_t incarnation, bool up);
  void accuse(rank_id from, rank_id accused, std::uint64_t step, evidence what, std::int64_t now);

  // ---- views

  void prepared(rank_id rank, incarnation_t incarnation, std::uint64_t mepoch, ack_code code,
                std::uint64_t committed_step, std::int64_t now, membership_orders& out);
  // Every expert of the groups that stand still has a place that every rank knows.
  void covered(std::uint64_t mepoch, std::int64_t now, membership_orders& out);
  // What became of this view? Answered by a commit or an abort, for good; by nothing only while a reform is under way.
  void question(rank_id rank, incarnation_t incarnation, std::uint64_t mepoch, std::int64_t now,
                membership_orders& out);

  void tick(std::int64_t now, membership_orders& out);

  std::uint64_t term() const { return term_; }
  const shared_view& view() const { return committed_; } // newest committed one
  bool collecting() const { return collecting_; }
  // Mepoch of the proposal under way, 0 = none.
  std::uint64_t proposed() const { return pending_ ? pending_->proposal.view->mepoch : 0; }
  std::optional<member_state> state(rank_id rank) const;

private:
  struct member {
    member_info info;
    member_state state = member_state::joining;
    bool suspect = false, ready = false, leaving = false, reported = true;
    std::uint64_t step = 0, mepoch = 0; // last one that it committed; newest view that it knows
    std::int64_t told_at = 0;           // the newest view, last
  };
  struct pending {
    view_proposal proposal;
    std::set<rank_id> participants, acked;
    std::map<std::uint32_t, std::uint64_t> last_step; // reform: highest committed step by group
    std::int64_t since = 0, sent = 0;
    bool cover_asked = false;
  };

  member* find(rank_id rank, incarnation_t incarnation);
  bool takes_part(const member& m) const;
  void set_state(member& m, member_state state, const std::string& why, membership_orders& out);
  void died(member& m, const std::string& why, bool kill, std::int64_t now, membership_orders& out);
  void known_view(const view_report& report, membership_orders& out);
  std::string unfit(const member_info& info) const;
  void tell(member& m, std::uint64_t known, std::int64_t now, membership_orders& out);
  void end_collecting(std::int64_t now, membership_orders& out);

  cluster_view same_view() const;
  cluster_view next_view(bool reform, std::set<std::uint32_t>& changed) const;
  bool all_know(const std::vector<rank_id>& ranks, std::uint64_t epoch) const;
  std::set<std::uint32_t> broken_groups() const;
  void propose(std::int64_t now, membership_orders& out);
  void send_prepares(std::int64_t now, membership_orders& out);
  void give_up(std::int64_t now, membership_orders& out);
  void try_commit(std::int64_t now, membership_orders& out);
  void commit(cluster_view view, std::int64_t now, membership_orders& out);
  void halt_groups(bool halted, std::int64_t now);

  membership_settings settings_;
  std::uint64_t term_, known_mepoch_, next_mepoch_;
  std::int64_t started_;
  bool collecting_ = true;
  std::uint64_t lead_; // steps ahead of a planned change; doubles when it was too late
  std::map<rank_id, member> members_;
  std::set<std::pair<rank_id, incarnation_t>> gone_;
  std::map<std::uint32_t, std::string> digest_; // of the self-test, by group
  std::set<std::uint32_t> halted_;              // groups that a reform stopped and no view has set going
  std::map<rank_id, std::uint64_t> reforming_;  // collecting: who stands still, and for which proposal
  shared_view committed_;
  std::optional<pending> pending_;
  failure_detector detector_;
};

} // namespace troupe
