#include "actors/worker_process.hpp"

namespace troupe {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t pool_threads = 2;

model_process without_gateway(const engine_options& options, std::uint32_t rank) {
  model_process p = make_model_process(options);
  p.setup->front.vocabulary.reset();
  p.setup->rank = rank;
  return p;
}

} // namespace

worker_process::worker_process(const worker_setup& s)
    : process_(without_gateway(s.engine, s.rank)), config_(s.process.cluster, pool_threads) {
  root_ = system_.spawn(worker_root, std::shared_ptr<const process_setup>(process_.setup));
  started parts;
  {
    caf::scoped_actor self{system_};
    ask(self.ptr(), root_, 30000ms, start{}).receive([&](const started& p) { parts = p; }, [](const caf::error&) {});
  }
  const auto port = publish(system_, root_, s.at);
  if (parts.engines.empty() || !port) {
    parts = {};
    end(10s);
    throw config_error("", "control.port", std::to_string(s.at.port),
                       port ? "the engine of " + s.process.name + " did not start" : port.failure().message,
                       "give another port, or stop what listens there");
  }
  port_ = *port;
  member_setup m = member_setup_of(s.process, member_role::worker, s.rank, {s.at.host, port_});
  m.scheduler = parts.engines.front().scheduler;
  m.on_expelled = [this](const std::string& why) {
    const std::lock_guard lock(mutex_);
    expelled_ = why;
  };
  m.on_stop = [this] { told_to_stop_ = true; };
  member_ = system_.spawn<caf::detached>(cluster_member, m);
}

worker_process::~worker_process() {
  end(120s);
}

std::optional<std::string> worker_process::expelled() const {
  const std::lock_guard lock(mutex_);
  return expelled_;
}

void worker_process::end(std::chrono::milliseconds limit) {
  if (member_)
    tell_from_outside(member_, stop{});
  tell_from_outside(root_, stop{});
  if (const std::size_t left = wait_for_actors(system_, limit))
    give_up_on_actors(left);
  ended_.within(30s);
}

} // namespace troupe
