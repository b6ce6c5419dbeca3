#include "actors/backend.hpp"
#include "actors/cluster_system.hpp"
#include "actors/engine_directory.hpp"
#include "actors/member.hpp"
#include "cluster/build_id.hpp"
#include "cluster/incarnation.hpp"
#include "cluster/shutdown.hpp"
#include "runtime/metrics/metrics_text.hpp"
#include "runtime/model/checkpoint.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include <random>
#include <thread>

namespace troupe {

namespace {

using namespace std::chrono_literals;

class cluster_backend final : public backend {
public:
  explicit cluster_backend(const cluster_access& c) : access_(c), config_(c.identity, 2) {
    const auto source = std::make_shared<const checkpoint>(c.model);
    front_.config = std::shared_ptr<const model_config>(source, &source->config());
    front_.vocabulary = std::make_shared<const tokenizer>(tokenizer::load(c.model + "/tokenizer.json"));
    gateway_setup g;
    g.replays = true;
    g.vocabulary = front_.vocabulary;
    g.eos_ids = {front_.config->eos_token_id};
    g.seed = c.seed;
    g.random_bits = [] {
      std::random_device random;
      return static_cast<std::uint64_t>(random()) << 32 | random();
    };
    front_.gateway = system_.spawn(gateway, g);
    directory_ = system_.spawn<caf::detached>(engine_directory, front_.gateway);
    member_setup m;
    m.who = {member_role::gateway,    c.name, {}, 0, mint_incarnation(), c.host, 0, protocol_version, build_id(),
             c.identity.configuration};
    m.coordinators = c.identity.coordinators;
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

  directory_report engines(caf::scoped_actor& self) const {
    directory_report r;
    ask(self.ptr(), directory_, 5000ms, directory_query{})
        .receive([&](const directory_report& got) { r = got; }, [](const caf::error&) {});
    return r;
  }

  // Empty, or why there are none.
  std::string wait_for_engines() {
    caf::scoped_actor self{system_};
    const auto last = std::chrono::steady_clock::now() + std::chrono::milliseconds(access_.ready_ms);
    for (auto r = engines(self);; r = engines(self)) {
      if (!r.engines.empty()) {
        front_.limits = r.engines.front().limits;
        front_.numerics_id = r.engines.front().numerics_id;
        front_.description = "cluster " + access_.identity.name + ", numerics " + front_.numerics_id + ", " +
                             std::to_string(r.engines.size()) + " engines at the start";
        return {};
      }
      if (const std::string why = expelled(); !why.empty())
        return why;
      if (std::chrono::steady_clock::now() >= last)
        return (r.mepoch == 0 ? "no coordinator answered within " : "no worker was ready within ") +
               std::to_string(access_.ready_ms) + " ms";
      std::this_thread::sleep_for(5ms);
    }
  }

  void end() {
    tell_from_outside(member_, stop{});
    tell_from_outside(directory_, stop{});
    tell_from_outside(front_.gateway, stop{});
    if (const std::size_t left = wait_for_actors(system_, 30s))
      give_up_on_actors(left);
  }

  cluster_access access_;
  engine_front front_;
  cluster_system_config config_;
  mutable caf::actor_system system_{config_};
  engine_directory_actor directory_;
  member_actor member_;
  mutable std::mutex mutex_;
  std::string expelled_; // why this process is no part of the cluster
};

std::string cluster_backend::metrics() const {
  caf::scoped_actor self{system_};
  gateway_report front;
  ask(self.ptr(), front_.gateway, 5000ms, gateway_query{})
      .receive([&](const gateway_report& r) { front = r; }, [](const caf::error&) {});
  std::vector<engine_snapshot> all;
  for (const engine_info& i : engines(self).engines) {
    engine_snapshot& e = all.emplace_back();
    if (i.rank < front.metrics.size())
      e.requests = front.metrics[i.rank];
    ask(self.ptr(), i.scheduler, 5000ms, scheduler_query{})
        .receive(
            [&](const scheduler_report& s) {
              e.steps = s.metrics;
              e.running = s.running;
              e.waiting = s.waiting;
              e.preemptions = s.preemptions;
            },
            [](const caf::error&) {});
    ask(self.ptr(), i.kv, 5000ms, kv_query{})
        .receive(
            [&](const kv_report& kv) {
              e.kv = kv.statistics;
              e.kv_blocks = std::max(kv.blocks - 1, 0);
              e.state_slots = std::max(kv.slots - 1, 0);
            },
            [](const caf::error&) {});
  }
  return metrics_text(access_.identity.name, all, {});
}

} // namespace

std::unique_ptr<backend> make_cluster_backend(const cluster_access& cluster) {
  return std::make_unique<cluster_backend>(cluster);
}

} // namespace troupe
