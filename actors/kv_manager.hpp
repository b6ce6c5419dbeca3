// Owner of an engine's KV blocks, state slots and prefix cache. Pooled; every answer is given at once.
#pragma once
#include "cluster/messages.hpp"
#include "runtime/kv/kv_cache.hpp"
#include <optional>

namespace troupe {

struct kv_manager_state {
  kv_manager_state() = default;
  static inline const char* name = "kv_manager";
  std::optional<kv_cache> cache; // always there
};

kv_manager_actor::behavior_type kv_manager(kv_manager_actor::stateful_pointer<kv_manager_state> self,
                                           const kv_cache_settings& settings);

} // namespace troupe
