#include "actors/backend.hpp"
#include "actors/cluster_system.hpp"
#include "actors/gateway_parts.hpp"
#include "actors/member.hpp"
#include "cluster/incarnation.hpp"
#include <thread>

namespace troupe {

namespace {

using namespace std::chrono_literals;

class cluster_backend final : public backend {
public:
  explicit cluster_backend(const cluster_access& c)
      : access_(c), config_(c.identity, 2), parts_(system_, {c.model, c.seed, c.ledger, false, c.engine_wait,
                                                             c.max_attempts, c.identity.unacked_messages, c.engines}) {
    front_.origin = mint_incarnation();
    front_.config = parts_.texts.config;
    front_.vocabulary = parts_.texts.vocabulary;
    front_.gateway = parts_.gateway;
    member_setup m = member_setup_of({.cluster = c.identity, .name = c.name, .node = {}, .incarnation = front_.origin},
                                     member_role::gateway, 0, {c.host, 0});
    m.who.model.texts = parts_.texts.digest;
    m.on_view = [to = parts_.directory](const view& v) { tell_from_outside(to, v); };
    m.on_coordinator = [to = parts_.directory](const membership_actor& found) {
      tell_from_outside(to, coordinator_found{found});
    };
    m.on_expelled = [this, to = parts_.gateway](const std::string& why) {
      tell_from_outside(to, give_up{"expelled", "the cluster does not take this client any more: " + why});
      const std::lock_guard lock(mutex_);
      expelled_ = why;
    };
    m.comes_back = true; // what it asked for is not lost by its silence
    m.live = [live = front_.live] { return live->size(); };
    m.on_stop = [to = parts_.gateway](bool now) {
      if (now)
        tell_from_outside(to, give_up{cluster_stopped, "the cluster was stopped"});
      else
        tell_from_outside(to, drain{});
    };
    member_ = system_.spawn<caf::detached>(cluster_member, m);
    if (const std::string why = wait_for_engines(); !why.empty()) {
      end();
      throw config_error("", "cluster", c.identity.name, why, "see troupe status; start it with troupe launch");
    }
  }
  ~cluster_backend() override { end(); }

  const engine_front& front() const override { return front_; }
  std::string metrics() const override { return parts_.metrics(access_.identity.name); }
  void ask_what_is_awaited(const awaited_query& query) const override { tell_from_outside(parts_.directory, query); }

private:
  std::string expelled() const {
    const std::lock_guard lock(mutex_);
    return expelled_;
  }

  // Empty, or why there are none.
  std::string wait_for_engines() {
    caf::scoped_actor self{system_};
    const auto last = std::chrono::steady_clock::now() + std::chrono::milliseconds(access_.ready_ms);
    engines_at_start there;
    for (auto r = parts_.engines(self);; r = parts_.engines(self)) {
      const auto now = std::chrono::steady_clock::now();
      if (there.enough(r, now) || (!r.engines.empty() && now >= last)) {
        front_.limits = r.engines.front().limits;
        front_.numerics_id = r.engines.front().numerics_id;
        front_.description = "cluster " + access_.identity.name + ", numerics " + front_.numerics_id + ", " +
                             std::to_string(r.engines.size()) + " engines at the start";
        return {};
      }
      if (const std::string why = expelled(); !why.empty())
        return why;
      if (r.given_up)
        return r.waits_for;
      if (now >= last)
        return (r.mepoch == 0 ? "no coordinator answered within " : "no worker was ready within ") +
               std::to_string(access_.ready_ms) + " ms";
      std::this_thread::sleep_for(5ms);
    }
  }

  void end() {
    tell_from_outside(member_, stop{});
    parts_.end();
  }

  cluster_access access_;
  engine_front front_;
  cluster_system_config config_;
  mutable bounded_system system_{config_};
  gateway_parts parts_;
  member_actor member_;
  mutable std::mutex mutex_;
  std::string expelled_; // why this process is no part of the cluster
};

} // namespace

std::unique_ptr<backend> make_cluster_backend(const cluster_access& cluster) {
  return std::make_unique<cluster_backend>(cluster);
}

} // namespace troupe
