#include "cluster/orders.hpp"

namespace troupe {

std::string words_of(const stop_cluster& order) {
  return std::string("troupe stop\n") + (order.now ? "now" : "drained");
}

std::string words_of(const migrate& order) {
  std::string words = "troupe migrate\n";
  for (const std::int64_t n :
       {std::int64_t{order.layer}, std::int64_t{order.expert}, std::int64_t{order.rank}, std::int64_t{order.slot}})
    words += std::to_string(n) + " ";
  return words;
}

status check_role(const std::string& authority, key_role least, const proof& p, std::string_view words) {
  if (authority.empty())
    return nothing{};
  const result<key_role> role = proven_role(authority, p, words);
  if (!role)
    return error{"not_allowed", role.failure().message};
  if (*role >= least)
    return nothing{};
  const auto name = [](key_role r) { return std::string(role_names[static_cast<std::size_t>(r)]); };
  return error{"not_allowed", "the key of role " + name(*role) + " is not good for this; use that of role " +
                                  name(least) + " (troupe keygen makes " + name(least) + ".key)"};
}

} // namespace troupe
