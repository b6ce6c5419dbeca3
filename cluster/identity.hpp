// Who says something, under which leader and membership, and about which request (cluster.md §3.3, §3.4). Plain values:
// the control plane's state machines need no more of the messages.
#pragma once
#include "runtime/base/ids.hpp"
#include <cstdint>

namespace troupe {

using node_id = strong_id<struct node_tag, std::uint32_t>;

// Minted by the node agent for every process that it starts, never used again; 0 = none.
using incarnation_t = std::uint64_t;

// Who says it, under which leader and membership, and as which message: receivers repeat their answer to a known
// msg_id.
struct stamp {
  std::uint64_t term = 0, mepoch = 0, msg_id = 0;
  std::uint32_t from = 0;
};

enum class ack_code : std::uint16_t {
  ok,
  stale_term,
  stale_epoch,
  unknown,
  busy,
  no_space,
  digest_mismatch,
  wrong_state,
  version_mismatch,
  too_large,
  overloaded,
  injected_fault,
  lease_expired
};

// A request, whatever gateway it came through: the gateway's incarnation and a count.
struct req_t {
  std::uint64_t origin = 0, number = 0;
  friend auto operator<=>(const req_t&, const req_t&) = default;
};

} // namespace troupe
