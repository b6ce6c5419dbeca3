#include "devices/device.hpp"
#include "runtime/base/result.hpp"
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <vector>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(reference_device)

BOOST_AUTO_TEST_CASE(names_and_numerics) {
  const auto d = make_device("reference", {});
  BOOST_TEST(d->name() == "reference");
  BOOST_TEST(d->numerics_id() == "cpu-1");
  BOOST_CHECK_THROW((void)make_device("abacus", {}), config_error);
}

BOOST_AUTO_TEST_CASE(buffers_are_zeroed_aligned_and_refused_when_too_large) {
  const auto d = make_device("reference", {});
  for (const std::size_t n :
       {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{4096}, std::size_t{3} << 20}) {
    const buffer b = d->allocate(n, "test");
    BOOST_TEST(b.bytes() == n);
    BOOST_TEST(reinterpret_cast<std::uintptr_t>(b.as<char>().raw()) % 64 == 0u);
    for (std::size_t i = 0; i < n; i += 61)
      BOOST_REQUIRE(b.as<char>().raw()[i] == 0);
  }
  const device_memory m = d->memory();
  BOOST_TEST(m.available > 0u);
  BOOST_TEST(m.total >= m.available);
  for (const std::size_t n : {m.total + (std::size_t{1} << 40), ~std::size_t{0}})
    try {
      (void)d->allocate(n, "the KV pool");
      BOOST_FAIL("allocated more than there is");
    } catch (const device_error& e) {
      const std::string text = e.what();
      BOOST_TEST(text.find("the KV pool") != text.npos);
      BOOST_TEST(text.find("needs " + std::to_string(n) + " bytes") != text.npos);
      BOOST_TEST(text.find("available") != text.npos);
    }
}

BOOST_AUTO_TEST_CASE(stream_copies_and_events) {
  const auto d = make_device("reference", {});
  const auto s = d->make_stream();
  const buffer b = d->allocate(64, "test");
  const char text[] = "0123456789";
  s->to_device(b.as<std::byte>(), text, 10);
  s->copy(b.as<std::byte>() + 2, b.as<std::byte>(), 10); // overlapping
  s->zero(b.as<std::byte>(), 1);
  char back[13] = {};
  s->to_host(back, b.as<std::byte>(), 12);
  BOOST_TEST(std::string(back + 1) == "10123456789");
  BOOST_TEST(back[0] == 0);
  const auto e = s->record();
  BOOST_TEST(e->done());
  e->wait();
  s->wait_for(*e);
  s->synchronise();
  const auto later = s->record();
  BOOST_TEST(later->ms_since(*e) >= 0);
  BOOST_TEST(later->ms_since(*later) == 0);
  s->begin_capture();
  BOOST_TEST(!s->end_capture());
}

BOOST_AUTO_TEST_SUITE_END()
