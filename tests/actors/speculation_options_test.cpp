#include "actors/speculation_options.hpp"

#include "tests/support/process.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

namespace {

void refused(const engine_options& o, int block, const std::string& key, const std::string& why,
             bool expert_group = false) {
  BOOST_CHECK_EXCEPTION(checked_speculation(o, block, expert_group), config_error, [&](const config_error& e) {
    BOOST_TEST(e.key == key);
    BOOST_TEST(std::string(e.what()).find(why) != std::string::npos, e.what());
    return true;
  });
}

engine_options with_nextn(int n) {
  engine_options o;
  o.nextn = n;
  return o;
}

} // namespace

BOOST_AUTO_TEST_SUITE(speculation_settings)

BOOST_AUTO_TEST_CASE(blocks_longer_than_the_trained_one_are_refused) {
  refused(with_nextn(6), 5, "nextn", "blocks of 5 tokens");
  refused(with_nextn(40), 64, "nextn", "from 0 to 32");
  refused(with_nextn(-1), 5, "nextn", "from 0 to 5");
  refused(with_nextn(1), 0, "nextn", "no drafter");
  BOOST_TEST(checked_speculation(with_nextn(0), 5).nextn == 0);
  BOOST_TEST(checked_speculation(with_nextn(0), 0).note.empty());
  BOOST_TEST(checked_speculation({}, 0).nextn == 0);
  BOOST_TEST(checked_speculation({}, 0).note.find("no drafter") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(options_without_effect_are_refused) {
  engine_options o = with_nextn(0);
  o.varlen = true;
  refused(o, 5, "varlen", "no effect");
  o.varlen = false;
  BOOST_TEST(!checked_speculation(o, 5).varlen);
  o.spec_curve = "curve.json";
  refused(o, 5, "spec_curve", "no effect");
  o.nextn = 5;
  refused(o, 5, "spec_curve", "no effect without varlen");
  o.varlen.reset();
  refused(o, 5, "spec_curve", "no effect with expert_parallel", true);
  o.ep = 4;
  refused(o, 5, "spec_curve", "no effect with ep = 4");
  o.ep = 1, o.cp = 2;
  refused(o, 5, "spec_curve", "no effect with cp = 2");
  o = with_nextn(0);
  o.confidence_temperature = "1.5";
  refused(o, 5, "confidence_temperature", "no effect");
  o.confidence_temperature.clear();
  o.verify = "block";
  refused(o, 5, "verify", "coupled or rejection");
}

BOOST_AUTO_TEST_CASE(temperatures_are_one_or_one_for_each_draft) {
  BOOST_TEST(confidence_temperatures("1.5", 3) == (std::vector<double>{1.5, 1.5, 1.5}),
             boost::test_tools::per_element());
  BOOST_TEST(confidence_temperatures("1,0.5,1e-5", 3) == (std::vector<double>{1, .5, 1e-5}),
             boost::test_tools::per_element());
  for (const char* bad : {"", "x", "1,", ",1", "1,2", "1,2,3,4", "1;2;3", "0", "-1", "nan", "inf", "1e9", "1 ,2,3"})
    BOOST_CHECK_EXCEPTION(confidence_temperatures(bad, 3), config_error,
                          [&](const config_error& e) { return e.key == "confidence_temperature" && e.value == bad; });
}

BOOST_AUTO_TEST_CASE(a_curve_replaces_nothing_but_a_curve) {
  const test_support::temporary_folder folder;
  engine_options o;
  const auto with = [&](const std::string& file) {
    o.spec_curve = file;
    return checked_speculation(o, 5).nextn;
  };
  BOOST_TEST(with(folder / "new.json") == 5);
  test_support::write_text(folder / "curve.json", R"({"version":1,"model":"m","device":"d","curve":[]})");
  BOOST_TEST(with(folder / "curve.json") == 5);
  test_support::write_text(folder / "notes.txt", "keep me");
  o.spec_curve = folder / "notes.txt";
  refused(o, 5, "spec_curve", "holds something else");
  o.spec_curve = folder / "";
  refused(o, 5, "spec_curve", "no file that can be read");
  o.spec_curve = folder / "none/curve.json";
  refused(o, 5, "spec_curve", "no such folder");
}

BOOST_AUTO_TEST_SUITE_END()
