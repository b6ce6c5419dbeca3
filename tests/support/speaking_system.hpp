// An actor system that speaks to another one of the same test, and the least that it can publish.
#pragma once
#include "cluster/actor_system.hpp"
#include "cluster/control_messages.hpp"
#include "cluster/tls.hpp"

namespace test_support {

struct speaking_config : caf::actor_system_config {
  speaking_config() {
    troupe::prepare_process();
    troupe::prepare(*this, "troupe test", 2, std::chrono::milliseconds(500), std::chrono::milliseconds(60000));
  }
  explicit speaking_config(const troupe::tls_files& keys) : speaking_config() { troupe::prepare_tls(*this, keys); }
};

// Grants nobody its vote.
inline troupe::voter_actor::behavior_type refusing_voter(troupe::voter_actor::pointer self) {
  return {[](const troupe::lease_ask& a) { return troupe::lease_answer{false, a.term + 1, 0, 0, 0, 0, {}}; },
          [=](const troupe::stop&) { self->quit(); }};
}

} // namespace test_support
