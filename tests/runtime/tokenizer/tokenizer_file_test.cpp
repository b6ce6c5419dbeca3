#include "runtime/base/result.hpp"
#include "runtime/tokenizer/byte_characters.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "runtime/tokenizer/utf8.hpp"
#include "tests/runtime/tokenizer/tokenizer_data.hpp"
#include <boost/test/unit_test.hpp>
#include <functional>
#include <random>

using namespace tokenizer_test;
using nlohmann::json;

namespace {

// The embedded model's file cut down to the controls, the bytes and two merges.
json small_file() {
  std::ifstream in(std::string(TROUPE_SOURCE_DIR) + "/models/tiny-v41/tokenizer.json");
  json file = json::parse(in);
  json vocabulary;
  std::int32_t id = 3;
  for (const std::uint32_t c : troupe::byte_characters()) {
    std::string spelling;
    troupe::append_utf8(spelling, c);
    vocabulary[spelling] = id++;
  }
  vocabulary["ab"] = 259;
  vocabulary["abc"] = 260;
  file["model"]["vocab"] = vocabulary;
  file["model"]["merges"] = json::array({json::array({"a", "b"}), json::array({"ab", "c"})});
  json added = json::array();
  for (std::size_t i = 0; i < 3; ++i)
    added.push_back(file["added_tokens"][i]);
  added.push_back({{"id", 261},
                   {"content", "<x>"},
                   {"single_word", false},
                   {"lstrip", false},
                   {"rstrip", false},
                   {"normalized", true},
                   {"special", false}});
  file["added_tokens"] = added;
  return file;
}

troupe::tokenizer make(const std::string& text) {
  return troupe::tokenizer(troupe::parse_tokenizer_file(text, "t.json"), "t.json");
}

std::string refusal(const std::string& text) {
  try {
    make(text);
  } catch (const troupe::config_error& e) {
    return e.what();
  }
  return "accepted";
}

} // namespace

BOOST_AUTO_TEST_SUITE(tokenizer_file)

BOOST_AUTO_TEST_CASE(reads_both_spellings_of_merges) {
  json file = small_file();
  const auto check = [](const json& f) {
    const troupe::tokenizer t = make(f.dump());
    BOOST_TEST(t.vocab_size() == 262);
    const auto ids = t.encode("abcab<x>", troupe::encode_mode::full);
    BOOST_TEST(ids == (std::vector<std::int32_t>{260, 259, 261}), boost::test_tools::per_element());
  };
  check(file);
  file["model"]["merges"] = {"a b", "ab c"};
  check(file);
}

BOOST_AUTO_TEST_CASE(refuses_what_it_does_not_support_and_names_it) {
  struct damage {
    const char* pointer; // place that is set
    json value;
    const char* expected; // part of the message
  };
  const std::vector<damage> cases = {
      {"/version", "2.0", "t.json: version = \"2.0\": only \"1.0\" is supported"},
      {"/truncation", {{"max_length", 5}}, "truncation ="},
      {"/padding", 3, "padding = 3"},
      {"/normalizer", {{"type", "NFC"}}, "normalizer = {\"type\":\"NFC\"}"},
      {"/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}}, "normalizer ="},
      {"/post_processor", {{"type", "TemplateProcessing"}}, "post_processor.type = \"TemplateProcessing\""},
      {"/decoder", nullptr, "decoder = null"},
      {"/decoder/type", "WordPiece", "decoder.type = \"WordPiece\""},
      {"/pre_tokenizer", nullptr, "pre_tokenizer = null"},
      {"/pre_tokenizer/type", "Whitespace", "pre_tokenizer.type = \"Whitespace\""},
      {"/pre_tokenizer/pretokenizers", json::array(), "pre_tokenizer.pretokenizers = []"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\p{N}", "pre_tokenizer.pretokenizers[0].pattern ="},
      {"/pre_tokenizer/pretokenizers/2/behavior", "Removed", "pretokenizers[2].behavior = \"Removed\""},
      {"/pre_tokenizer/pretokenizers/1/invert", true, "pretokenizers[1].invert = true"},
      {"/pre_tokenizer/pretokenizers/3/add_prefix_space", true, "pretokenizers[3].add_prefix_space = true"},
      {"/pre_tokenizer/pretokenizers/3/use_regex", true, "pretokenizers[3].use_regex = true"},
      {"/model", 7, "model = 7"},
      {"/model/type", "Unigram", "model.type = \"Unigram\""},
      {"/model/dropout", 0.1, "model.dropout = 0.1"},
      {"/model/unk_token", "<unk>", "model.unk_token = \"<unk>\""},
      {"/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix"},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix"},
      {"/model/fuse_unk", true, "model.fuse_unk"},
      {"/model/byte_fallback", true, "model.byte_fallback"},
      {"/model/ignore_merges", true, "model.ignore_merges = true"},
      {"/model/surprise", 1, "model.surprise = 1: unknown setting"},
      {"/surprise", 1, "surprise = 1: unknown setting"},
      {"/model/vocab", json::array(), "model.vocab = []"},
      {"/model/vocab/ab", -1, "model.vocab.ab = -1"},
      {"/model/vocab/ab", "259", "model.vocab.ab = \"259\""},
      {"/model/vocab/ab", 2.5, "model.vocab.ab = 2.5"},
      {"/model/vocab/ab", json::array(), "model.vocab.ab = []"},
      {"/model/vocab/ab", 4294967296, "model.vocab.ab = 4294967296"},
      {"/model/vocab/ab", 100000, "model.vocab.ab = 100000: the id is larger than the number of tokens"},
      {"/model/vocab/ab", 260, "the id is taken by"},
      {"/model/vocab/zz", 263, "model.vocab.zz = 263: the id is larger than the number of tokens"},
      {"/model/merges", json::object(), "model.merges = {}"},
      {"/model/merges/0", {"a"}, "model.merges[0] = [\"a\"]"},
      {"/model/merges/0", {"a", 1}, "model.merges[0] = 1"},
      {"/model/merges/0", {"a", ""}, "model.merges[0]"},
      {"/model/merges/0", "ab", "model.merges[0] = \"ab\""},
      {"/model/merges/0", "a b c", "model.merges[0] = \"a b c\""},
      {"/model/merges/0", 5, "model.merges[0] = 5"},
      {"/model/merges/1", {"abc", "c"}, "model.merges[1] = abc c: abcc is not in the vocabulary"},
      {"/model/merges/1", {"qq", "c"}, "model.merges[1] = qq c: qq is not in the vocabulary"},
      {"/model/merges/1", {"a", "b"}, "model.merges[1] = a b: the merge occurs twice"},
      {"/added_tokens", {{"a", 1}}, "added_tokens ="},
      {"/added_tokens/3", "<x>", "added_tokens[3] = \"<x>\""},
      {"/added_tokens/3/lstrip", true, "added_tokens[3].lstrip = true"},
      {"/added_tokens/3/single_word", true, "added_tokens[3].single_word = true"},
      {"/added_tokens/3/normalized", nullptr, "added_tokens[3].normalized = null"},
      {"/added_tokens/3/special", 1, "added_tokens[3].special = 1"},
      {"/added_tokens/3/content", "", "added_tokens[3].content = \"\""},
      {"/added_tokens/3/content", "<｜▁pad▁｜>", "added_tokens[3] = 261: <｜▁pad▁｜> has id 2 elsewhere"},
      {"/added_tokens/3/id", -1, "added_tokens[3].id = -1"},
      {"/added_tokens/3/id", "261", "added_tokens[3].id = \"261\""},
      {"/added_tokens/3/id", 2, "added_tokens[3] = 2: the id is taken by"},
      {"/added_tokens/0/content", "<bos>", "<｜begin▁of▁sentence｜>: the BOS token is missing"},
      {"/added_tokens/1/content", "<eos>", "<｜end▁of▁sentence｜>: the EOS token is missing"},
      {"/added_tokens/2/content", "<pad>", "<｜▁pad▁｜>: the padding token is missing"},
  };
  for (const damage& d : cases) {
    json file = small_file();
    file[json::json_pointer(d.pointer)] = d.value;
    const std::string message = refusal(file.dump());
    BOOST_TEST(message.find(d.expected) != std::string::npos, d.pointer << ": " << message);
    BOOST_TEST(message.find("t.json: ") == 0u, message);
    BOOST_TEST(message.find("; ") != std::string::npos, message); // a remedy
  }
}

BOOST_AUTO_TEST_CASE(refuses_missing_parts) {
  for (const char* key : {"version", "added_tokens", "pre_tokenizer", "decoder", "model"}) {
    json file = small_file();
    file.erase(key);
    BOOST_TEST(refusal(file.dump()).find(key) != std::string::npos, key);
  }
  for (const char* key : {"type", "vocab", "merges"}) {
    json file = small_file();
    file["model"].erase(key);
    BOOST_TEST(refusal(file.dump()).find(std::string("model.") + key) != std::string::npos, key);
  }
  json file = small_file();
  file["model"]["vocab"].erase("z");
  file["model"]["vocab"]["zz"] = small_file()["model"]["vocab"]["z"];
  BOOST_TEST(refusal(file.dump()).find("model.vocab = z: is not in the vocabulary") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(ids_leave_no_hole_where_added_tokens_repeat_base_tokens) {
  json file = small_file();
  file["model"]["vocab"]["<｜▁pad▁｜>"] = 2;
  BOOST_TEST(refusal(file.dump()) == "accepted");
  file["model"]["vocab"]["zz"] = 263;
  BOOST_TEST(refusal(file.dump()).find("no token has id 262, but a larger id is in use") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(control_tokens_keep_their_ids) {
  json file = small_file();
  std::swap(file["added_tokens"][0]["id"], file["added_tokens"][1]["id"]);
  BOOST_TEST(refusal(file.dump()).find("the BOS token has id 1 instead of 0") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(refuses_repeated_keys_which_other_readers_overwrite) {
  const std::string text = small_file().dump();
  const auto with = [&text](const std::string& before, const std::string& inserted) {
    std::string out = text;
    const std::size_t at = out.find(before);
    BOOST_REQUIRE(at != std::string::npos);
    return out.insert(at, inserted);
  };
  BOOST_TEST(refusal(with("\"abc\":260", "\"abc\":260,")).find("model.vocab.abc = 260") != std::string::npos);
  BOOST_TEST(refusal(with("\"vocab\":", "\"vocab\":{},")).find("model.vocab: the key occurs twice") !=
             std::string::npos);
  BOOST_TEST(refusal(with("\"merges\":", "\"merges\":[],")).find("model.merges: the key occurs twice") !=
             std::string::npos);
  BOOST_TEST(refusal(with("\"model\":", "\"model\":{},")).find("model: the key occurs twice") != std::string::npos);
  BOOST_TEST(refusal(with("\"dropout\":", "\"dropout\":null,")).find("model.dropout: the key occurs twice") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(refuses_text_that_is_not_json) {
  for (const std::string& text : {std::string(), std::string("{"), std::string("nonsense"), std::string(200000, '['),
                                  std::string("\xFF\xFE"), std::string("{\"a\xC3\":1}"), small_file().dump() + "x"})
    BOOST_TEST(refusal(text).find("t.json: ") == 0u);
  for (const char* text : {"5", "null", "[]", "\"x\"", "{}", "[[1]]", "{\"model\":[{\"vocab\":{}}]}"})
    BOOST_TEST(refusal(text).find("t.json: ") == 0u, text);
}

BOOST_AUTO_TEST_CASE(every_cut_is_refused) {
  const std::string text = small_file().dump();
  for (std::size_t n = 0; n < text.size(); n += 3)
    BOOST_REQUIRE(refusal(text.substr(0, n)).find("t.json: not valid JSON at byte") == 0u);
}

BOOST_AUTO_TEST_CASE(random_damage_gives_a_tokenizer_or_a_refusal) {
  const std::string text = small_file().dump();
  std::mt19937 random(3);
  int refused = 0, accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = text;
    for (auto n = 1 + random() % 3; n > 0; --n) {
      const std::size_t at = random() % damaged.size();
      switch (random() % 4) {
      case 0:
        damaged[at] = static_cast<char>(random() % 256);
        break;
      case 1:
        damaged.erase(at, 1 + random() % 8);
        break;
      case 2:
        damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 40));
        break;
      default:
        damaged[at] = "{}[]\",:0129"[random() % 11];
      }
    }
    const std::string message = refusal(damaged);
    refused += message != "accepted";
    if (message == "accepted") {
      ++accepted;
      const troupe::tokenizer t = make(damaged);
      BOOST_REQUIRE(t.decode(t.encode("abc <x> \xC3", troupe::encode_mode::full)).size() > 0);
    }
  }
  BOOST_TEST(refused > 2000);
  BOOST_TEST(accepted > 0);
}

BOOST_AUTO_TEST_CASE(names_a_file_that_cannot_be_read) {
  for (const std::string& path : {std::string("/no/such/tokenizer.json"), std::string(TROUPE_TEST_DATA)}) {
    try {
      (void)troupe::tokenizer::load(path);
      BOOST_ERROR("accepted");
    } catch (const troupe::config_error& e) {
      BOOST_TEST(e.file == path);
    }
  }
}

BOOST_AUTO_TEST_CASE(survives_a_move) {
  troupe::tokenizer a = make(small_file().dump());
  troupe::tokenizer b = std::move(a);
  troupe::tokenizer c = make(small_file().dump());
  c = std::move(b);
  BOOST_TEST((c.encode("abc", troupe::encode_mode::full) == std::vector<std::int32_t>{260}));
  BOOST_TEST(c.id_of("ab").value() == 259);
}

BOOST_AUTO_TEST_SUITE_END()
