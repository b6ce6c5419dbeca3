// The ledger of one gateway's requests on disk (cluster.md §3.5): appends what the sessions tell, makes it durable in
// its time, keeps the file short. Detached: files block. Nobody waits for it: what a dead process had not written yet
// is computed again, to the same bytes.
#pragma once
#include "actors/request_ledger.hpp"
#include "cluster/control_messages.hpp"
#include "runtime/base/result.hpp"
#include <memory>

namespace troupe {

struct ledger_note { // LOCAL, one way
  ledger_record record;
};
// LOCAL, one way, to the keeper: this gateway's sessions write the ledger, and it hears once that the ledger failed.
struct ledger_user {
  caf::actor gateway;
};
struct ledger_failed { // LOCAL, one way, to that gateway: nothing more is written
  error why;
};

using ledger_keeper_actor = caf::typed_actor<answers<ledger_note>, answers<ledger_user>, answers<tick>, answers<stop>>;

struct ledger_keeper_setup {
  std::shared_ptr<request_ledger> ledger;
  // The file is written anew without what is closed when it is longer than this and than twice what was left then.
  std::uint64_t compact_bytes = std::uint64_t{64} << 20;
};

struct ledger_keeper_state {
  ledger_keeper_state() = default;
  static inline const char* name = "ledger_keeper";
  ledger_keeper_setup setup;
  std::uint64_t compact_at = 0; // bytes
  caf::actor gateway;
  bool ticking = false, failed = false;
};

ledger_keeper_actor::behavior_type ledger_keeper(ledger_keeper_actor::stateful_pointer<ledger_keeper_state> self,
                                                 const ledger_keeper_setup& setup);

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::ledger_note)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::ledger_user)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::ledger_failed)
