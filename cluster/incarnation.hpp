// Which start of a process this is: never the same for two of them (cluster.md §3.4).
#pragma once
#include <cstdint>

namespace troupe {

std::uint64_t mint_incarnation();

} // namespace troupe
