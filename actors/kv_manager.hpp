// Owner of an engine's KV blocks and state slots. Pooled; every answer is given at once.
#pragma once
#include "cluster/messages.hpp"
#include "runtime/kv/kv_book.hpp"

namespace troupe {

struct kv_manager_state {
  kv_manager_state() = default;
  static inline const char* name = "kv_manager";
  kv_book book{1, 1};
};

// Sizes count the dummies 0.
kv_manager_actor::behavior_type kv_manager(kv_manager_actor::stateful_pointer<kv_manager_state> self,
                                           std::int32_t blocks, std::int32_t slots);

} // namespace troupe
