#include "cluster/loopback.hpp"
#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(loopback_addresses)

BOOST_AUTO_TEST_CASE(only_digits_of_this_host) {
  for (const char* inside : {"127.0.0.1", "127.255.3.4", "::1"})
    BOOST_TEST(troupe::is_loopback_address(inside), inside);
  for (const char* outside : {"0.0.0.0", "10.0.0.1", "128.0.0.1", "::", "::ffff:10.0.0.1", "fe80::1", "*", "localhost",
                              "127.0.0.1.example", "", "127.1"})
    BOOST_TEST(!troupe::is_loopback_address(outside), outside);
}

BOOST_AUTO_TEST_SUITE_END()
