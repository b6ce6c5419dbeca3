#include "cluster/tls.hpp"
#include "cluster/inbound.hpp"
#include <atomic>
#include <caf/openssl/all.hpp>
#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

// CAF's sessions ask SSL_get_error what a call's result means, which looks at the errors that this thread has queued,
// and never empty that queue. So one connection that ends badly (a peer that closes without a farewell, a wrong
// certificate) has the next call on every other connection of the process fail, whatever it returns. The calls that CAF
// makes go through these instead, which begin with an empty queue, as OpenSSL asks of its callers.
namespace {

std::atomic<troupe::key_role> least_role{troupe::key_role::observer};

template <class Function> Function* of_openssl(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

troupe::key_role role_of_peer(SSL* session) {
  X509* const peer = SSL_get0_peer_certificate(session);
  char name[256] = {};
  if (peer == nullptr || X509_NAME_get_text_by_NID(X509_get_subject_name(peer), NID_commonName, name, sizeof name) < 0)
    return troupe::key_role::observer;
  return troupe::role_of(name);
}

// Whether it has failed, and not only waits; and somebody has said something before.
bool is_refused(SSL* session, int result) {
  const int why = SSL_get_error(session, result);
  return result <= 0 && why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE &&
         BIO_number_read(SSL_get_rbio(session)) > 0;
}

} // namespace

extern "C" {

int SSL_read(SSL* session, void* bytes, int size) {
  static auto* const next = of_openssl<int(SSL*, void*, int)>("SSL_read");
  ERR_clear_error();
  const int got = next(session, bytes, size);
  return got <= 0 ? got : static_cast<int>(troupe::look_at_inbound(SSL_get_fd(session), bytes, got));
}

int SSL_write(SSL* session, const void* bytes, int size) {
  static auto* const next = of_openssl<int(SSL*, const void*, int)>("SSL_write");
  ERR_clear_error();
  return next(session, bytes, size);
}

int SSL_accept(SSL* session) {
  static auto* const next = of_openssl<int(SSL*)>("SSL_accept");
  ERR_clear_error();
  if (least_role == troupe::key_role::node)
    SSL_set_purpose(session, X509_PURPOSE_SSL_SERVER); // others' certificates are not for servers
  const int result = next(session);
  if (is_refused(session, result)) {
    troupe::refuse_inbound(SSL_get_fd(session), "it has no key of the cluster that is good for this process");
    ERR_clear_error();
  } else if (result == 1) {
    const troupe::key_role role = role_of_peer(session);
    if (role < least_role) {
      troupe::refuse_inbound(SSL_get_fd(session), "its key is not good for this process");
      return -1;
    }
    troupe::note_inbound_role(SSL_get_fd(session), role);
  }
  return result;
}

int SSL_connect(SSL* session) {
  static auto* const next = of_openssl<int(SSL*)>("SSL_connect");
  ERR_clear_error();
  return next(session);
}

} // extern "C"

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

void admit_only(key_role least) {
  least_role = least;
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
