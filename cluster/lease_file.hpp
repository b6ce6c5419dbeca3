// What a node agent remembers of its votes, on disk (cluster.md §3.9).
#pragma once
#include "cluster/lease.hpp"
#include "runtime/base/result.hpp"
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

std::string lease_bytes(const voter_state& state);
std::optional<voter_state> lease_from_bytes(std::string_view bytes);

// The whole file or the old one, on disk when it returns; fails with "write_failed".
status write_lease(const std::string& path, const voter_state& state);
// Nothing if there is no file: this node never voted. Fails ("lease_damaged") rather than vote without a memory.
result<std::optional<voter_state>> read_lease(const std::string& path);

} // namespace troupe
