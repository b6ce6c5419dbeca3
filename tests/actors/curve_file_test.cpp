// Whose step-cost curve a file may hold: the model's, wherever it lies and however its folder is written.
#include "actors/model_process.hpp"
#include "tests/support/embedded_options.hpp"
#include "tests/support/other_model.hpp"
#include <boost/test/unit_test.hpp>
#include <ctime>

using namespace troupe;

namespace {

// What an engine wants the curve in the file to be of, by its complaint about another one.
std::string wanted_by_engine(const std::string& work_folder, const std::string& model, const std::string& file) {
  namespace fs = std::filesystem;
  test_support::write_text(file, "{\"version\": 1, \"written\": " + std::to_string(std::time(nullptr)) +
                                     ", \"model\": \"another\", \"device\": \"\", \"curve\": [[1, 1.0]]}");
  engine_options o = embedded_options();
  o.model = model;
  o.spec_curve = file;
  const fs::path before = fs::current_path();
  fs::current_path(work_folder);
  const std::string told = make_model_process(o).description;
  fs::current_path(before);
  const std::string lead = "model is \"another\", this engine's is ";
  const std::size_t at = told.find(lead);
  BOOST_REQUIRE_MESSAGE(at != told.npos, told);
  return told.substr(at + lead.size(), told.find(';', at) - at - lead.size());
}

} // namespace

BOOST_AUTO_TEST_SUITE(curve_files)

BOOST_AUTO_TEST_CASE(the_checkpoint_counts_and_not_its_path) {
  const test_support::temporary_folder folder;
  const std::string a = folder / "a", b = folder / "b", file = folder / "curve.json";
  std::filesystem::create_directories(a);
  std::filesystem::create_directories(b);
  std::filesystem::copy(TROUPE_SOURCE_DIR "/models/tiny-v41", a + "/model", std::filesystem::copy_options::recursive);
  test_support::write_other_model(b + "/model", 0);
  const std::string one = wanted_by_engine(a, "model", file);
  BOOST_TEST(wanted_by_engine(a, "./model/", file) == one);
  BOOST_TEST(wanted_by_engine(b, "../a/model", file) == one);
  BOOST_TEST(wanted_by_engine(b, "model", file) != one);
}

BOOST_AUTO_TEST_SUITE_END()
