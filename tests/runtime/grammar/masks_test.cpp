// Masks of loops and of what lies around them, over the whole real vocabulary.
#include "runtime/grammar/constraint.hpp"
#include "runtime/grammar/loop_table.hpp"
#include "tests/runtime/grammar/grammar_support.hpp"
#include <boost/test/unit_test.hpp>
#include <random>

using namespace troupe;
using namespace troupe::testing;

namespace {

void check_along(const std::shared_ptr<const compiled_grammar>& grammar, const std::string& text) {
  constraint_matcher m(grammar);
  std::string read;
  for (const std::int32_t id : real_tokenizer().encode(text, encode_mode::plain)) {
    const auto wrong = disagreements(m);
    BOOST_TEST(wrong.empty(), "behind '" << read << "' the bit of " << (wrong.empty() ? -1 : wrong[0]) << " is wrong");
    BOOST_REQUIRE(m.accept(id));
    read += real_vocabulary()->text(id);
  }
  BOOST_TEST(disagreements(m).empty());
  BOOST_TEST(m.can_end());
}

template <class F> std::shared_ptr<const compiled_grammar> built(F&& make) {
  compile_budget budget;
  grammar_builder builder(budget);
  return compile_grammar(builder, builder.define("root", make(builder)), real_vocabulary());
}

} // namespace

BOOST_AUTO_TEST_SUITE(grammar_masks)

BOOST_AUTO_TEST_CASE(json_strings_with_lengths) {
  for (const auto& [min, max] :
       std::vector<std::pair<std::uint64_t, std::uint64_t>>{{0, 12}, {5, 11}, {9, unbounded}, {0, unbounded}})
    check_along(built([&](grammar_builder& b) {
                  return b.sequence({b.literal("{\"k\":"), b.json_string(min, max), b.literal(",\"n\":1}")});
                }),
                "{\"k\":\"ab\\u00e9\\\\ \xE4\xBD\xA0 \xF0\x9F\x98\x80!\",\"n\":1}");
}

BOOST_AUTO_TEST_CASE(counted_classes_close_to_their_bounds) {
  check_along(built([](grammar_builder& b) {
                return b.sequence({b.repeat(b.chars(char_set({{'a', 'z'}})), 3, 14), b.literal("X")});
              }),
              "abcdefghijklmnX");
  // what follows can begin like a round: no short cut is possible
  check_along(
      built([](grammar_builder& b) {
        const grammar_expr letter = b.chars(char_set({{'a', 'z'}}));
        return b.sequence({b.repeat(letter, 2, 6), b.repeat(letter, 0, 4), b.literal("the"), b.optional(letter)});
      }),
      "otherwithe");
  // nor where it only follows the last round, which a token may hold in its middle
  check_along(built([](grammar_builder& b) {
                const grammar_expr letter = b.chars(char_set({{'a', 'z'}}));
                return b.sequence({b.repeat(letter, 6, 6), b.literal("er"), b.optional(letter)});
              }),
              "togethers");
}

// Keys that differ from given ones, and strings with a pattern: automata whose usual state is a loop.
BOOST_AUTO_TEST_CASE(excluded_keys) {
  const std::vector<std::u32string> keys{U"name", U"names", U"\u00e9t\u00e9", U"\u4f60\u597d", U"\U0001f600"};
  const auto others = char_dfa::words(keys).complement();
  const auto grammar = built([&](grammar_builder& b) {
    return b.sequence({b.literal("{"), b.json_string(others), b.literal(":1}")});
  });
  check_along(grammar, "{\"nam\":1}");
  check_along(grammar, "{\"na\\u006d\":1}");
  check_along(grammar, "{\"\xC3\xA9ty\":1}");
  check_along(grammar, "{\"\xE4\xBD\xA0\":1}");
  check_along(grammar, "{\"\xF0\x9F\x98\x80\xF0\x9F\x98\x80\":1}");
  BOOST_TEST(!matches(grammar, "{\"name\":1}"));
  BOOST_TEST(!matches(grammar, "{\"na\\u006De\":1}"));
  BOOST_TEST(!matches(grammar, "{\"\\u00E9t\xC3\xA9\":1}"));
  BOOST_TEST(!matches(grammar, "{\"\xF0\x9F\x98\x80\":1}"));
}

// A loop over all characters but a common one: what tens of thousands of tokens read behind it is looked up token by
// token, with a count too.
BOOST_AUTO_TEST_CASE(loops_that_many_tokens_leave) {
  for (const auto& [min, max] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{{0, unbounded}, {3, 5}}) {
    const auto grammar = built([&](grammar_builder& b) {
      const char_set others = char_set({{'e', 'e'}}).complement();
      return b.sequence({b.repeat(b.chars(others), min, max), b.literal("e"),
                         b.repeat(b.chars(char_set({{'a', 'z'}})), 0, unbounded)});
    });
    BOOST_REQUIRE(!grammar->network().round_dfas.empty());
    check_along(grammar, "w\xC3\xA9ntern");
    const auto table = real_vocabulary()->known_table(grammar->network().round_dfas[0]);
    BOOST_REQUIRE(table);
    BOOST_TEST(table->late().size() > 20'000u);
  }
}

// A pattern that counts words, met with lengths: states that only long texts tell apart share masks, which callers and
// long tokens must still tell apart.
BOOST_AUTO_TEST_CASE(counted_words_of_bounded_length) {
  for (const bool least : {false, true}) { // which makes many states
    constraint what;
    what.kind = constraint_kind::json;
    const std::string of_words = std::string(R"({"type":"string","pattern":"^(?:[^ ]+ +){0,9}[^ ]+$","maxLength":90)") +
                                 (least ? R"(,"minLength":60})" : "}");
    what.text = R"({"type":"object","additionalProperties":false,"required":["a","b"],"properties":{"a":)" + of_words +
                R"(,"b":)" + of_words + "}}";
    what.schema.max_whitespace = 1;
    const auto made = compile_constraint(what, real_vocabulary());
    BOOST_REQUIRE(made);
    const auto& grammar = *made;
    const rule_network& net = grammar->network();
    BOOST_TEST(net.text_rules.size() == 1); // equal strings share a rule
    std::size_t shared = 0;
    for (std::uint32_t s = 0; s < net.stand_in.size(); ++s)
      shared += net.stand_in[s] != rule_network::no_text && net.stand_in[s] != s;
    if (least)
      BOOST_TEST(shared > 200u);
    else
      BOOST_TEST(net.states() < 100u);
    const std::string words = "one two  three f\\u00f6ur\\t5 six " + std::string(52, '-');
    const std::string x(least ? 60 : 1, 'x');
    check_along(grammar, "{\"a\":\"" + words + " 8\",\"b\":\"" + x + "\"}");
    if (!least)
      check_along(grammar, "{\"a\":\"a b c d e f g h i j\",\"b\":\"a b c d e f g h i" + std::string(20, ' ') +
                               "\xE4\xBD\xA0\"}");
    BOOST_TEST(!matches(grammar, "{\"a\":\"a b c d e f g h i j k\",\"b\":\"" + x + "\"}"));
    BOOST_TEST(!matches(grammar, "{\"a\":\"" + std::string(91, 'x') + "\",\"b\":\"" + x + "\"}"));
    BOOST_TEST(matches(grammar, "{\"a\":\"" + std::string(59, 'x') + "\",\"b\":\"" + x + "\"}") == !least);
  }
}

// A language and a limit of length that would make too many states: characters are counted beside the automaton. The
// same texts and masks as those of the automaton of both, far from the limit and close to it.
BOOST_AUTO_TEST_CASE(texts_of_a_language_and_a_counted_length) {
  const char_dfa words = char_dfa::of_states(std::vector<char_dfa::raw_state>{
      // words of letters or of one astral character, a dot between two, behind the last one an x: no prefix of a text
      // that lacks room for the x can be read
      {false, {{'a', 'w', 1}, {0x1F600, 0x1F600, 1}, {'x', 'x', 2}}},
      {false, {{'.', '.', 0}, {'a', 'w', 1}, {'x', 'x', 2}}},
      {true, {{'x', 'x', 2}}}});
  const std::string face = "\xF0\x9F\x98\x80", escaped = "\\ud83d\\ude00";
  for (const std::uint64_t max : {3, 30, 60}) {
    const auto counted = built([&](grammar_builder& b) {
      return b.sequence({b.json_string(words, max), b.literal(","), b.json_string(words, max)});
    });
    const auto whole = built([&](grammar_builder& b) {
      const char_dfa both = words.intersect(char_dfa::length(0, max));
      return b.sequence({b.json_string(both), b.literal(","), b.json_string(both)});
    });
    BOOST_TEST(counted->network().marks.size() > 0u);
    BOOST_TEST(whole->network().marks.empty());
    BOOST_TEST(counted->network().uncounted_below.empty() == (max < 26));
    BOOST_TEST(counted->network().states() < 200u);
    std::mt19937_64 random(max);
    for (int i = 0; i < 300; ++i) {
      std::string text = "\"";
      std::uint64_t length = random() % (max + 3);
      for (std::uint64_t at = 0; at < length; ++at)
        text += at + 1 == length    ? "x"
                : random() % 9 == 0 ? "."
                : random() % 9 == 0 ? face
                : random() % 9 == 0 ? escaped
                                    : "w";
      text += "\",\"x\"";
      BOOST_TEST(matches(counted, text) == matches(whole, text), text);
    }
    const auto along = [&](const std::string& inside) {
      check_along(counted, "\"" + inside + "x\",\"" + inside + "x\"");
    };
    along("");
    along("w" + std::string(max - 2, 'a'));
    along(max == 3 ? escaped + "w" : face + ".hello." + escaped + std::string(max - 14, 'b') + ".w");
    BOOST_TEST(!matches(counted, "\"" + std::string(max, 'w') + "x\",\"x\""));
  }
}

BOOST_AUTO_TEST_CASE(formats_and_patterns_with_a_length) {
  const auto compiled = [](const std::string& schema) {
    constraint what;
    what.kind = constraint_kind::json;
    what.text = schema;
    const auto made = compile_constraint(what, real_vocabulary());
    if (!made)
      BOOST_FAIL(schema << ": " << made.failure().message);
    return *made;
  };
  const auto quoted = [](const std::string& text) { return '"' + text + '"'; };
  const auto email = compiled(R"({"type":"string","format":"email","minLength":3,"maxLength":64})");
  check_along(email, quoted(std::string(50, 'a') + "@example.com.x"));
  BOOST_TEST(matches(email, quoted(std::string(50, 'a') + "@example.com.x")));
  BOOST_TEST(!matches(email, quoted(std::string(51, 'a') + "@example.com.x")));
  BOOST_TEST(!matches(email, quoted("a.b")));
  const auto uri = compiled(R"({"type":"string","format":"uri","minLength":1,"maxLength":2083})");
  BOOST_TEST(matches(uri, quoted("https://example.org/" + std::string(2063, 'a'))));
  BOOST_TEST(!matches(uri, quoted("https://example.org/" + std::string(2064, 'a'))));
  const auto name = compiled(R"({"type":"string","pattern":"^arn:[a-z]+:[0-9]{12}:.+$","maxLength":2048})");
  BOOST_TEST(matches(name, quoted("arn:x:123456789012:" + std::string(2029, '-'))));
  BOOST_TEST(!matches(name, quoted("arn:x:123456789012:" + std::string(2030, '-'))));
  const auto either = compiled(R"({"anyOf":[{"type":"string","format":"email","maxLength":254},{"type":"null"}]})");
  BOOST_TEST(matches(either, "null"));
  BOOST_TEST(matches(either, quoted("a@b.co")));
  constraint never;
  never.kind = constraint_kind::json;
  never.text = R"({"type":"string","pattern":"^(?:[ab]{40}c)+$","maxLength":40})";
  const auto none = compile_constraint(never, real_vocabulary());
  BOOST_REQUIRE(!none);
  BOOST_TEST(none.failure().code == "so_unsatisfiable");
}

// What may come next in a list of different values depends on the set of those read, which goes along with the place:
// back with a rollback, twice with a fork, and into a fresh store.
BOOST_AUTO_TEST_CASE(lists_of_different_values) {
  constraint what;
  what.kind = constraint_kind::json;
  std::string values, all;
  for (int i = 0; i < 64; ++i) {
    const std::string value = i % 4 == 0   ? std::to_string(i)
                              : i % 4 == 1 ? "\"word" + std::to_string(i) + "\""
                              : i % 4 == 2 ? "[" + std::to_string(i) + ",\"x\"]"
                                           : "\"" + std::string(1 + static_cast<std::size_t>(i) / 4, 'e') + "\"";
    values += (i > 0 ? "," : "") + value;
    all = value + (i > 0 ? "," : "") + all;
  }
  what.text = R"({"type":"array","uniqueItems":true,"items":{"enum":[)" + values + "]}}";
  const auto made = compile_constraint(what, real_vocabulary());
  BOOST_REQUIRE(made);
  check_along(*made, R"([4,"word1", [2,"x"],"e" , "word61",60])");
  BOOST_TEST(matches(*made, "[" + all + "]"));
  BOOST_TEST(!matches(*made, "[" + all + ",0]"));
  BOOST_TEST(!matches(*made, R"([4,"word1",4])"));

  const auto ids = [](const std::string& text) { return real_tokenizer().encode(text, encode_mode::plain); };
  const auto take = [&](constraint_matcher& m, const std::string& text) {
    for (const std::int32_t id : ids(text))
      BOOST_REQUIRE(m.accept(id));
  };
  std::vector<std::uint32_t> before(real_vocabulary()->words()), row(before);
  constraint_matcher m(*made);
  take(m, "[4,");
  m.fill(before.data());
  BOOST_TEST(has_bit(before.data(), ids("60")[0]));
  constraint_matcher fork = m;
  take(m, R"("word1",)");
  take(fork, "60,");
  BOOST_TEST(disagreements(m).empty());
  BOOST_TEST(disagreements(fork).empty());
  BOOST_TEST(m.rollback(ids(R"("word1",)").size()));
  m.fill(row.data());
  BOOST_TEST(row == before);
  m.part_from_others();
  m.fill(row.data());
  BOOST_TEST(row == before);
  take(m, R"("word1",60)");
  take(fork, R"("word1")");
  BOOST_TEST(disagreements(m).empty());
  BOOST_TEST(disagreements(fork).empty());
  for (const char* again : {"4", "60", "\"word1\""})
    BOOST_TEST(!matches(*made, R"([4,"word1",60,)" + std::string(again) + "]"));
  // every value is read: the list can only end
  constraint_matcher full(*made);
  for (const char c : "[" + all)
    BOOST_REQUIRE(full.accept(ids(std::string(1, c))[0]));
  BOOST_TEST(disagreements(full).empty());
  BOOST_TEST(!full.accept(ids(",")[0]));
}

// Members that come in any order leave a set of marks behind, which goes along with the place too.
BOOST_AUTO_TEST_CASE(members_in_any_order) {
  constraint what;
  what.kind = constraint_kind::json;
  what.schema.any_order = true;
  what.text = R"({"type":"object","required":["key_7","word_20"],"properties":{)";
  const std::vector<std::string> words{"word_", "some", "key_", "e", "\xE4\xBD\xA0"};
  std::vector<std::string> members;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::string key = "\"" + words[i % 5] + std::to_string(i) + "\"";
    what.text += (i > 0 ? "," : "") + key + (i % 3 == 0 ? R"(:{"type":"integer"})" : R"(:{"type":"string"})");
    members.push_back(key + (i % 3 == 0 ? ":" + std::to_string(i) : ": \"text\""));
  }
  what.text += "}}";
  const auto ids = [](const std::string& text) { return real_tokenizer().encode(text, encode_mode::plain); };
  for (const bool strict : {true, false}) {
    what.schema.strict = strict;
    const auto made = compile_constraint(what, real_vocabulary());
    BOOST_REQUIRE(made);
    check_along(*made, "{" + members[30] + ", " + members[7] + ",\n  " + members[20] + "}");
    std::string all;
    for (std::size_t i = 0; i < 64; ++i)
      all += (i > 0 ? "," : "{") + members[(i * 27 + 5) % 64];
    BOOST_TEST(matches(*made, all + "}"));
    BOOST_TEST(!matches(*made, all + "," + members[9] + "}"));
    constraint_matcher m(*made);
    std::vector<std::uint32_t> before(real_vocabulary()->words()), row(before);
    std::size_t most = 0;
    for (const std::int32_t id : ids(all)) {
      mask_work work;
      BOOST_REQUIRE(m.fill(row.data(), work));
      most = std::max(most, work.done());
      BOOST_REQUIRE(has_bit(row.data(), id));
      BOOST_REQUIRE(m.accept(id));
    }
    BOOST_TEST(most < 60'000u);
    BOOST_TEST(disagreements(m).empty());
    constraint_matcher there(*made);
    const auto take = [&](constraint_matcher& at, const std::string& text) {
      for (const std::int32_t id : ids(text))
        BOOST_REQUIRE_MESSAGE(at.accept(id), text);
    };
    take(there, "{" + members[7] + ",");
    there.fill(before.data());
    constraint_matcher fork = there;
    const std::string more = members[20] + ",";
    take(there, more);
    take(fork, members[21] + ",");
    BOOST_TEST(disagreements(there).empty());
    BOOST_TEST(disagreements(fork).empty());
    BOOST_REQUIRE(there.rollback(ids(more).size()));
    there.fill(row.data());
    BOOST_TEST(row == before);
    there.part_from_others();
    there.fill(row.data());
    BOOST_TEST(row == before);
    take(there, members[21] + "," + members[20]);
    take(fork, members[20]);
    std::vector<std::uint32_t> other(row);
    there.fill(row.data());
    fork.fill(other.data());
    BOOST_TEST(row == other);
    take(there, "}");
    BOOST_TEST(there.can_end());
  }
}

// The members of a large object stand behind every number of blanks: what is known of them is taken over, so that no
// mask has to look at all of them for each blank of a long token.
BOOST_AUTO_TEST_CASE(large_objects) {
  constraint what;
  what.kind = constraint_kind::json;
  for (int i = 0; i < 1000; ++i)
    what.text += (i > 0 ? ",\"property_" : "{\"type\":\"object\",\"properties\":{\"property_") + std::to_string(i) +
                 R"(":{"type":"integer"})";
  what.text += "}}";
  for (const bool strict : {true, false}) {
    what.schema.strict = strict;
    const auto made = compile_constraint(what, real_vocabulary());
    BOOST_REQUIRE(made);
    constraint_matcher m(*made);
    std::vector<std::uint32_t> row(real_vocabulary()->words());
    std::size_t most = 0, states = 0;
    const std::string text = "{\n    \"property_0\": 1,\n    \"property_17\": 20, \"property_998\":-3}";
    for (const std::int32_t id : real_tokenizer().encode(text, encode_mode::plain)) {
      mask_work work;
      m.fill(row.data(), work);
      most = std::max(most, work.done());
      if (states++ % 6 == 0)
        BOOST_TEST(disagreements(m).empty());
      BOOST_REQUIRE(m.accept(id));
    }
    BOOST_TEST(m.can_end());
    BOOST_TEST(most < 300'000u);
    BOOST_TEST(!matches(*made, R"({"property_17":1, "property_0":1})"));
  }
}

// What is known is not taken over where the same rules can be read before it too.
BOOST_AUTO_TEST_CASE(large_choices_in_and_behind_a_rule) {
  const auto grammar = built([](grammar_builder& b) {
    std::vector<grammar_expr> words;
    for (int i = 0; i < 200; ++i)
      words.push_back(b.call(b.define("word", b.literal("w" + std::to_string(i) + ";"))));
    const grammar_expr word = b.call(b.define("choice", b.alternatives(words)));
    const grammar_rule inner = b.define(
        "inner", b.sequence({b.repeat(b.literal(" "), 0, 300), b.optional(word), b.repeat(b.literal("."), 0, 2)}));
    return b.sequence({b.literal("["), b.call(inner), word, b.literal("]")});
  });
  BOOST_TEST(matches(grammar, "[w5;.w7;]")); // what follows `inner` alone is known from here on
  for (const char* right : {"[w5;]", "[w5;w5;]", "[  w5;]", "[   w199;w0;]", "[ w1;..w2;]", "[ ..w2;]", "[.w3;]"})
    BOOST_TEST(matches(grammar, right), right);
  for (const char* wrong : {"[]", "[ ]", "[w5;.]", "[ w1;w2;w3;]", "[. w1;]", "[w200;]", "[ w1;...w2;]"})
    BOOST_TEST(!matches(grammar, wrong), wrong);
  check_along(grammar, "[    w5;.w17;]");
}

BOOST_AUTO_TEST_CASE(ids_without_text) {
  const auto grammar = built([](grammar_builder& b) { return b.json_string(0); });
  constraint_matcher m(grammar);
  BOOST_TEST(m.accept(real_tokenizer().encode("\"", encode_mode::plain)[0]));
  std::vector<std::uint32_t> row(real_vocabulary()->words());
  m.fill(row.data());
  for (const std::int32_t id : {0, 1, 2, 128000, 128006, 128803, 128814, 129279}) // special, added, end
    BOOST_TEST(!has_bit(row.data(), id), "id " << id);
}

// A vocabulary that is padded to the model's ids (report SO-17): rows have the model's width, ids without a token bit
// 0.
BOOST_AUTO_TEST_CASE(padded_vocabulary) {
  const auto padded = token_vocabulary::of(embedded_tokenizer(), embedded_tokenizer().vocab_size() + 77);
  compile_budget budget;
  grammar_builder builder(budget);
  const auto grammar = compile_grammar(builder, builder.define("root", builder.json_string(0)), padded);
  constraint_matcher m(grammar);
  BOOST_TEST(padded->words() == (8192u + 77 + 31) / 32);
  BOOST_TEST(m.accept(embedded_tokenizer().encode("\"", encode_mode::plain)[0]));
  BOOST_TEST(disagreements(m).empty());
  BOOST_CHECK_THROW((void)token_vocabulary::of(embedded_tokenizer(), 8191), config_error);
}

// When frontiers and masks outgrow their room, matchers move to a fresh store and nothing changes.
BOOST_AUTO_TEST_CASE(stores_are_exchanged) {
  const auto network = [] {
    compile_budget budget;
    grammar_builder b(budget);
    const grammar_rule value = b.declare("value");
    b.define(value, b.alternatives({b.sequence({b.literal("["), b.call(value), b.literal("]")}), b.json_string(1, 300),
                                    b.literal("x")}));
    return make_rule_network(b, value, budget);
  };
  const auto roomy = std::make_shared<const compiled_grammar>(network(), embedded_vocabulary(), compile_limits{});
  const auto tight =
      std::make_shared<const compiled_grammar>(network(), embedded_vocabulary(), compile_limits{}, 40'000);
  constraint_matcher a(roomy), b(tight);
  std::vector<std::uint32_t> row(embedded_vocabulary()->words()), other(row);
  std::string text(60, '[');
  text += "\"some text of some length in here\"" + std::string(60, ']');
  const auto first = tight->masks();
  for (const std::int32_t id : embedded_tokenizer().encode(text, encode_mode::plain)) {
    a.fill(row.data());
    b.fill(other.data());
    BOOST_TEST(row == other);
    BOOST_TEST(a.accept(id));
    BOOST_TEST(b.accept(id));
  }
  BOOST_TEST(b.can_end());
  BOOST_TEST((tight->masks() != first), "the store was never exchanged");
  BOOST_TEST(b.rollback(10));
  BOOST_TEST(a.rollback(10));
  a.fill(row.data());
  b.fill(other.data());
  BOOST_TEST(row == other);
}

BOOST_AUTO_TEST_SUITE_END()
