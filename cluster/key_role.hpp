// What a key of the cluster is good for (cluster.md §3.12): the name that its certificate bears says it.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace troupe {

// Each may do what those before it may: ask how the cluster is; have requests computed; stop it and move its experts;
// be a part of it.
enum class key_role : std::uint8_t { observer, client, admin, node };

// Of the first three, which are no node's.
inline constexpr std::array<std::string_view, 3> role_names{"observer", "client", "admin"};

constexpr key_role role_of(std::string_view certificate_name) {
  return static_cast<key_role>(std::ranges::find(role_names, certificate_name) - role_names.begin());
}

} // namespace troupe
