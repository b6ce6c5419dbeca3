#include "cluster/orders.hpp"
#include "tests/support/process.hpp"
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

using namespace troupe;

namespace {

using certificate = std::unique_ptr<X509, decltype(&X509_free)>;

certificate read_certificate(const std::string& file) {
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> in(BIO_new_file(file.c_str(), "r"), BIO_free_all);
  return {in ? PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr) : nullptr, X509_free};
}

bool signed_by(const std::string& file, const std::string& authority) {
  const certificate c = read_certificate(file), ca = read_certificate(authority);
  return c && ca && X509_check_issued(ca.get(), c.get()) == X509_V_OK &&
         X509_verify(c.get(), X509_get0_pubkey(ca.get())) == 1;
}

mode_t rights_of(const std::string& file) {
  struct stat info {};
  BOOST_REQUIRE(::stat(file.c_str(), &info) == 0);
  return info.st_mode & 0777;
}

} // namespace

BOOST_AUTO_TEST_SUITE(certificates)

BOOST_AUTO_TEST_CASE(one_authority_signs_for_all_names) {
  const test_support::temporary_folder there;
  const std::string keys = there / "keys";
  const auto made = make_cluster_keys(keys, {"n0", "client"});
  BOOST_REQUIRE(made);
  BOOST_TEST(made->size() == 8u);
  BOOST_TEST(signed_by(keys + "/n0.pem", keys + "/ca.pem"));
  BOOST_TEST(signed_by(keys + "/client.pem", keys + "/ca.pem"));
  BOOST_TEST(rights_of(keys) == 0700u);
  for (const char* secret : {"/ca.key", "/n0.key", "/n0.curve", "/client.key"})
    BOOST_TEST(rights_of(keys + secret) == 0600u, secret);
  BOOST_REQUIRE(make_cluster_keys(keys, {"n1"})); // a node that comes later
  BOOST_TEST(signed_by(keys + "/n1.pem", keys + "/ca.pem"));
  const auto other = make_cluster_keys(there / "other", {"n0"});
  BOOST_REQUIRE(other);
  BOOST_TEST(!signed_by(keys + "/n0.pem", there / "other/ca.pem"));
}

BOOST_AUTO_TEST_CASE(curve_keys_are_read_as_they_were_made) {
  const test_support::temporary_folder there;
  BOOST_REQUIRE(make_cluster_keys(there / "keys", {"n0"}));
  const std::string file = there / "keys/n0.curve";
  const auto keys = read_curve_keys(file);
  BOOST_REQUIRE(keys);
  BOOST_TEST(test_support::read_text(file) == keys->public_key + "\n" + keys->secret_key + "\n");
  BOOST_TEST(read_curve_keys(there / "keys/n1.curve").failure().code == "no_keys");
  BOOST_TEST(read_curve_keys(there / "keys/n0.key").failure().code == "no_keys");
  std::filesystem::permissions(file, std::filesystem::perms::others_read, std::filesystem::perm_options::add);
  BOOST_TEST(read_curve_keys(file).failure().message.find("chmod 600") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_node_proves_what_it_says_and_nobody_else_does) {
  const test_support::temporary_folder there;
  const std::string keys = there / "keys", other = there / "other", ca = keys + "/ca.pem";
  BOOST_REQUIRE(make_cluster_keys(keys, {"n0", "n1", "client"}));
  BOOST_REQUIRE(make_cluster_keys(other, {"n0"}));
  const auto proof_of = [](const std::string& folder, const std::string& name) {
    const auto p = prove({folder + "/ca.pem", folder + "/" + name + ".pem", folder + "/" + name + ".key"}, "words");
    BOOST_REQUIRE(p);
    return *p;
  };
  const proof n0 = proof_of(keys, "n0");
  BOOST_TEST(bool(check_proof(ca, "n0", n0, "words")));
  const auto refused = [&](const proof& p, const std::string& words, const std::string& why) {
    const status s = check_proof(ca, "n0", p, words);
    BOOST_REQUIRE(!s);
    BOOST_TEST(s.failure().message.find(why) != std::string::npos, s.failure().message);
  };
  refused(n0, "other words", "it does not have the key of node n0");
  refused({n0.certificate, "x"}, "words", "it does not have the key of node n0");
  refused({n0.certificate, proof_of(keys, "n1").signature}, "words", "it does not have the key of node n0");
  refused(proof_of(keys, "n1"), "words", "its certificate is not that of node n0");
  refused(proof_of(keys, "client"), "words", "its certificate is none of a node: ");
  refused(proof_of(other, "n0"), "words", "its certificate is none of a node: ");
  refused({}, "words", "it shows no certificate");
  refused({"-----BEGIN", "x"}, "words", "what it shows is no certificate");
  BOOST_TEST(prove({ca, keys + "/n0.pem", keys + "/none.key"}, "words").failure().code == "no_keys");
}

BOOST_AUTO_TEST_CASE(roles_are_proven_by_keys) {
  const test_support::temporary_folder there;
  const std::string keys = there / "keys", other = there / "other", ca = keys + "/ca.pem";
  BOOST_REQUIRE(make_cluster_keys(keys, {"n0", "observer", "client", "admin"}));
  BOOST_REQUIRE(make_cluster_keys(other, {"admin"}));
  const auto proof_of = [](const std::string& folder, const std::string& name) {
    const auto p = prove({folder + "/ca.pem", folder + "/" + name + ".pem", folder + "/" + name + ".key"}, "words");
    BOOST_REQUIRE(p);
    return *p;
  };
  for (const auto& [name, role] : {std::pair("observer", key_role::observer), std::pair("client", key_role::client),
                                   std::pair("admin", key_role::admin), std::pair("n0", key_role::node)}) {
    const auto proven = proven_role(ca, proof_of(keys, name), "words");
    BOOST_REQUIRE_MESSAGE(proven, name);
    BOOST_CHECK(*proven == role);
  }
  BOOST_TEST(bool(check_role(ca, key_role::admin, proof_of(keys, "admin"), "words")));
  BOOST_TEST(bool(check_role(ca, key_role::admin, proof_of(keys, "n0"), "words")));
  BOOST_TEST(bool(check_role(ca, key_role::client, proof_of(keys, "admin"), "words")));
  BOOST_TEST(bool(check_role("", key_role::admin, {}, "words"))); // nobody has keys
  const auto refused = [&](const proof& p, const std::string& words, const std::string& why) {
    const status s = check_role(ca, key_role::admin, p, words);
    BOOST_REQUIRE(!s);
    BOOST_TEST(s.failure().code == "not_allowed");
    BOOST_TEST(s.failure().message.find(why) != std::string::npos, s.failure().message);
  };
  refused(proof_of(keys, "client"), "words",
          "the key of role client is not good for this; use that of role admin (troupe keygen makes admin.key)");
  refused(proof_of(keys, "observer"), "words", "the key of role observer is not good for this");
  refused(proof_of(keys, "admin"), "other words",
          "it does not have the key of its certificate, which is that of admin");
  refused({proof_of(keys, "admin").certificate, proof_of(keys, "client").signature}, "words",
          "it does not have the key of its certificate");
  refused(proof_of(other, "admin"), "words", "its certificate is none of the cluster: ");
  refused({}, "words", "it shows no certificate");
}

BOOST_AUTO_TEST_CASE(keys_that_are_there_stay_as_they_are) {
  const test_support::temporary_folder there;
  const std::string keys = there / "keys";
  const auto text = [&](const std::string& name) {
    std::ifstream in(keys + name);
    return std::string((std::istreambuf_iterator<char>(in)), {});
  };
  BOOST_REQUIRE(make_cluster_keys(keys, {"n0"}));
  const std::string before = text("/n0.key"), authority = text("/ca.key");
  const auto again = make_cluster_keys(keys, {"n0"});
  BOOST_REQUIRE(!again);
  BOOST_TEST(again.failure().code == "keys_exist");
  BOOST_TEST(text("/n0.key") == before);
  BOOST_TEST(text("/ca.key") == authority);
  std::filesystem::remove(keys + "/ca.pem"); // an authority of which a part is gone signs nothing
  BOOST_TEST(make_cluster_keys(keys, {"n2"}).failure().code == "no_keys");
  BOOST_TEST(make_cluster_keys("/proc/no/such/folder", {"n0"}).failure().code == "write_failed");
}

BOOST_AUTO_TEST_SUITE_END()
