#include "cluster/name_pattern.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

namespace {

std::string names_of(const std::string& pattern) {
  const auto names = expand_names(pattern);
  if (!names)
    return names.failure().code + ": " + names.failure().message;
  std::string text;
  for (const std::string& n : *names)
    text += (text.empty() ? "" : " ") + n;
  return text;
}

} // namespace

BOOST_AUTO_TEST_SUITE(name_pattern)

BOOST_AUTO_TEST_CASE(ranges_and_lists_are_written_out_with_their_zeros) {
  BOOST_TEST(names_of("n0") == "n0");
  BOOST_TEST(names_of("gpu[008-011]") == "gpu008 gpu009 gpu010 gpu011");
  BOOST_TEST(names_of("gpu[8-11].cluster") == "gpu8.cluster gpu9.cluster gpu10.cluster gpu11.cluster");
  BOOST_TEST(names_of("r[1-2]n[0,04-05]") == "r1n0 r1n04 r1n05 r2n0 r2n04 r2n05");
  BOOST_TEST(names_of("a[7]") == "a7");
  BOOST_TEST(expand_names("gpu[001-017]").value().size() == 17);
  BOOST_TEST(expand_names("x[1-8192]").value().size() == 8192);
}

BOOST_AUTO_TEST_CASE(what_is_no_pattern_is_named) {
  for (const char* bad :
       {"a[", "a[1", "a[]", "a[1-]", "a[3-2]", "a[1,,2]", "a[x]", "a[1-2-3]", "a[1-8193]", "a[-1]", "a[1234567890]"})
    BOOST_TEST(names_of(bad) == "pattern: \"" + std::string(bad) +
                                    "\": between [ and ] there is no list of numbers or ascending ranges; write "
                                    "gpu[001-017], or gpu[1,3-5]");
  BOOST_TEST(names_of("a]") == "pattern: \"a]\": a ] without its [; write gpu[001-017], or gpu[1,3-5]");
  BOOST_TEST(names_of("a[1-100]b[1-100]") ==
             "pattern: \"a[1-100]b[1-100]\": it stands for more than 8192 names; write gpu[001-017], or gpu[1,3-5]");
}

BOOST_AUTO_TEST_CASE(a_nodes_name_in_a_path) {
  BOOST_TEST(with_node("/etc/troupe/{node}.pem", "gpu001") == "/etc/troupe/gpu001.pem");
  BOOST_TEST(with_node("/{node}/{node}", "a") == "/a/a");
  BOOST_TEST(with_node("/etc/key", "a") == "/etc/key");
}

BOOST_AUTO_TEST_CASE(addresses_of_interfaces_are_looked_up_on_this_host) {
  BOOST_TEST(resolved_address("10.1.2.3").value() == "10.1.2.3");
  BOOST_TEST(resolved_address("{ip:lo}").value() == "127.0.0.1");
  BOOST_TEST(resolved_address("{ip:nosuch0}").failure().code == "no_interface");
  BOOST_TEST(resolved_address("{ip:nosuch0}").failure().message ==
             "this host has no interface nosuch0 with an address");
  BOOST_TEST(resolved_address("{host}").failure().code == "pattern");
  BOOST_TEST(interface_of("{ip:ib0}") == "ib0");
  BOOST_TEST(interface_of("ib0") == "");
}

BOOST_AUTO_TEST_CASE(what_only_this_machine_reaches) {
  for (const char* inside : {"127.0.0.1", "127.255.3.9", "::1", "localhost"})
    BOOST_TEST(is_loopback(inside), inside);
  for (const char* outside : {"0.0.0.0", "128.0.0.1", "12.7.0.0", "::", "fe80::1", "::ffff", "gpu001", "", "127.0.0"})
    BOOST_TEST(!is_loopback(outside), outside);
  BOOST_TEST(is_this_machine("127.0.0.1"));
  BOOST_TEST(!is_this_machine("203.0.113.1")); // an address of no machine (RFC 5737)
}

BOOST_AUTO_TEST_SUITE_END()
