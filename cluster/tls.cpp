#include "cluster/tls.hpp"
#include <caf/openssl/all.hpp>

namespace troupe {

void prepare_tls(caf::actor_system_config& config, const tls_files& files) {
  config.load<caf::openssl::manager>();
#if TROUPE_CAF_OLD
  config.openssl_certificate = files.certificate;
  config.openssl_key = files.key;
  config.openssl_cafile = files.authority;
#else
  config.set("caf.openssl.certificate", files.certificate);
  config.set("caf.openssl.key", files.key);
  config.set("caf.openssl.cafile", files.authority);
#endif
}

bool speaks_tls(const caf::actor_system& system) {
  return system.has_openssl_manager();
}

caf::expected<caf::strong_actor_ptr> tls_remote_actor(caf::actor_system& system, const std::set<std::string>& types,
                                                      const std::string& host, std::uint16_t port) {
  return caf::openssl::remote_actor(system, types, host, port);
}

caf::expected<std::uint16_t> tls_publish(caf::actor_system& system, std::set<std::string> types,
                                         const caf::strong_actor_ptr& actor, std::uint16_t port,
                                         const std::string& host, bool reuse) {
  return caf::openssl::publish(system, actor, std::move(types), port, host.c_str(), reuse);
}

} // namespace troupe
