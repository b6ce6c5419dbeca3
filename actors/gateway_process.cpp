#include "actors/gateway_process.hpp"
#include "cluster/passing_fault.hpp"

namespace troupe {

using namespace std::chrono_literals;

gateway_process::gateway_process(const gateway_process_setup& s)
    : config_(s.process.cluster, 2), parts_(system_, s.source) {
  metrics_ = system_.spawn<caf::detached>(metrics_teller,
                                          [this, name = s.process.cluster.name] { return parts_.metrics(name); });
  gateway_entry_setup e;
  e.name = s.process.name;
  e.configuration = s.process.cluster.configuration;
  e.texts = parts_.texts.digest;
  e.origin = s.process.incarnation;
  e.durable = s.source.ledger != nullptr;
  e.vocab = static_cast<std::int32_t>(parts_.texts.config->vocab_size);
  e.limits = s.limits;
  e.gateway = parts_.gateway;
  e.directory = parts_.directory;
  e.metrics = metrics_;
  e.live = live_;
  e.cluster_stops = told_to_stop_;
  e.on_failed = [this](const std::string& why) { expel(why); };
  entry_ = system_.spawn(gateway_entry, e);
  const auto port = publish(system_, gateway_entry_actor(entry_), s.at);
  if (!port) {
    end();
    throw passing_fault("", "gateway.port", std::to_string(s.at.port), port.failure().message,
                        "give another port, or stop what listens there");
  }
  port_ = *port;
  member_setup m = member_setup_of(s.process, member_role::gateway, 0, {s.at.host, port_});
  m.who.model.texts = parts_.texts.digest;
  m.on_view = [to = parts_.directory](const view& v) { tell_from_outside(to, v); };
  m.on_coordinator = [to = parts_.directory](const membership_actor& c) {
    tell_from_outside(to, coordinator_found{c});
  };
  m.on_expelled = [this](const std::string& why) { expel(why); };
  m.live = [live = live_] { return live->load(); };
  m.on_stop = [this](bool now) {
    tell_from_outside(parts_.gateway, drain{});
    if (now)
      *told_to_stop_ = true;
  };
  member_ = system_.spawn<caf::detached>(cluster_member, m);
}

void gateway_process::expel(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!expelled_)
    expelled_ = why;
}

std::optional<std::string> gateway_process::expelled() const {
  const std::lock_guard lock(mutex_);
  return expelled_;
}

void gateway_process::end() {
  tell_from_outside(entry_, stop{}); // first: clients hear that it ends, not that their requests were aborted
  if (member_)
    tell_from_outside(member_, stop{});
  tell_from_outside(metrics_, stop{});
  parts_.end();
}

gateway_process::~gateway_process() {
  end();
}

} // namespace troupe
