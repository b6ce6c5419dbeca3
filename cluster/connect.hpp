// Publishing an actor and reaching a published one (foundations.md §3.5). Both block: never from a pooled actor.
#pragma once
#include "cluster/caf.hpp"
#include "cluster/tls.hpp"
#include "runtime/base/result.hpp"
#include <chrono>
#include <cstdint>
#include <string>

namespace troupe {

struct endpoint {
  std::string host; // an address
  std::uint16_t port = 0;
  friend bool operator==(const endpoint&, const endpoint&) = default;
};
std::string to_string(const endpoint& e);
// "127.0.0.1:47000" or "[::1]:47000".
result<endpoint> parse_endpoint(const std::string& text);

// Whether something accepts connections there. CAF's own connect to a silent address blocks for two minutes, and with
// it every other connect of the process. Code: unreachable.
status probe(const endpoint& to, std::chrono::milliseconds limit);

// What the peer publishes there, over TLS if the system has certificates (tls.hpp). Codes: unreachable, or refused: it
// is no part of this cluster, of another build, or one of the two does not know the other's certificate.
template <class Handle>
result<Handle> connect(caf::actor_system& system, const endpoint& to,
                       std::chrono::milliseconds limit = std::chrono::milliseconds(500)) {
  if (const status s = probe(to, limit); !s)
    return s.failure();
  const auto refused = [&](const caf::error& why) {
    return error{"refused", to_string(to) + " refused the connection: " + text(system, why)};
  };
  if (speaks_tls(system)) {
    const auto found =
        tls_remote_actor(system, system.message_types(caf::detail::type_list<Handle>{}), to.host, to.port);
    return found ? result<Handle>(caf::actor_cast<Handle>(*found)) : refused(found.error());
  }
  const auto found = system.middleman().remote_actor<Handle>(to.host, to.port);
  return found ? result<Handle>(*found) : refused(found.error());
}

// The port: the one asked for, or a free one if it was 0. Code: port_in_use.
template <class Handle>
result<std::uint16_t> publish(caf::actor_system& system, const Handle& actor, const endpoint& at) {
  constexpr bool reuse = true; // connections of a former process there may still be closing
  const auto port = speaks_tls(system)
                        ? tls_publish(system, system.message_types(actor),
                                      caf::actor_cast<caf::strong_actor_ptr>(actor), at.port, at.host, reuse)
                        : system.middleman().publish(actor, at.port, at.host.c_str(), reuse);
  if (!port)
    return error{"port_in_use", "cannot listen on " + to_string(at) + ": " + text(system, port.error())};
  return *port;
}

// Nobody is led to it there any more. Does not wait for that.
template <class Handle> void unpublish(caf::actor_system& system, const Handle& actor, std::uint16_t port) {
  tell_from_outside(system.middleman().actor_handle(), caf::unpublish_atom_v, actor.address(), port);
}

} // namespace troupe
