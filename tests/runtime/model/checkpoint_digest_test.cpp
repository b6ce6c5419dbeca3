#include "runtime/base/result.hpp"
#include "runtime/model/checkpoint_digest.hpp"
#include "tests/support/other_model.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(checkpoint_digests)

BOOST_AUTO_TEST_CASE(it_covers_the_files_that_numbers_come_from_and_no_others) {
  const test_support::temporary_folder folder;
  test_support::write_text(folder / "x.safetensors", "b");
  test_support::write_text(folder / "config.json", "a");
  test_support::write_text(folder / "tokenizer.json", "c");
  // for f in config.json tokenizer.json x.safetensors; do
  //   printf '%s %s\n' $f $(sha256sum < $f | cut -d' ' -f1); done | sha256sum
  const std::string expected = "897d8ee99d7b92df6101ae85cc65cd62e9ca425816d0b7cc703c08ccf94c0743";
  BOOST_TEST(checkpoint_digest(folder / "") == expected);
  test_support::write_text(folder / "README.md", "anything");
  BOOST_TEST(checkpoint_digest(folder / ".") == expected);
  for (const char* name : {"x.safetensors", "config.json", "tokenizer.json", "y.safetensors"}) {
    const std::string path = folder / name;
    const std::string before = std::filesystem::exists(path) ? test_support::read_text(path) : "";
    test_support::write_text(path, before + "x");
    BOOST_TEST(checkpoint_digest(folder / "") != expected, name);
    before.empty() ? static_cast<void>(std::filesystem::remove(path)) : test_support::write_text(path, before);
  }
  BOOST_TEST(checkpoint_digest(folder / "") == expected);
  BOOST_CHECK_THROW(checkpoint_digest(folder / "none"), config_error);
}

// As processes compare them at every start.
BOOST_AUTO_TEST_CASE(models_are_told_apart_wherever_they_lie) {
  const std::string embedded = TROUPE_SOURCE_DIR "/models/tiny-v41";
  const test_support::temporary_folder folder;
  const auto weights = [](const std::string& model) { return weights_digest(checkpoint(model)); };
  const std::string copy = folder / "copy", other = folder / "other", rotten = folder / "rotten";
  std::filesystem::copy(embedded, copy);
  test_support::write_other_model(other, 0);
  test_support::write_other_model(rotten, 100);
  BOOST_TEST(weights(copy) == weights(embedded));
  BOOST_TEST(weights(other) != weights(embedded));
  BOOST_TEST(weights(rotten) == weights(embedded)); // between two samples
  BOOST_TEST(texts_digest(copy) == texts_digest(embedded));
  for (const char* name : {"/config.json", "/tokenizer.json"}) {
    const std::string before = test_support::read_text(copy + name);
    test_support::write_text(copy + name, before + " ");
    BOOST_TEST(texts_digest(copy) != texts_digest(embedded), name);
    test_support::write_text(copy + name, before);
  }
}

BOOST_AUTO_TEST_SUITE_END()
