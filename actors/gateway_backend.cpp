#include "actors/cluster_system.hpp"
#include "actors/engine_snapshot_of.hpp"
#include "actors/gateway_client.hpp"
#include "actors/gateway_parts.hpp"
#include "cluster/incarnation.hpp"
#include <thread>

namespace troupe {

namespace {

using namespace std::chrono_literals;

class gateway_backend final : public backend {
public:
  explicit gateway_backend(const cluster_access& c) : access_(c), config_(c.identity, 2) {
    front_.origin = mint_incarnation();
    const model_texts texts = load_texts(c.model);
    front_.config = texts.config;
    front_.vocabulary = texts.vocabulary;
    gateway_client_setup s;
    s.cluster = c.identity;
    s.texts = texts.digest;
    s.name = c.name;
    s.gateway = c.gateway;
    s.seed = c.seed;
    s.random_bits = random_bits_of_system;
    client_ = system_.spawn<caf::detached>(gateway_client, s);
    front_.gateway = client_;
    if (const std::string why = wait_for_gateway(); !why.empty()) {
      end();
      throw config_error("", "cluster", c.identity.name, c.gateway + " did not take this client: " + why,
                         "see troupe status, or leave the cluster's gateways out with --gateway none");
    }
  }
  ~gateway_backend() override { end(); }

  const engine_front& front() const override { return front_; }

  std::string metrics() const override {
    caf::scoped_actor self{system_};
    const auto now = report_of<gateway_client_report>(self, client_, gateway_client_query{});
    std::string text;
    if (now.entry)
      ask(self.ptr(), now.entry, 60000ms, metrics_query{})
          .receive([&](const metrics_answer& a) { text = a.text; }, [](const caf::error&) {});
    return text;
  }

  void ask_what_is_awaited(const awaited_query& query) const override { tell_from_outside(client_, query); }

private:
  // Empty, or why there is none.
  std::string wait_for_gateway() {
    caf::scoped_actor self{system_};
    const auto last = std::chrono::steady_clock::now() + std::chrono::milliseconds(access_.ready_ms);
    for (;; std::this_thread::sleep_for(5ms)) {
      const auto r = report_of<gateway_client_report>(self, client_, gateway_client_query{});
      if (r.entry) {
        front_.limits = r.answer.limits;
        front_.numerics_id = r.answer.numerics_id;
        front_.description = "cluster " + access_.identity.name + " through " + access_.gateway + ", numerics " +
                             front_.numerics_id + ", " + std::to_string(r.answer.engines) + " engines at the start";
        return {};
      }
      if (r.refused)
        return r.why;
      if (std::chrono::steady_clock::now() >= last)
        return r.why + " within " + std::to_string(access_.ready_ms) + " ms";
    }
  }

  void end() {
    tell_from_outside(client_, stop{});
    if (const std::size_t left = wait_for_actors(system_, 30s))
      give_up_on_actors(left);
  }

  cluster_access access_;
  cluster_system_config config_;
  mutable bounded_system system_{config_};
  engine_front front_; // behind the system, which waits for the last handle of an actor with a thread of its own
  gateway_client_actor client_;
};

} // namespace

std::unique_ptr<backend> make_gateway_backend(const cluster_access& cluster) {
  return std::make_unique<gateway_backend>(cluster);
}

} // namespace troupe
