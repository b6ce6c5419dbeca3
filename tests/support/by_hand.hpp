// An actor system without threads and with a clock moved by hand: no sleeps, one interleaving per test.
#pragma once
#include "cluster/actor_system.hpp"
#include "cluster/messages.hpp"
#include <caf/scheduler/test_coordinator.hpp>

namespace troupe {

struct by_hand {
  struct config : caf::actor_system_config {
    config() {
      add_engine_messages(*this);
      set("scheduler.policy", caf::atom("testing"));
    }
  };
  config cfg;
  caf::actor_system sys{cfg};
  caf::scheduler::test_coordinator& sched = dynamic_cast<caf::scheduler::test_coordinator&>(sys.scheduler());
  caf::scoped_actor self{sys};
};

} // namespace troupe
