#include "actors/kv_manager.hpp"

namespace troupe {

kv_manager_actor::behavior_type kv_manager(kv_manager_actor::stateful_pointer<kv_manager_state> self,
                                           const kv_cache_settings& settings) {
  state_of(self).cache.emplace(settings);
  return {
      [=](const kv_turn& t) {
        state_of(self).cache->turn(*t.want, *t.got);
        return kv_turn_done{t.number};
      },
      [=](const kv_query& q) {
        const kv_cache& c = *state_of(self).cache;
        return kv_report{c.blocks().size(), c.slots().size(), c.sequences(), !q.audit || c.conserved(), c.statistics()};
      },
      [=](const stop&) { self->quit(); },
  };
}

} // namespace troupe
