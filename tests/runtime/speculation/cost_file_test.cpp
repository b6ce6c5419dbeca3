#include "runtime/speculation/cost_file.hpp"

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <unistd.h>

using namespace troupe;
namespace fs = std::filesystem;

namespace {

struct in_folder {
  fs::path folder = fs::temp_directory_path() / ("troupe-cost-" + std::to_string(::getpid()));
  std::string file = (folder / "curve.json").string();
  cost_key key{"tiny 0123", "cpu cpu-1", {1, 2, 8}};
  std::int64_t now = 1'700'000'000;
  std::vector<timed_size> curve{{1, 0.1}, {2, 1.0 / 3}, {8, 1e-3}};

  in_folder() { fs::create_directories(folder); }
  ~in_folder() { fs::remove_all(folder); }

  void write(const std::string& text) const { std::ofstream(file, std::ios::binary) << text; }
  std::string read() const {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // Refused with all of these words; nothing is thrown.
  void refused(const std::vector<std::string>& words) const {
    const auto got = load_cost_curve(file, key, now);
    BOOST_REQUIRE(!got);
    BOOST_TEST(got.failure().code == "unusable");
    BOOST_TEST(got.failure().message.find(file) == 0u);
    for (const std::string& w : words)
      BOOST_TEST(got.failure().message.find(w) != std::string::npos, w << " is missing in " << got.failure().message);
  }
};

} // namespace

BOOST_FIXTURE_TEST_SUITE(speculation_cost_file, in_folder)

BOOST_AUTO_TEST_CASE(a_curve_comes_back_bit_by_bit) {
  BOOST_TEST(load_cost_curve(file, key, now).failure().code == "not_found");
  BOOST_REQUIRE(save_cost_curve(file, key, curve, now));
  BOOST_TEST(read() == "{\"version\":1,\"written\":1700000000,\"model\":\"tiny 0123\",\"device\":\"cpu "
                       "cpu-1\",\"curve\":[[1,0.1],[2,0.3333333333333333],[8,"
                       "0.001]]}\n");
  const auto got = load_cost_curve(file, key, now);
  BOOST_REQUIRE(got);
  BOOST_REQUIRE(got->size() == curve.size());
  for (std::size_t i = 0; i < curve.size(); ++i)
    BOOST_TEST(((*got)[i].rows == curve[i].rows && (*got)[i].ms == curve[i].ms));
  for (const auto& entry : fs::directory_iterator(folder))
    BOOST_TEST(entry.path().string() == file); // nothing temporary is left
}

BOOST_AUTO_TEST_CASE(a_curve_of_something_else_is_not_used) {
  BOOST_REQUIRE(save_cost_curve(file, key, curve, now));
  key.model = "other";
  refused({"model is \"tiny 0123\"", "\"other\"", "measured again"});
  key.model = "tiny 0123";
  key.device = "reference cpu-1";
  refused({"device is \"cpu cpu-1\""});
  key.device = "cpu cpu-1";
  key.sizes = {1, 2, 4};
  refused({"other sizes"});
  key.sizes = {1, 2};
  refused({"other sizes"});
}

BOOST_AUTO_TEST_CASE(a_curve_counts_for_an_hour) {
  BOOST_REQUIRE(save_cost_curve(file, key, curve, now));
  now += cost_file_life;
  BOOST_TEST(!!load_cost_curve(file, key, now));
  for (const std::int64_t later : {std::int64_t{1}, -cost_file_life - 2}) { // too old; not written yet
    now += later;
    refused({"within the last hour", "measured again"});
  }
  BOOST_REQUIRE(save_cost_curve(file, key, curve, now));
  BOOST_TEST(!!load_cost_curve(file, key, now));
}

BOOST_AUTO_TEST_CASE(damaged_files_are_refused_by_name) {
  const std::string head =
      R"({"version": 1, "model": "tiny 0123", "device": "cpu cpu-1", "written": 1700000000, "curve": )";
  for (const char* text : {"", "{", "[]", "null", "\xff\xfe", "3"}) {
    write(text);
    refused({"no JSON object"});
  }
  write(R"({"version": 2, "model": "tiny 0123", "device": "cpu cpu-1", "curve": [[1,1],[2,1],[8,1]]})");
  refused({"version is 2"});
  write(R"({"model": "tiny 0123"})");
  refused({"version is null"});
  write(R"({"version": 1, "model": 7})");
  refused({"model is 7"});
  for (const char* time : {"null", "\"1700000000\"", "1.5", "-1", "1e300", "18446744073709551615"}) {
    write(R"({"version": 1, "model": "tiny 0123", "device": "cpu cpu-1", "curve": [[1,1],[2,1],[8,1]], "written": )" +
          std::string(time) + "}");
    refused({"within the last hour"});
  }
  for (const char* bad : {"null", "3", "[1]", "[[1]]", "[[1,2,3]]", "[[\"a\",2]]", "[[1.5,2]]", "[[1,\"b\"]]",
                          "[[0,1]]", "[[99999999999,1]]", "[[1,null]]"}) {
    write(head + bad + "}");
    refused({"no list of [rows, ms]"});
  }
  write(head + "[[1,1],[1,1],[8,1]]}");
  refused({"do not ascend"});
  write(head + "[[1,1],[2,-1],[8,1]]}");
  refused({"no positive number"});
  write(head + "[[1,1],[2,1e999],[8,1]]}");
  refused({});
  write(std::string(3 << 20, ' '));
  refused({"longer than any curve"});
  fs::remove(file);
  fs::create_directory(file);
  refused({"cannot be read"});
}

BOOST_AUTO_TEST_CASE(a_place_that_cannot_be_written_is_an_error) {
  const status s = save_cost_curve((folder / "none" / "curve.json").string(), key, curve, now);
  BOOST_REQUIRE(!s);
  BOOST_TEST(s.failure().code == "write_failed");
}

BOOST_AUTO_TEST_SUITE_END()
