// Soundness against an independent validator: whatever a grammar reads or spells satisfies its schema.
#include "tests/runtime/grammar/schema_support.hpp"
#include "tests/support/json_validator.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::testing;

namespace {

// Random schemas over few keys and values, so that keywords meet each other.
class schema_source {
public:
  explicit schema_source(unsigned seed) : random_(seed) {}

  std::string schema(int depth) {
    if (depth == 0 || one_in(12))
      return pick({"true", "{}", R"({"type":"integer"})", R"({"type":"string"})", R"({"const":1})",
                   R"({"enum":["a",2,null]})", "false", R"({"type":"boolean"})", R"({"type":["null","array"]})"});
    std::vector<std::string> parts;
    const auto add = [&](const std::string& key, const std::string& value) {
      parts.push_back("\"" + key + "\":" + value);
    };
    const auto sub = [&] { return schema(depth - 1); };
    if (!one_in(3))
      add("type", pick({R"("object")", R"("array")", R"("string")", R"("number")", R"("integer")",
                        R"(["object","array"])", R"(["integer","string","null"])"}));
    for (std::size_t n = 1 + random_() % 3; n > 0; --n) {
      switch (random_() % 30) {
      case 0:
        add("properties", map(sub));
        break;
      case 1:
        add("properties", map(sub));
        add("required", keys());
        break;
      case 2:
        add("required", keys());
        break;
      case 3:
        add("additionalProperties", sub());
        break;
      case 4:
        add("patternProperties", "{\"" + pattern() + "\":" + sub() + "}");
        break;
      case 5:
        add("propertyNames", pick({R"({"maxLength":1})", R"({"pattern":"^[ab]"})", R"({"enum":["a","c"]})", sub()}));
        break;
      case 6:
        add("minProperties", count());
        break;
      case 7:
        add("maxProperties", count());
        break;
      case 8:
        add("items", sub());
        break;
      case 9:
        add("prefixItems", list(sub));
        break;
      case 10:
        add("minItems", count());
        break;
      case 11:
        add("maxItems", count());
        break;
      case 12:
        add("contains", sub());
        if (one_in(2))
          add("minContains", count());
        if (one_in(3))
          add("maxContains", count());
        break;
      case 13:
        add("minimum", number());
        break;
      case 14:
        add("maximum", number());
        break;
      case 15:
        add("exclusiveMinimum", number());
        break;
      case 16:
        add("multipleOf", pick({"2", "0.5", "3"}));
        break;
      case 17:
        add("minLength", count());
        break;
      case 18:
        add("maxLength", count());
        break;
      case 19:
        add("pattern", "\"" + pattern() + "\"");
        break;
      case 20:
        add("allOf", list(sub));
        break;
      case 21:
        add("anyOf", list(sub));
        break;
      case 22:
        add("oneOf", list(sub));
        break;
      case 23:
        add("not", sub());
        break;
      case 24:
        add("if", sub());
        add("then", sub());
        if (one_in(2))
          add("else", sub());
        break;
      case 25:
        add("dependentRequired", "{\"a\":" + keys() + "}");
        break;
      case 26:
        add("dependentSchemas", map(sub));
        break;
      case 27:
        add("enum", "[" + value(2) + "," + value(1) + "," + value(1) + "]");
        break;
      case 28:
        add(one_in(2) ? "unevaluatedProperties" : "unevaluatedItems", sub());
        break;
      case 29:
        add("uniqueItems", "true");
        add("items", R"({"enum":[1,1.0,"a",[1],{"a":1}]})");
        break;
      }
    }
    std::string out;
    for (const std::string& part : parts)
      out += (out.empty() ? "{" : ",") + part;
    return out.empty() ? "{}" : out + "}";
  }

  // Branches of one place that overlap, below or beside what must not be left unevaluated: nearly alike, so that a
  // value of one is often one of another.
  std::string overlapping(int depth) {
    const bool object = one_in(2);
    std::vector<std::string> parts;
    const auto add = [&](const std::string& key, const std::string& value) {
      parts.push_back("\"" + key + "\":" + value);
    };
    const auto leaf = [&] { return pick({"true", R"({"type":"integer"})", R"({"type":"string"})", R"({"const":1})"}); };
    const auto branch = [&] {
      return depth > 0 && !one_in(3)
                 ? overlapping(depth - 1)
                 : pick({R"({"required":["a"]})", R"({"minItems":1})", R"({"properties":{"a":true}})", leaf()});
    };
    if (one_in(2))
      add("type", object ? "\"object\"" : "\"array\"");
    if (object) {
      if (!one_in(4))
        add("properties", map(leaf));
      if (!one_in(3))
        add("required", keys());
    } else {
      if (!one_in(3))
        add("prefixItems", list(leaf));
      if (one_in(2))
        add("minItems", count());
      if (one_in(4))
        add("contains", leaf());
    }
    if (depth > 0 && !one_in(3))
      add("oneOf", list(branch));
    if (depth > 0 && one_in(4))
      add("anyOf", list(branch));
    if (depth > 0 && one_in(5))
      add("allOf", list(branch));
    if (depth > 0 && one_in(6))
      add("if", branch());
    if (depth > 0 && one_in(6))
      add("dependentSchemas", map(branch));
    if (one_in(depth > 0 ? 2 : 4))
      add(object ? "unevaluatedProperties" : "unevaluatedItems", one_in(3) ? leaf() : "false");
    std::string out;
    for (const std::string& part : parts)
      out += (out.empty() ? "{" : ",") + part;
    return out.empty() ? "{}" : out + "}";
  }

  std::string value(int depth) {
    if (depth == 0 || one_in(3))
      return pick(
          {"null", "true", "false", "0", "1", "2", "-3", "1.5", "10", "\"\"", "\"a\"", "\"b\"", "\"ab\"", "\"abc\""});
    std::string out;
    const std::size_t n = random_() % 4;
    if (one_in(2)) {
      for (std::size_t i = 0; i < n; ++i)
        out += (i ? "," : "") + value(depth - 1);
      return "[" + out + "]";
    }
    const auto add = [&](const std::string& name) {
      out += (out.empty() ? "\"" : ",\"") + name + "\":" + value(depth - 1);
    };
    const char* names[] = {"a", "b", "c", "ab"};
    for (const char* name : names)
      if (one_in(2))
        add(name);
    if (one_in(3)) // perhaps for the second time: the last value counts
      add(pick({"a", "b", "c", "ab", "\\u0061", "\\u0063"}));
    return "{" + out + "}";
  }

  std::mt19937& random() { return random_; }

private:
  bool one_in(unsigned n) { return random_() % n == 0; }
  std::string pick(std::vector<std::string> from) { return from[random_() % from.size()]; }
  std::string count() { return std::to_string(random_() % 4); }
  std::string number() { return pick({"-3", "0", "1", "1.5", "2", "10"}); }
  std::string pattern() { return pick({"^a", "b$", "^[ab]*$", "a.?b", "^.{1,2}$"}); }
  std::string keys() { return pick({R"(["a"])", R"(["b"])", R"(["a","b"])", R"(["c","a"])", "[]"}); }
  std::string list(const auto& sub) {
    std::string out = "[" + sub();
    for (std::size_t n = random_() % 3; n > 0; --n)
      out += "," + sub();
    return out + "]";
  }
  std::string map(const auto& sub) {
    std::string out;
    for (const char* name : {"a", "b", "ab"})
      if (one_in(2))
        out += (out.empty() ? "{\"" : ",\"") + std::string(name) + "\":" + sub();
    return out.empty() ? "{}" : out + "}";
  }

  std::mt19937 random_;
};

struct tally {
  std::size_t schemas = 0, refused = 0, empty = 0, words = 0, valid = 0, accepted = 0;
};

void judge(const std::string& schema, const json_schema_options& options, schema_source& source, tally& t) {
  ++t.schemas;
  const compiled_schema compiled(schema, options);
  if (!compiled.grammar) {
    ++(compiled.refused() ? t.refused : t.empty);
    BOOST_TEST((!compiled.refused() || compiled.failure.message.find('#') != std::string::npos),
               schema << " refused without a path: " << compiled.outcome());
  }
  const json_validator validator(schema);
  for (int i = 0; compiled.grammar && i < 12; ++i) {
    const auto word = random_word(*compiled.grammar, source.random());
    if (!word)
      continue;
    try {
      BOOST_TEST(validator.valid(*word), schema << " spells " << *word);
      ++t.words;
    } catch (const std::range_error&) { // digits that the validator cannot count
    }
  }
  for (int i = 0; i < 25 && !compiled.refused(); ++i) {
    const std::string text = source.value(3);
    const bool valid = validator.valid(text), accepted = compiled.accepts(text);
    t.valid += valid;
    t.accepted += accepted;
    BOOST_TEST((valid || !accepted), schema << " accepts " << text);
  }
}

} // namespace

BOOST_AUTO_TEST_SUITE(json_schema_soundness)

BOOST_AUTO_TEST_CASE(random_schemas_are_never_widened) {
  for (const bool strict : {false, true}) {
    tally t;
    for (unsigned seed = 0; seed < 700; ++seed) {
      schema_source source(seed);
      json_schema_options options{.strict = strict, .max_whitespace = 1, .infer_type = strict};
      judge(source.schema(3), options, source, t);
    }
    BOOST_TEST_MESSAGE((strict ? "strict: " : "open: ")
                       << t.schemas << " schemas, " << t.refused << " refused, " << t.empty << " unsatisfiable; "
                       << t.words << " words all valid; " << t.accepted << " of " << t.valid
                       << " valid values accepted");
    BOOST_TEST(t.refused * 10 < t.schemas);
    BOOST_TEST(t.words > 2000);
    if (!strict)
      BOOST_TEST(t.accepted * 100 >= t.valid * 95);
  }
}

BOOST_AUTO_TEST_CASE(overlapping_branches_are_never_widened) {
  tally t;
  for (unsigned seed = 0; seed < 1500; ++seed) {
    schema_source source(seed);
    judge(source.overlapping(2), {.strict = false, .max_whitespace = 1, .infer_type = false}, source, t);
  }
  BOOST_TEST_MESSAGE(t.schemas << " schemas, " << t.refused << " refused, " << t.empty << " unsatisfiable; " << t.words
                               << " words all valid; " << t.accepted << " of " << t.valid << " valid values accepted");
  BOOST_TEST(t.refused * 3 < t.schemas);
  BOOST_TEST(t.words > 2000);
}

// Lists of different values, up to 64 of them, beside listed items and counts: against the validator, and nothing that
// is allowed leads into a place from which the list cannot be completed.
BOOST_AUTO_TEST_CASE(different_items_of_many_values) {
  std::size_t words = 0, valid = 0, empty = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    std::vector<std::string> values;
    for (int i = 0; i < 16; ++i)
      for (const std::string& v : {std::to_string(i) + (i % 3 == 0 ? ".0" : ""), "\"a" + std::to_string(i) + "\"",
                                   "[" + std::to_string(i) + "]", "{\"a\":" + std::to_string(i) + "}"})
        values.push_back(v);
    std::shuffle(values.begin(), values.end(), random);
    values.resize(below(4) == 0 ? 64 : 1 + below(20));
    const auto some = [&] {
      std::string out;
      const std::size_t part = 1 + below(4);
      for (const std::string& v : values)
        if (below(part) == 0)
          out += (out.empty() ? "" : ",") + v;
      return R"({"enum":[)" + out + "]}";
    };
    std::string schema = R"({"type":"array","uniqueItems":true)";
    std::size_t listed = 0;
    if (below(2) == 0) {
      schema += R"(,"prefixItems":[)" + some();
      for (listed = 1 + below(4); listed > 1 && below(4) != 0; --listed)
        schema += "," + some();
      schema += "]";
    }
    schema += below(6) == 0 && listed > 0 ? R"(,"items":false)" : ",\"items\":" + some();
    if (below(2) == 0)
      schema += ",\"minItems\":" + std::to_string(below(6));
    if (below(2) == 0)
      schema += ",\"maxItems\":" + std::to_string(1 + below(8));
    schema += "}";
    const compiled_schema compiled(schema, {.strict = false, .max_whitespace = 1});
    BOOST_TEST_REQUIRE(!compiled.refused(), schema << ": " << compiled.outcome());
    const json_validator validator(schema);
    std::vector<std::string> texts; // of items out of the values, repeated ones too
    for (int i = 0; i < 60; ++i) {
      std::string text;
      for (std::size_t n = below(8); n > 0; --n)
        text += (text.empty() ? "" : ",") + values[below(values.size())];
      texts.push_back("[" + text + "]");
    }
    for (const std::string& text : texts) {
      const bool right = validator.valid(text);
      valid += right;
      BOOST_TEST(compiled.accepts(text) == right, schema << ": " << text);
    }
    if (!compiled.grammar) {
      ++empty;
      continue;
    }
    for (int i = 0; i < 4; ++i) {
      const auto word = random_word(*compiled.grammar, random, 10'000);
      BOOST_TEST_REQUIRE(word.has_value(), schema << " leads into a dead end");
      BOOST_TEST(validator.valid(*word), schema << " spells " << *word);
      ++words;
    }
  }
  BOOST_TEST_MESSAGE(words << " words all valid, " << valid << " valid texts accepted, " << empty << " unsatisfiable");
  BOOST_TEST(words > 1000u);
  BOOST_TEST(valid > 1000u);
  BOOST_TEST(empty < 100u);
}

// Objects whose members come in any order, with counts, needed members and such as are not declared: against the
// validator, and nothing that is allowed leads into a place from which the object cannot be completed.
BOOST_AUTO_TEST_CASE(members_in_any_order) {
  std::size_t words = 0, valid = 0, accepted = 0, refused = 0, empty = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < 64; ++i)
      keys.push_back(std::string(1 + i / 26, static_cast<char>('a' + i % 26)));
    std::shuffle(keys.begin(), keys.end(), random);
    keys.resize(below(5) == 0 ? 64 : below(12));
    std::string schema = R"({"type":"object")", properties, required;
    for (const std::string& key : keys) {
      properties += (properties.empty() ? "\"" : ",\"") + key + "\":" +
                    std::vector<std::string>{R"({"type":"integer"})", R"({"type":["string","integer"]})",
                                             R"({"const":"x"})", R"({"enum":[1,"x"]})"}[below(4)];
      if (below(4) == 0)
        required += (required.empty() ? "\"" : ",\"") + key + "\"";
    }
    schema += ",\"properties\":{" + properties + "}";
    if (below(3) == 0)
      required += std::string(required.empty() ? "" : ",") + "\"z1\"";
    schema += ",\"required\":[" + required + "]";
    const bool is_closed = below(2) == 0;
    if (is_closed)
      schema += R"(,"additionalProperties":false)";
    else
      schema += R"(,"additionalProperties":{"type":["integer","string"]})";
    if (below(2) == 0)
      schema += ",\"minProperties\":" + std::to_string(below(7));
    if (below(2) == 0)
      schema += ",\"maxProperties\":" + std::to_string(2 + below(8));
    if (below(8) == 0)
      schema += R"(,"propertyNames":{"pattern":"^[a-mz]"})";
    if (below(8) == 0)
      schema += R"(,"not":{"patternProperties":{"^[a-f]":{"type":"integer"}}})";
    schema += "}";
    const compiled_schema compiled(schema, {.strict = false, .max_whitespace = 1, .any_order = true});
    const json_validator validator(schema);
    if (compiled.refused()) {
      ++refused;
      BOOST_TEST(compiled.failure.message.find('#') != std::string::npos, schema << ": " << compiled.outcome());
      continue;
    }
    for (int i = 0; i < 60; ++i) {
      std::string text;
      std::vector<std::string> written;
      for (std::size_t n = below(8); n > 0; --n) {
        const std::string key =
            keys.empty() || below(4) == 0 ? std::string("z") + std::to_string(below(4)) : keys[below(keys.size())];
        written.push_back(key);
        text += (text.empty() ? "\"" : ",\"") + key + "\":" + (below(2) == 0 ? "1" : "\"x\"");
      }
      text = "{" + text + "}";
      std::sort(written.begin(), written.end());
      const bool once = std::adjacent_find(written.begin(), written.end()) == written.end();
      const bool right = validator.valid(text), taken = compiled.accepts(text);
      valid += right && once;
      accepted += taken && once;
      BOOST_TEST((right || !taken), schema << " accepts " << text);
      if (is_closed && once && schema.find("\"not\"") == std::string::npos)
        BOOST_TEST(taken == right, schema << " refuses " << text);
    }
    if (!compiled.grammar) {
      ++empty;
      continue;
    }
    for (int i = 0; i < 4; ++i) {
      const auto word = random_word(*compiled.grammar, random, 20'000);
      if (!word && !is_closed) // it grew too long before a needed key came
        continue;
      BOOST_TEST_REQUIRE(word.has_value(), schema << " leads into a dead end");
      try {
        BOOST_TEST(validator.valid(*word), schema << " spells " << *word);
        ++words;
      } catch (const std::range_error&) { // digits that the validator cannot count
      }
    }
  }
  BOOST_TEST_MESSAGE(words << " words all valid, " << accepted << " of " << valid << " valid texts accepted, "
                           << refused << " refused, " << empty << " unsatisfiable");
  BOOST_TEST(words > 300u);
  BOOST_TEST(accepted * 100 > valid * 90);
  BOOST_TEST(refused < 20u);
}

BOOST_AUTO_TEST_CASE(formats_spell_what_they_name) {
  std::mt19937 random(3);
  for (const char* format : {"date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uri",
                             "uri-reference", "uuid", "json-pointer", "relative-json-pointer"}) {
    const std::string schema = R"({"type":"string","format":")" + std::string(format) + R"("})";
    const compiled_schema compiled(schema);
    BOOST_REQUIRE_MESSAGE(compiled.grammar, format << ": " << compiled.outcome());
    const json_validator validator(schema);
    std::size_t words = 0;
    for (int i = 0; i < 60; ++i)
      if (const auto word = random_word(*compiled.grammar, random)) {
        ++words;
        BOOST_TEST(validator.valid(*word), format << ": " << *word);
      }
    BOOST_TEST(words > 10, format << " has few words");
  }
}

BOOST_AUTO_TEST_CASE(formats_know_their_limits) {
  const auto has = [](const char* format, const std::string& text) {
    return compiled_schema(R"({"type":"string","format":")" + std::string(format) + R"("})")
        .accepts("\"" + text + "\"");
  };
  BOOST_TEST(has("date", "2024-02-29"));
  BOOST_TEST(has("date", "2000-02-29"));
  BOOST_TEST(!has("date", "2023-02-29"));
  BOOST_TEST(!has("date", "1900-02-29"));
  BOOST_TEST(!has("date", "2024-02-30"));
  BOOST_TEST(!has("date", "2024-04-31"));
  BOOST_TEST(has("time", "23:59:60.5+01:30"));
  BOOST_TEST(!has("time", "23:59:59"));
  BOOST_TEST(has("date-time", "2024-12-31T00:00:00Z"));
  BOOST_TEST(!has("date-time", "2024-12-31 00:00:00Z"));
  BOOST_TEST(has("duration", "P1Y2M3DT4H5M6S"));
  BOOST_TEST(has("duration", "PT5M"));
  BOOST_TEST(!has("duration", "P"));
  BOOST_TEST(!has("duration", "P1Y2D"));
  BOOST_TEST(has("ipv4", "255.0.10.199"));
  BOOST_TEST(!has("ipv4", "256.0.0.1"));
  BOOST_TEST(!has("ipv4", "01.0.0.1"));
  BOOST_TEST(has("ipv6", "::"));
  BOOST_TEST(has("ipv6", "1:2:3:4:5:6:7:8"));
  BOOST_TEST(has("ipv6", "1::8"));
  BOOST_TEST(has("ipv6", "::ffff:1.2.3.4"));
  BOOST_TEST(!has("ipv6", "1::2::3"));
  BOOST_TEST(!has("ipv6", "1:2:3:4:5:6:7"));
  BOOST_TEST(!has("ipv6", "12345::"));
  BOOST_TEST(has("hostname", "a-b.example.com"));
  BOOST_TEST(has("hostname", std::string(63, 'a') + ".com"));
  BOOST_TEST(!has("hostname", std::string(64, 'a') + ".com"));
  BOOST_TEST(!has("hostname", "-a.com"));
  BOOST_TEST(!has("hostname", "a..com"));
  const std::string label = std::string(62, 'a') + ".";
  BOOST_TEST(!has("hostname", label + label + label + label + "ab"));
  BOOST_TEST(has("email", "a.b+c@example.com"));
  BOOST_TEST(has("email", "\\\"a b\\\"@[1.2.3.4]"));
  BOOST_TEST(!has("email", "a@b@c"));
  BOOST_TEST(!has("email", ".a@b"));
  BOOST_TEST(has("uri", "https://user@host:80/a/b?c=d#e"));
  BOOST_TEST(has("uri", "urn:a:b"));
  BOOST_TEST(has("uri", "http://[V1.a]/"));
  BOOST_TEST(!has("uri", "/relative"));
  BOOST_TEST(!has("uri", "http://a b"));
  BOOST_TEST(has("uri-reference", "../a?b#c"));
  BOOST_TEST(has("uri-reference", ""));
  BOOST_TEST(has("uri-template", "/a/{id}{?x,y*}"));
  BOOST_TEST(!has("uri-template", "/a/{id"));
  BOOST_TEST(has("uri-template", "\u00e9\U0001f600"));
  BOOST_TEST(!has("uri-template", "\ufdd0"));
  BOOST_TEST(!has("uri-template", "\U000e0001"));
  BOOST_TEST(has("uuid", "123e4567-e89b-12d3-a456-426614174000"));
  BOOST_TEST(!has("uuid", "123e4567e89b12d3a456426614174000"));
  BOOST_TEST(has("json-pointer", "/a~1b/0"));
  BOOST_TEST(!has("json-pointer", "/a~2"));
  BOOST_TEST(has("relative-json-pointer", "1#"));
  BOOST_TEST(has("no such format", "anything"));
}

BOOST_AUTO_TEST_SUITE_END()
