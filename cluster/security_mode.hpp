// Whom a cluster's processes talk to (cluster.md §3.12).
#pragma once
#include <cstdint>

namespace troupe {

enum class security_mode : std::uint8_t {
  loopback, // processes of this host, on addresses that no other reaches
  mutual    // those whose keys are known
};

} // namespace troupe
