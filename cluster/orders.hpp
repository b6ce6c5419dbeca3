// Orders that change a cluster. With keys (security.mode mutual) they are signed, and only those of administrators
// count: CAF does not say who sends a message.
#pragma once
#include "cluster/certificates.hpp"
#include "cluster/control_messages.hpp"
#include <optional>

namespace troupe {

// What is signed.
std::string words_of(const stop_cluster& order);
std::string words_of(const migrate& order);

// Whether one who may do that signed the words. authority: file of the cluster's; empty: nobody has keys, all may.
// Code: not_allowed.
status check_role(const std::string& authority, key_role least, const proof& p, std::string_view words);

// Without keys nothing is signed. Code: no_keys.
template <class Order> status sign(Order& order, const std::optional<tls_files>& keys) {
  if (!keys)
    return nothing{};
  auto p = prove(*keys, words_of(order));
  if (!p)
    return p.failure();
  order.certificate = std::move(p->certificate);
  order.signature = std::move(p->signature);
  return nothing{};
}

// Likewise, for an order that has come.
template <class Order> status check_order(const std::string& authority, const Order& order) {
  return check_role(authority, key_role::admin, {order.certificate, order.signature}, words_of(order));
}

} // namespace troupe
