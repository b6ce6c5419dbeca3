#include "runtime/base/result.hpp"
#include "runtime/tokenizer/compressed_vocabulary.hpp"
#include "runtime/tokenizer/normal_form.hpp"
#include "runtime/tokenizer/utf8.hpp"
#include "tests/runtime/tokenizer/tokenizer_data.hpp"
#include <boost/test/unit_test.hpp>
#include <filesystem>

using namespace tokenizer_test;

namespace {

struct scratch_folder {
  std::filesystem::path path;
  scratch_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "troupe_engram_XXXXXX").string();
    BOOST_REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~scratch_folder() { std::filesystem::remove_all(path); }
  std::string table() const { return (path / "engram_compressed_ids.i32").string(); }
  void write(const std::vector<std::int32_t>& ids, std::size_t cut = 0) const {
    std::ofstream(table(), std::ios::binary)
        .write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(ids.size() * 4 - cut));
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(compressed_vocabulary)

BOOST_AUTO_TEST_CASE(equals_the_reference_table_of_v41) {
  const auto want = troupe::read_compressed_vocabulary(data_path("engram_compressed_ids.i32"), v41().vocab_size());
  const auto got = troupe::derive_compressed_vocabulary(v41());
  BOOST_REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    BOOST_REQUIRE_MESSAGE(got[i] == want[i], "id " << i << ": " << got[i] << " instead of " << want[i]);
  BOOST_TEST(troupe::distinct_ids(got) == 99092);
  BOOST_TEST(got[2] == 2);
}

BOOST_AUTO_TEST_CASE(equals_the_reference_table_of_the_embedded_model) {
  const auto want = troupe::read_compressed_vocabulary(data_path("embedded_engram_ids.i32"), embedded().vocab_size());
  BOOST_TEST(troupe::compressed_vocabulary(embedded(), "no such folder", 5687) == want);
}

BOOST_AUTO_TEST_CASE(normal_forms_of_all_code_points_equal_the_reference) {
  std::ifstream in(data_path("normal_form_digests.txt"));
  std::uint32_t start = 0, blocks = 0;
  std::uint64_t want = 0;
  for (in >> std::hex; in >> start >> want; ++blocks) {
    std::uint64_t digest = 0xCBF29CE484222325;
    for (std::uint32_t c = std::max(start, 1u); c < start + 0x1000; ++c) {
      if (c >= 0xD800 && c < 0xE000)
        continue;
      std::string text;
      troupe::append_utf8(text, c);
      const std::string form = troupe::token_normal_form(text);
      for (std::size_t i = 0; i <= form.size(); ++i)
        digest = (digest ^ static_cast<unsigned char>(form.c_str()[i])) * 0x100000001B3;
    }
    BOOST_CHECK_MESSAGE(digest == want, "block from code point " << start);
  }
  BOOST_TEST(blocks == 272u);
}

BOOST_AUTO_TEST_CASE(folds_whole_texts) {
  const auto form = troupe::token_normal_form;
  BOOST_TEST(form(" \t\n") == " ");
  BOOST_TEST(form("  The\r\n CAF\u00C9\t") == "the cafe");
  BOOST_TEST(form("\uFB01\u00A0x") == "fi x"); // ligature; a no-break space turns into a space
  BOOST_TEST(form("\u00A0") == " ");
  BOOST_TEST(form("\u2028") == "");             // white space, but not a blank
  BOOST_TEST(form("\u09BE\u09B0") == "\u09B0"); // spacing marks go too
  BOOST_TEST(form("") == "");
}

BOOST_AUTO_TEST_CASE(takes_a_shipped_table_and_refuses_a_wrong_one) {
  const scratch_folder folder;
  auto ids = troupe::derive_compressed_vocabulary(embedded());
  // A table that differs from the derived one in a legal way shows that the shipped one is used.
  ids.back() = 0;
  folder.write(ids);
  BOOST_TEST(troupe::compressed_vocabulary(embedded(), folder.path.string(), troupe::distinct_ids(ids)) == ids);
  const auto refused = [&](const char* why) {
    try {
      troupe::compressed_vocabulary(embedded(), folder.path.string(), 5687);
      BOOST_ERROR("accepted");
    } catch (const troupe::config_error& e) {
      BOOST_TEST(std::string(e.what()).find(why) != std::string::npos, e.what());
    }
  };
  folder.write(ids, 4);
  refused("size = 32764 bytes: must be 32768 bytes");
  ids[17] = 5000;
  folder.write(ids);
  refused("entry 17 = 5000");
  ids[17] = -1;
  folder.write(ids);
  refused("entry 17 = -1");
  folder.write(std::vector<std::int32_t>(8192, 0));
  refused("engram_compressed_vocab_size = 5687: the table has 1 distinct ids");
  BOOST_CHECK_THROW(troupe::compressed_vocabulary(embedded(), "no such folder", 5688), troupe::config_error);
}

BOOST_AUTO_TEST_SUITE_END()
