// Who leads: the holder of a lease that a majority of the node agents granted (cluster.md §3.9). Both sides as state
// machines; time is the steady clock of their process, in ms. Clocks may start anywhere and differ in rate by some per
// cent; messages may be lost, doubled and late, processes restart: there are never two leaders at once, and one appears
// when a majority can talk to a candidate for long enough.
#pragma once
#include "cluster/identity.hpp"
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

struct lease_settings {
  std::int64_t lease_ms = 3000, renew_ms = 1000;
  std::int64_t guard_ms = 600; // a leader stops acting so long before its lease ends by its own clock
};

// A process that may lead; the same one after a restart is another.
struct candidate_id {
  node_id node;
  incarnation_t incarnation = 0;
  friend auto operator<=>(const candidate_id&, const candidate_id&) = default;
};

struct lease_request {
  std::uint64_t term = 0, round = 0; // round: of the candidate, comes back in the reply
  candidate_id candidate;
  std::int64_t lease_ms = 0; // 0 = gives back what this term was granted
};

// What an agent remembers of the cluster; a new leader begins behind the highest epoch.
struct remembered_epochs {
  std::uint64_t mepoch = 0;
  std::string config_hash;
  bool operator==(const remembered_epochs&) const = default;
};

struct lease_reply {
  bool granted = false;
  std::uint64_t term = 0, round = 0; // term: the highest that this agent granted
  node_id voter;
  std::int64_t remaining_ms = 0; // refused: of the grant that stands
  remembered_epochs known;
};

// What an agent must not forget. No times: nobody knows how long it was away.
struct voter_state {
  std::uint64_t term = 0;
  candidate_id candidate; // who got the term; none once it was given back
  remembered_epochs known;
  bool operator==(const voter_state&) const = default;
};

// The side of a node agent.
class lease_voter {
public:
  // kept: what an earlier process of this node wrote. Whom it granted a term may lead for a whole lease more.
  lease_voter(node_id node, const lease_settings& settings, const std::optional<voter_state>& kept, std::int64_t now);

  struct answer {
    lease_reply reply;
    bool write_first = false; // state() goes to disk, then written() is called, then the reply leaves; else none does
  };
  answer ask(const lease_request& request, std::int64_t now);

  void written() { unwritten_ = false; }

  // Numbers of the cluster as the leader tells them; only ever raised. True: state() should be written.
  bool note(const remembered_epochs& known);

  const voter_state& state() const { return state_; }

private:
  node_id node_;
  lease_settings settings_;
  voter_state state_;
  std::int64_t granted_until_ = 0;
  bool granted_ = false, unwritten_ = false;
};

// The side of a coordinator, leading or standing by.
class lease_candidate {
public:
  // voters: every node agent of the cluster. seed: spreads candidates in time.
  lease_candidate(candidate_id self, std::vector<node_id> voters, const lease_settings& settings, std::uint64_t seed,
                  std::int64_t now);

  using requests = std::vector<std::pair<node_id, lease_request>>;
  void tick(std::int64_t now, requests& out); // several times a renew_ms
  void reply(const lease_reply& reply, std::int64_t now);

  // Asked before every act of a leader. Once it says no, this term is over.
  bool leads(std::int64_t now);
  // While it leads: until when, unless the lease is renewed before.
  std::int64_t leads_until() const;
  std::uint64_t term() const { return term_; }
  // The highest numbers that agents told with their votes.
  const remembered_epochs& known() const { return known_; }

private:
  enum class role : std::uint8_t { standing_by, asking, leading };
  struct vote {
    std::int64_t asked_at = 0; // of the newest request that was granted
    bool granted = false;
  };
  std::int64_t jitter(std::int64_t range);
  void begin_round(std::int64_t now);
  void send_round(std::int64_t now, requests& out);
  void step_down(std::int64_t until);
  std::optional<std::int64_t> held_since() const; // when a majority of the standing grants were asked for

  candidate_id self_;
  std::vector<node_id> voters_;
  lease_settings settings_;
  std::uint64_t seed_, draws_ = 0;
  role role_ = role::standing_by;
  std::uint64_t term_ = 0, highest_term_ = 0, round_ = 0;
  std::int64_t try_at_ = 0, round_at_ = 0, sent_at_ = 0;
  std::int64_t refused_until_ = 0;
  std::map<node_id, vote> votes_;    // of this term
  std::map<node_id, bool> answered_; // in this round
  std::set<node_id> refused_;        // in this round
  bool give_back_ = false;           // grants of a term that is over, so that others need not wait
  remembered_epochs known_;
};

} // namespace troupe
