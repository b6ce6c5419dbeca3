// Every line of the golden data, against the reference engine's ids and texts.
#include "runtime/tokenizer/pretokenize.hpp"
#include "runtime/tokenizer/streaming.hpp"
#include "runtime/tokenizer/utf8.hpp"
#include "tests/runtime/tokenizer/tokenizer_data.hpp"
#include <boost/test/unit_test.hpp>

using namespace tokenizer_test;
using troupe::encode_mode;

BOOST_AUTO_TEST_SUITE(tokenizer_golden)

BOOST_AUTO_TEST_CASE(encodes_as_the_reference) {
  std::size_t lines = 0, plain = 0;
  for (const auto& line : json_lines("encode.jsonl")) {
    const std::string text = text_of(line);
    const auto ids = ids_of(line["ids"]);
    const auto ids_plain = line.contains("ids_plain") ? ids_of(line["ids_plain"]) : ids;
    BOOST_CHECK_MESSAGE(v41().encode(text, encode_mode::full) == ids, "full, line " << line["id"]);
    BOOST_CHECK_MESSAGE(v41().encode(text, encode_mode::plain) == ids_plain, "plain, line " << line["id"]);
    BOOST_CHECK_MESSAGE(v41().decode(ids) == troupe::replace_invalid_utf8(text), "round trip, line " << line["id"]);
    plain += line.contains("ids_plain");
    ++lines;
  }
  BOOST_TEST(lines == 2400u);
  BOOST_TEST(plain > 50u);
}

BOOST_AUTO_TEST_CASE(cuts_pieces_as_the_reference) {
  for (const auto& line : json_lines("pretokenize.jsonl")) {
    const auto text = line["text"].get<std::string>();
    std::vector<std::vector<std::size_t>> pieces;
    troupe::pretokenizer cutter(text);
    for (std::string_view piece; cutter.next(piece);) {
      const auto start = static_cast<std::size_t>(piece.data() - text.data());
      pieces.push_back({start, start + piece.size()});
    }
    BOOST_CHECK_MESSAGE((pieces == line["pieces"].get<std::vector<std::vector<std::size_t>>>()), "line " << line["id"]);
  }
}

BOOST_AUTO_TEST_CASE(decodes_whole_and_step_by_step) {
  std::size_t lines = 0, exact = 0;
  for (const auto& line : json_lines("decode_stream.jsonl")) {
    const auto ids = ids_of(line["ids"]);
    const auto text = line["text"].get<std::string>();
    BOOST_CHECK_MESSAGE(v41().decode(ids) == text, "whole, line " << line["id"]);
    BOOST_CHECK_MESSAGE(v41().decode(ids, true) == line["text_skip_special"], "skipping, line " << line["id"]);
    const auto kind = line["kind"].get<std::string>();
    const bool same_steps = kind == "text" || kind == "multibyte" || kind == "truncated";
    troupe::streaming_decoder stream(v41()), skipping(v41(), true);
    std::string joined, joined_skipping;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::string step = stream.push(ids[i]);
      if (same_steps) {
        const auto& want = line["steps"][i];
        BOOST_CHECK_MESSAGE(step == (want.is_null() ? "" : want.get<std::string>()),
                            "line " << line["id"] << " step " << i);
        ++exact;
      }
      joined += step;
      joined_skipping += skipping.push(ids[i]);
    }
    if (same_steps)
      BOOST_TEST(stream.pending() == line.value("pending", ""));
    BOOST_TEST(joined + stream.flush() == text);
    BOOST_TEST(stream.flush() == "");
    BOOST_TEST(joined_skipping + skipping.flush() == line["text_skip_special"].get<std::string>());
    ++lines;
  }
  BOOST_TEST(lines == 400u);
  BOOST_TEST(exact > 1000u);
}

BOOST_AUTO_TEST_CASE(knows_the_control_tokens) {
  BOOST_TEST(v41().vocab_size() == 129280);
  BOOST_TEST(v41().bos_id() == 0);
  BOOST_TEST(v41().eos_id() == 1);
  BOOST_TEST(v41().pad_id() == 2);
  BOOST_TEST(v41().id_of("<｜User｜>").value() == 128803);
  BOOST_TEST(v41().id_of("</think>").value() == 128822);
  BOOST_TEST(v41().id_of("Ġ").value() == 223);
  BOOST_TEST(!v41().id_of("no such token").has_value());
  BOOST_TEST(v41().is_special(0));
  BOOST_TEST(v41().is_added(128799));
  BOOST_TEST(!v41().is_special(128799));
  BOOST_TEST(!v41().is_added(19923));
  BOOST_TEST(!v41().is_special(-1));
  BOOST_TEST(v41().bytes(223) == " ");
  BOOST_TEST(v41().bytes(129280) == "");
  BOOST_TEST(v41().decode(std::vector<std::int32_t>{-5, 19923, 129280, 3}) == "Hello!");
}

BOOST_AUTO_TEST_CASE(finds_special_spellings_only_in_full_mode) {
  BOOST_TEST((v41().encode("<｜User｜>", encode_mode::full) == std::vector<std::int32_t>{128803}));
  BOOST_TEST((v41().encode("<｜User｜>", encode_mode::plain) == std::vector<std::int32_t>{30, 28217, 6756, 28217, 32}));
  BOOST_TEST((v41().encode("<think>", encode_mode::plain) == std::vector<std::int32_t>{30, 37947, 32}));
  BOOST_TEST(v41().encode("", encode_mode::full).empty());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(embedded_tokenizer)

BOOST_AUTO_TEST_CASE(encodes_the_prompts_of_the_model_reference) {
  std::ifstream in(data_path("embedded_cases.json"));
  const auto cases = nlohmann::json::parse(in);
  BOOST_TEST(cases.size() == 8u);
  for (const auto& c : cases) {
    BOOST_CHECK_MESSAGE(embedded().encode(c["text"].get<std::string>(), encode_mode::full) == ids_of(c["ids"]),
                        c["name"]);
    BOOST_TEST(embedded().decode(ids_of(c["greedy_ids"])) == c["greedy_text"].get<std::string>());
  }
  BOOST_TEST(embedded().vocab_size() == 8192);
  BOOST_TEST(embedded().id_of("<｜User｜>").value() == 8177);
}

BOOST_AUTO_TEST_CASE(encodes_other_texts_as_the_reference) {
  std::size_t line_number = 0;
  for (const auto& line : json_lines("embedded_encode.jsonl")) {
    BOOST_CHECK_MESSAGE(embedded().encode(text_of(line), encode_mode::full) == ids_of(line["ids"]),
                        "line " << line_number);
    ++line_number;
  }
}

BOOST_AUTO_TEST_SUITE_END()
