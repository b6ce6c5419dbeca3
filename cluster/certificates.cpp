#include "cluster/certificates.hpp"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe {

namespace {

template <auto free_it> struct freed {
  template <class T> void operator()(T* p) const { free_it(p); }
};
using key_ptr = std::unique_ptr<EVP_PKEY, freed<EVP_PKEY_free>>;
using certificate_ptr = std::unique_ptr<X509, freed<X509_free>>;
using extension_ptr = std::unique_ptr<X509_EXTENSION, freed<X509_EXTENSION_free>>;
using bio_ptr = std::unique_ptr<BIO, freed<BIO_free_all>>;
using signing_ptr = std::unique_ptr<EVP_MD_CTX, freed<EVP_MD_CTX_free>>;
using store_ptr = std::unique_ptr<X509_STORE, freed<X509_STORE_free>>;
using check_ptr = std::unique_ptr<X509_STORE_CTX, freed<X509_STORE_CTX_free>>;

constexpr long seconds_per_day = 86400;
constexpr long valid_days = 3650, backdated_days = 1; // clocks of hosts differ
constexpr int certificate_version = 2;                // which X.509 calls 3

struct authority {
  key_ptr key;
  certificate_ptr certificate;
};

error failed(const std::string& what) {
  return {"no_keys", what + " failed in OpenSSL"};
}

bool add_extension(X509& to, X509& issuer, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, &issuer, &to, nullptr, nullptr, 0);
  const extension_ptr e(X509V3_EXT_conf_nid(nullptr, &context, kind, value));
  return e && X509_add_ext(&to, e.get(), -1) == 1;
}

// A certificate of the key, signed by the issuer; without one by the key itself, as an authority.
certificate_ptr make_certificate(const std::string& name, EVP_PKEY& key, const authority* issuer) {
  certificate_ptr c(X509_new());
  unsigned char serial[8];
  if (!c || RAND_bytes(serial, sizeof serial) != 1)
    return nullptr;
  std::uint64_t number = 0;
  std::memcpy(&number, serial, sizeof serial);
  X509_NAME* subject = X509_get_subject_name(c.get());
  X509& signer = issuer != nullptr ? *issuer->certificate : *c;
  const bool good =
      X509_set_version(c.get(), certificate_version) == 1 &&
      ASN1_INTEGER_set_uint64(X509_get_serialNumber(c.get()), number) == 1 &&
      X509_gmtime_adj(X509_getm_notBefore(c.get()), -backdated_days * seconds_per_day) != nullptr &&
      X509_gmtime_adj(X509_getm_notAfter(c.get()), valid_days * seconds_per_day) != nullptr &&
      X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(name.c_str()), -1,
                                 -1, 0) == 1 &&
      X509_set_issuer_name(c.get(), X509_get_subject_name(&signer)) == 1 && X509_set_pubkey(c.get(), &key) == 1 &&
      add_extension(*c, signer, NID_basic_constraints, issuer != nullptr ? "critical,CA:FALSE" : "critical,CA:TRUE") &&
      add_extension(*c, signer, NID_key_usage,
                    issuer != nullptr ? "critical,digitalSignature" : "critical,keyCertSign") &&
      (issuer == nullptr || add_extension(*c, signer, NID_ext_key_usage,
                                          role_of(name) == key_role::node ? "serverAuth,clientAuth" : "clientAuth")) &&
      X509_sign(c.get(), issuer != nullptr ? issuer->key.get() : &key, EVP_sha256()) > 0;
  return good ? std::move(c) : nullptr;
}

key_ptr make_key() {
  return key_ptr(EVP_EC_gen("P-256"));
}

std::string text_of(BIO& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(&bio, &data);
  return size > 0 ? std::string(data, static_cast<std::size_t>(size)) : std::string();
}
std::string pem_of(EVP_PKEY& key) {
  const bio_ptr out(BIO_new(BIO_s_mem()));
  return PEM_write_bio_PrivateKey(out.get(), &key, nullptr, nullptr, 0, nullptr, nullptr) == 1 ? text_of(*out) : "";
}
std::string pem_of(X509& certificate) {
  const bio_ptr out(BIO_new(BIO_s_mem()));
  return PEM_write_bio_X509(out.get(), &certificate) == 1 ? text_of(*out) : "";
}

std::string read(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A file that was not there before, with these rights from the start.
status write_new(const std::string& file, const std::string& text, mode_t rights) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, rights);
  if (fd < 0)
    return error{errno == EEXIST ? "keys_exist" : "write_failed", file + ": " + std::strerror(errno)};
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (::close(fd) != 0 || !written) {
    ::unlink(file.c_str());
    return error{"write_failed", file + ": " + std::strerror(errno)};
  }
  return nothing{};
}

class key_folder {
public:
  explicit key_folder(std::string folder) : folder_(std::move(folder)) {}
  const std::vector<std::string>& written() const { return written_; }

  status open() {
    std::error_code why;
    if (std::filesystem::create_directories(folder_, why))
      ::chmod(folder_.c_str(), 0700);
    if (why)
      return error{"write_failed", folder_ + ": " + why.message()};
    const std::string key = read(folder_ + "/ca.key"), certificate = read(folder_ + "/ca.pem");
    return key.empty() && certificate.empty() ? make_authority() : take_authority(key, certificate);
  }

  status add(const std::string& name) {
    const key_ptr key = make_key();
    const certificate_ptr c = key ? make_certificate(name, *key, &authority_) : nullptr;
    if (!c)
      return failed("making the certificate of " + name);
    const auto curve = make_curve_keys();
    if (!curve)
      return curve.failure();
    for (const auto& [ending, text, rights] :
         {std::tuple(".key", pem_of(*key), 0600), std::tuple(".pem", pem_of(*c), 0644),
          std::tuple(".curve", curve->public_key + "\n" + curve->secret_key + "\n", 0600)})
      if (const status s = write("/" + name + ending, text, static_cast<mode_t>(rights)); !s)
        return s;
    return nothing{};
  }

private:
  status write(const std::string& name, const std::string& text, mode_t rights) {
    if (text.empty())
      return failed("writing " + name);
    const status s = write_new(folder_ + name, text, rights);
    if (s)
      written_.push_back(folder_ + name);
    return s;
  }

  status make_authority() {
    authority_.key = make_key();
    if (authority_.key)
      authority_.certificate = make_certificate("troupe authority", *authority_.key, nullptr);
    if (!authority_.certificate)
      return failed("making the authority");
    if (const status s = write("/ca.key", pem_of(*authority_.key), 0600); !s)
      return s;
    return write("/ca.pem", pem_of(*authority_.certificate), 0644);
  }

  status take_authority(const std::string& key, const std::string& certificate) {
    const bio_ptr k(BIO_new_mem_buf(key.data(), static_cast<int>(key.size()))),
        c(BIO_new_mem_buf(certificate.data(), static_cast<int>(certificate.size())));
    authority_.key.reset(PEM_read_bio_PrivateKey(k.get(), nullptr, nullptr, nullptr));
    authority_.certificate.reset(PEM_read_bio_X509(c.get(), nullptr, nullptr, nullptr));
    if (!authority_.key || !authority_.certificate ||
        X509_check_private_key(authority_.certificate.get(), authority_.key.get()) != 1)
      return error{"no_keys", folder_ + "/ca.key and ca.pem are not the two parts of one authority"};
    return nothing{};
  }

  std::string folder_;
  authority authority_;
  std::vector<std::string> written_;
};

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

bool signature_fits(X509& certificate, const std::string& signature, std::string_view words) {
  const signing_ptr s(EVP_MD_CTX_new());
  return s && EVP_DigestVerifyInit(s.get(), nullptr, EVP_sha256(), nullptr, X509_get0_pubkey(&certificate)) == 1 &&
         EVP_DigestVerify(s.get(), bytes_of(signature), signature.size(), bytes_of(words), words.size()) == 1;
}

// Empty, or why the authority does not vouch for it. purpose: of OpenSSL; what serves as a server is a node's.
std::string not_vouched_for(X509& certificate, const std::string& authority, int purpose) {
  const store_ptr store(X509_STORE_new());
  const check_ptr check(X509_STORE_CTX_new());
  if (!store || !check || X509_STORE_load_file(store.get(), authority.c_str()) != 1 ||
      X509_STORE_CTX_init(check.get(), store.get(), &certificate, nullptr) != 1 ||
      X509_STORE_CTX_set_purpose(check.get(), purpose) != 1)
    return authority + " cannot be used";
  return X509_verify_cert(check.get()) == 1 ? "" : X509_verify_cert_error_string(X509_STORE_CTX_get_error(check.get()));
}

std::string name_on(const X509& certificate) {
  char text[256] = {};
  const int size = X509_NAME_get_text_by_NID(X509_get_subject_name(&certificate), NID_commonName, text, sizeof text);
  return {text, static_cast<std::size_t>(std::max(size, 0))};
}

error not_proven(const std::string& why) {
  return {"not_proven", why};
}

// The certificate that is shown; null: there is none, and `why` says so.
certificate_ptr shown_in(const proof& p, std::string& why) {
  constexpr std::size_t most = 1 << 16; // bytes of PEM
  if (p.certificate.empty() || p.certificate.size() > most) {
    why = "it shows no certificate";
    return nullptr;
  }
  const bio_ptr in(BIO_new_mem_buf(p.certificate.data(), static_cast<int>(p.certificate.size())));
  certificate_ptr c(in ? PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr) : nullptr);
  if (!c)
    why = "what it shows is no certificate";
  return c;
}

} // namespace

result<std::vector<std::string>> make_cluster_keys(const std::string& folder, const std::vector<std::string>& names) {
  key_folder keys(folder);
  if (const status s = keys.open(); !s)
    return s.failure();
  for (const std::string& name : names)
    if (const status s = keys.add(name); !s)
      return s.failure();
  return keys.written();
}

result<curve_keys> read_curve_keys(const std::string& file) {
  constexpr std::size_t z85_key = 40;
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0)
    return error{"no_keys", file + ": " + std::strerror(errno)};
  if ((info.st_mode & 077) != 0)
    return error{"no_keys", file + ": others than its owner may use the secret key; chmod 600"};
  std::ifstream in(file);
  curve_keys keys;
  if (!(in >> keys.public_key >> keys.secret_key) || keys.public_key.size() != z85_key ||
      keys.secret_key.size() != z85_key)
    return error{"no_keys", file + ": holds no public and secret key of 40 characters each"};
  return keys;
}

result<proof> prove(const tls_files& keys, std::string_view words) {
  proof p{read(keys.certificate), {}};
  const bio_ptr in(BIO_new_file(keys.key.c_str(), "r"));
  const key_ptr key(in ? PEM_read_bio_PrivateKey(in.get(), nullptr, nullptr, nullptr) : nullptr);
  const signing_ptr s(EVP_MD_CTX_new());
  std::size_t size = 0;
  bool good = key && s && EVP_DigestSignInit(s.get(), nullptr, EVP_sha256(), nullptr, key.get()) == 1 &&
              EVP_DigestSign(s.get(), nullptr, &size, bytes_of(words), words.size()) == 1;
  p.signature.resize(size);
  good = good && EVP_DigestSign(s.get(), reinterpret_cast<unsigned char*>(p.signature.data()), &size, bytes_of(words),
                                words.size()) == 1;
  p.signature.resize(size);
  return good ? result<proof>(p) : error{"no_keys", keys.key + ": nothing can be signed with it"};
}

status check_proof(const std::string& authority, const std::string& node, const proof& p, std::string_view words) {
  std::string why;
  const certificate_ptr c = shown_in(p, why);
  if (!c)
    return not_proven(why);
  if (why = not_vouched_for(*c, authority, X509_PURPOSE_SSL_SERVER); !why.empty())
    return not_proven("its certificate is none of a node: " + why);
  if (name_on(*c) != node)
    return not_proven("its certificate is not that of node " + node);
  if (!signature_fits(*c, p.signature, words))
    return not_proven("it does not have the key of node " + node);
  return nothing{};
}

result<key_role> proven_role(const std::string& authority, const proof& p, std::string_view words) {
  std::string why;
  const certificate_ptr c = shown_in(p, why);
  if (!c)
    return not_proven(why);
  if (why = not_vouched_for(*c, authority, X509_PURPOSE_SSL_CLIENT); !why.empty())
    return not_proven("its certificate is none of the cluster: " + why);
  if (!signature_fits(*c, p.signature, words))
    return not_proven("it does not have the key of its certificate, which is that of " + name_on(*c));
  const key_role role = role_of(name_on(*c));
  // A name that is no role's is a node's only if the authority says so: those certificates are good for servers.
  if (role == key_role::node)
    if (why = not_vouched_for(*c, authority, X509_PURPOSE_SSL_SERVER); !why.empty())
      return not_proven("its certificate, " + name_on(*c) + ", is that of no role, and none of a node: " + why);
  return role;
}

} // namespace troupe
