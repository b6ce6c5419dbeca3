#include "cluster/actor_system.hpp"
#include "cluster/gateway_messages.hpp"
#include <string>
#include <vector>

namespace troupe {
namespace {

template <class... Blocks> void add_messages([[maybe_unused]] caf::actor_system_config& cfg) {
#if TROUPE_CAF_OLD
  (cfg.add_message_types<Blocks>(), ...);
#endif
}

void set_pool(caf::actor_system_config& cfg, std::size_t threads) {
#if TROUPE_CAF_OLD
  cfg.set("scheduler.policy", caf::atom("sharing"));
  cfg.set("scheduler.max-threads", threads);
#else
  cfg.set("caf.scheduler.policy", "sharing");
  cfg.set("caf.scheduler.max-threads", threads);
#endif
}

} // namespace

void prepare_process() {
#if !TROUPE_CAF_OLD
  caf::init_global_meta_objects<caf::id_block::troupe, caf::id_block::troupe_experts, caf::id_block::troupe_control,
                                caf::id_block::troupe_gateway>();
  caf::io::middleman::init_global_meta_objects();
  caf::core::init_global_meta_objects();
#endif
}

void add_engine_messages(caf::actor_system_config& cfg) {
  add_messages<caf::id_block::troupe>(cfg);
}

void prepare_local(caf::actor_system_config& cfg, std::size_t threads) {
  add_engine_messages(cfg);
  set_pool(cfg, threads);
}

void prepare(caf::actor_system_config& cfg, const std::string& build, std::size_t threads,
             std::chrono::milliseconds beat, std::chrono::milliseconds dead) {
  cfg.load<caf::io::middleman>(); // first: CAF 1.x knows the middleman options only after this
  add_messages<caf::id_block::troupe, caf::id_block::troupe_experts, caf::id_block::troupe_control,
               caf::id_block::troupe_gateway>(cfg);
  set_pool(cfg, threads);
#if TROUPE_CAF_OLD
  cfg.set("middleman.app-identifiers", std::vector<std::string>{build});
  cfg.set("middleman.heartbeat-interval", caf::timespan{beat});
  cfg.set("middleman.connection-timeout", caf::timespan{dead});
#else
  cfg.set("caf.middleman.app-identifiers", std::vector<std::string>{build});
  cfg.set("caf.middleman.heartbeat-interval", caf::timespan{beat});
  cfg.set("caf.middleman.connection-timeout", caf::timespan{dead});
#endif
}

} // namespace troupe
