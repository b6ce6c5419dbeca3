#include "actors/backend.hpp"
#include "actors/cluster_system.hpp"
#include "actors/engine_directory.hpp"
#include "actors/engine_snapshot_of.hpp"
#include "actors/member.hpp"
#include "cluster/incarnation.hpp"
#include "cluster/shutdown.hpp"
#include "runtime/model/checkpoint.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include <thread>

namespace troupe {

namespace {

using namespace std::chrono_literals;

class cluster_backend final : public backend {
public:
  explicit cluster_backend(const cluster_access& c) : access_(c), config_(c.identity, 2) {
    front_.origin = mint_incarnation();
    const auto source = std::make_shared<const checkpoint>(c.model);
    front_.config = std::shared_ptr<const model_config>(source, &source->config());
    front_.vocabulary = std::make_shared<const tokenizer>(tokenizer::load(c.model + "/tokenizer.json"));
    gateway_setup g;
    g.replays = true;
    g.vocabulary = front_.vocabulary;
    g.eos_ids = {front_.config->eos_token_id};
    g.seed = c.seed;
    g.random_bits = random_bits_of_system;
    if (c.ledger) {
      g.recovered = std::move(c.ledger->open);
      g.ledger = ledger_ = system_.spawn<caf::detached>(ledger_keeper, ledger_keeper_setup{c.ledger});
    }
    front_.gateway = system_.spawn(gateway, g);
    directory_ = system_.spawn<caf::detached>(engine_directory, front_.gateway);
    member_setup m = member_setup_of({.cluster = c.identity, .name = c.name, .node = {}, .incarnation = front_.origin},
                                     member_role::gateway, 0, {c.host, 0});
    m.on_view = [to = directory_](const view& v) { tell_from_outside(to, v); };
    m.on_expelled = [this](const std::string& why) {
      const std::lock_guard lock(mutex_);
      expelled_ = why;
    };
    member_ = system_.spawn<caf::detached>(cluster_member, m);
    if (const std::string why = wait_for_engines(); !why.empty()) {
      end();
      throw config_error("", "cluster", c.identity.name, why, "see troupe status; start it with troupe launch");
    }
  }
  ~cluster_backend() override { end(); }

  const engine_front& front() const override { return front_; }
  std::string metrics() const override;

private:
  std::string expelled() const {
    const std::lock_guard lock(mutex_);
    return expelled_;
  }

  directory_report known(caf::scoped_actor& self) const {
    return report_of<directory_report>(self, directory_, directory_query{});
  }

  // Empty, or why there are none. The first engine waits a little for the others: what is placed before they are there
  // does not spread over them, and goes without an engine for prompts.
  std::string wait_for_engines() {
    caf::scoped_actor self{system_};
    const auto last = std::chrono::steady_clock::now() + std::chrono::milliseconds(access_.ready_ms);
    auto others = last;
    for (auto r = known(self);; r = known(self)) {
      const auto now = std::chrono::steady_clock::now();
      if (!r.engines.empty())
        others = std::min(others, now + 2s);
      if (!r.engines.empty() && (r.awaited == 0 || now >= others)) {
        front_.limits = r.engines.front().limits;
        front_.numerics_id = r.engines.front().numerics_id;
        front_.description = "cluster " + access_.identity.name + ", numerics " + front_.numerics_id + ", " +
                             std::to_string(r.engines.size()) + " engines at the start";
        return {};
      }
      if (const std::string why = expelled(); !why.empty())
        return why;
      if (now >= last)
        return (r.mepoch == 0 ? "no coordinator answered within " : "no worker was ready within ") +
               std::to_string(access_.ready_ms) + " ms";
      std::this_thread::sleep_for(5ms);
    }
  }

  void end() {
    tell_from_outside(member_, stop{});
    tell_from_outside(directory_, stop{});
    tell_from_outside(front_.gateway, stop{});
    if (ledger_) { // last: the sessions have told it everything by then
      wait_for_actors(system_, 30s, 1);
      tell_from_outside(ledger_, stop{});
    }
    if (const std::size_t left = wait_for_actors(system_, 30s))
      give_up_on_actors(left);
    ended_.within(30s);
  }

  cluster_access access_;
  engine_front front_;
  bounded_end ended_;
  cluster_system_config config_;
  mutable caf::actor_system system_{config_};
  engine_directory_actor directory_;
  member_actor member_;
  ledger_keeper_actor ledger_; // null without a ledger
  mutable std::mutex mutex_;
  std::string expelled_; // why this process is no part of the cluster
};

std::string cluster_backend::metrics() const {
  caf::scoped_actor self{system_};
  const auto front = report_of<gateway_report>(self, front_.gateway, gateway_query{});
  std::vector<engine_snapshot> all;
  for (const engine_info& i : known(self).engines) {
    engine_snapshot& e = all.emplace_back(snapshot_of(self, i.scheduler, i.kv));
    if (i.rank < front.metrics.size())
      e.requests = front.metrics[i.rank];
  }
  return metrics_text(access_.identity.name, all, {}); // verifiers and grammar pools are in the workers
}

} // namespace

std::unique_ptr<backend> make_cluster_backend(const cluster_access& cluster) {
  return std::make_unique<cluster_backend>(cluster);
}

} // namespace troupe
