// Limits of compiling (structured_output.md §8.7) as the machine sees them: processor time and peak memory of hostile
// constraints, each compiled in a process of its own. Bounds of time leave room beyond what was seen for slow machines;
// most of what they are there to find took minutes.
#include "runtime/grammar/constraint.hpp"
#include "runtime/grammar/loop_table.hpp"
#include "tests/runtime/grammar/grammar_support.hpp"
#include <cstring>
#include <ctime>
#include <functional>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace troupe;
using namespace troupe::testing;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool measures = false; // their own memory and time count too
#else
constexpr bool measures = true;
#endif

struct outcome {
  char code[32] = "compiled";
  double seconds = 0;
  long kilobytes = 0; // at the peak, more than before
};

double processor_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

long peak_kilobytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

outcome compile_apart(constraint_kind kind, const std::string& text, double most_seconds) {
  int ends[2];
  BOOST_REQUIRE(::pipe(ends) == 0);
  const auto vocabulary = small_vocabulary();
  const pid_t child = ::fork();
  if (child == 0) {
    outcome o;
    const long before = peak_kilobytes();
    const double start = processor_seconds();
    constraint what;
    what.kind = kind;
    what.text = text;
    const auto made =
        compile_constraint(what, vocabulary, {}, [&] { return processor_seconds() - start > most_seconds; });
    if (!made)
      std::strncpy(o.code, made.failure().code.c_str(), sizeof(o.code) - 1);
    o.seconds = processor_seconds() - start;
    o.kilobytes = peak_kilobytes() - before;
    const bool written = ::write(ends[1], &o, sizeof(o)) == sizeof(o);
    ::_exit(written ? 0 : 1);
  }
  outcome o;
  ::close(ends[1]);
  BOOST_REQUIRE(::read(ends[0], &o, sizeof(o)) == sizeof(o));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return o;
}

std::string list(std::size_t count, const std::function<std::string(std::size_t)>& item) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i)
    out += (i > 0 ? "," : "") + item(i);
  return out;
}

std::string number(std::size_t i) {
  return std::to_string(i);
}

// Every second character from `first` on.
std::string characters(std::size_t count, bool backwards, const std::string& before = {},
                       const std::string& behind = {}, char32_t first = 0x10000) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i)
    out += before + to_utf8(std::u32string(1, first + static_cast<char32_t>(2 * (backwards ? count - 1 - i : i)))) +
           behind;
  return out;
}

struct hostile {
  const char* name;
  constraint_kind kind;
  std::string text;
  bool compiles = false; // in time
};

std::vector<hostile> hostile_constraints() {
  using kind = constraint_kind;
  const std::string long_key(1 << 20, 'k'), digits(1 << 20, '7');
  return {
      {"required names", kind::json,
       R"({"type":"object","required":[)" + list(200'000, [](std::size_t i) { return "\"k" + number(i) + "\""; }) +
           "]}"},
      {"required and dependent names", kind::json,
       R"({"dependentRequired":{"a":["b"],"c":["d"],"e":["f"],"g":["h"],"i":["j"],"k":["l"]},"required":[)" +
           list(100'000, [](std::size_t i) { return "\"k" + number(i) + "\""; }) + "]}"},
      {"properties", kind::json,
       R"({"type":"object","properties":{)" + list(50'000, [](std::size_t i) { return "\"k" + number(i) + "\":{}"; }) +
           "}}"},
      {"schemas of one property", kind::json,
       R"({"allOf":[)" +
           list(50'000, [](std::size_t i) { return R"({"properties":{"a":{"minimum":)" + number(i) + "}}}"; }) + "]}",
       true},
      {"excluded numbers", kind::json, R"({"type":"number","not":{"enum":[)" + list(100'000, number) + "]}}"},
      {"values and excluded values", kind::json,
       R"({"enum":[)" + list(100'000, number) + R"(],"not":{"enum":[)" +
           list(100'000, [](std::size_t i) { return number(i + 1'000'000); }) + "]}}"},
      {"objects as values", kind::json,
       R"({"allOf":[{"enum":[)" + list(50'000, [](std::size_t i) { return R"({"a":)" + number(i) + "}"; }) +
           R"(]},{"enum":[)" + list(50'000, [](std::size_t i) { return R"({"a":)" + number(i + 25'000) + "}"; }) +
           "]}]}"},
      {"many small values", kind::json, R"({"enum":[)" + list(2'000'000, [](std::size_t) { return "0"; }) + "]}"},
      {"many strings", kind::json,
       R"({"enum":[)" + list(450'000, [](std::size_t i) { return "\"" + number(i) + "\""; }) + "]}"},
      {"excluded values", kind::json, R"({"not":{"enum":[)" + list(450'000, number) + "]}}"},
      {"negated branches", kind::json,
       R"({"not":{"oneOf":[)" + list(4'000, [](std::size_t i) { return R"({"minimum":)" + number(i) + "}"; }) + "]}}"},
      {"unevaluated properties of many branches", kind::json,
       R"({"unevaluatedProperties":false,"properties":{)" +
           list(5'000, [](std::size_t i) { return "\"" + number(i) + "\":{}"; }) + R"(},"allOf":[)" +
           list(20'000, [](std::size_t i) { return R"({"title":")" + number(i) + "\"}"; }) + "]}"},
      {"references from a long address", kind::json,
       R"({"$id":"a:/)" + long_key + R"(/","$defs":{"x":{"$id":"x"}},"properties":{)" +
           list(100'000, [](std::size_t i) { return "\"" + number(i) + R"(":{"$ref":"x"})"; }) + "}}"},
      {"classes of a pattern", kind::json,
       R"({"type":"string","pattern":"^)" + characters(19'000, false, "[^", "]") + "\"}"},
      {"optional classes of a pattern", kind::json,
       R"({"type":"string","pattern":"^(?:[)" + characters(100'000, false) + R"(]?){1000}$"})"},
      {"empty branches of a pattern", kind::json, R"({"type":"string","pattern":"^(?:[ab]{1,15000})(?:()?){50000}$"})"},
      {"long values of a pattern", kind::json,
       R"({"type":"array","uniqueItems":true,"items":{"type":"string","pattern":"^[a-h][a-h]x{15000}$"}})"},
      {"long key above many", kind::json,
       R"({"properties":{")" + long_key + R"(":{"properties":{)" +
           list(100'000, [](std::size_t i) { return "\"" + number(i) + "\":{}"; }) + "}}}}"},
      {"overlapping branches", kind::json,
       R"({"oneOf":[)" + list(4'000, [](std::size_t i) { return R"({"minimum":)" + number(i) + "}"; }) + "]}"},
      {"long divisor", kind::json, R"({"enum":[)" + digits + digits + R"(],"multipleOf":)" + digits + "}"},
      {"class", kind::regex, "[" + characters(300'000, false) + "]"},
      {"class backwards", kind::regex, "[" + characters(300'000, true) + "]"},
      {"class of a grammar", kind::ebnf, "root ::= [" + characters(300'000, true) + "]"},
      {"letters", kind::regex, std::string(4 << 20, 'a')},
      {"ambiguous repetition", kind::regex, "[a-z]{0,300}a[a-z]{300}", true},
      {"excluded strings and tags", kind::ebnf,
       "x ::= \"1\"\nroot ::= TagDispatch(" + list(80'000, [](std::size_t i) { return "(\"" + number(i) + "\",x)"; }) +
           ",excludes=(" + list(80'000, [](std::size_t i) { return "\"x" + number(i) + "\""; }) + "))"},
      {"wide characters", kind::ebnf,
       [] {
         std::string text = "x ::= [acegikmoqsuwyACEGIKMOQSUWY02468!#%&(*,.:<>@_]\nroot ::=";
         for (int rule = 0; rule < 25; ++rule)
           text += " r" + std::to_string(rule);
         for (int rule = 0; rule < 25; ++rule) {
           text += "\nr" + std::to_string(rule) + " ::=";
           for (int i = 0; i < 19'000; ++i)
             text += " x";
         }
         return text;
       }(),
       true},
  };
}

} // namespace

BOOST_AUTO_TEST_SUITE(compile_limits_in_the_machine)

BOOST_AUTO_TEST_CASE(hostile_constraints_stay_within_time_and_memory) {
  if (!measures) {
    BOOST_TEST_MESSAGE(
        "skipped: the sanitizer's own time and memory would be measured; the case below compiles the same");
    return;
  }
  for (const hostile& h : hostile_constraints()) {
    constexpr double limit = 2;
    const outcome o = compile_apart(h.kind, h.text, limit);
    const std::string_view code = o.code;
    BOOST_TEST_MESSAGE(h.name << ": " << code << ", " << o.seconds << " s, " << o.kilobytes / 1024 << " MiB");
    BOOST_TEST_CONTEXT(h.name) {
      BOOST_TEST(o.seconds < limit + 3);
      // A slow machine may reach the limit of time before anything else.
      BOOST_TEST((code == "so_timeout" ? o.seconds > limit : code == (h.compiles ? "compiled" : "so_too_complex")),
                 code);
      BOOST_TEST(o.kilobytes < 256 * 1024);
    }
  }
}

// Wishes to cancel are heard at once, wherever the compilation is.
BOOST_AUTO_TEST_CASE(hostile_constraints_can_be_cancelled) {
  for (const hostile& h : hostile_constraints()) {
    const outcome o = compile_apart(h.kind, h.text, 0);
    const std::string_view code = o.code;
    BOOST_TEST_MESSAGE(h.name << ": " << code << ", " << o.seconds << " s");
    BOOST_TEST_CONTEXT(h.name) {
      BOOST_TEST((code == "so_timeout" || code == "so_too_complex"), code);
      BOOST_TEST((!measures || o.seconds < 3));
    }
  }
}

// Loops over ever new characters: their tables go with the grammars, but for the last ones.
BOOST_AUTO_TEST_CASE(tables_of_loops_are_given_back) {
  const auto vocabulary = token_vocabulary::of(embedded_tokenizer(), embedded_tokenizer().vocab_size());
  std::vector<std::weak_ptr<const loop_table>> made;
  std::vector<std::uint32_t> row(vocabulary->words());
  std::size_t made_bytes = 0;
  for (char32_t c = 0x4E00; made_bytes < 3 * token_vocabulary::kept_table_bytes; ++c) {
    constraint what;
    what.kind = constraint_kind::regex;
    what.text = "[^" + to_utf8(std::u32string(1, c)) + "]*";
    const auto grammar = compile_constraint(what, vocabulary);
    BOOST_REQUIRE(grammar);
    const std::size_t before = (*grammar)->bytes();
    constraint_matcher(*grammar).fill(row.data());
    const auto table = vocabulary->known_table((*grammar)->network().round_dfas.at(0));
    BOOST_REQUIRE(table);
    BOOST_REQUIRE((*grammar)->bytes() > before + table->bytes() / 8); // the grammar's share of it
    made_bytes += table->bytes();
    made.push_back(table);
  }
  std::size_t alive = 0;
  for (const auto& m : made)
    if (const auto table = m.lock())
      alive += table->bytes();
  BOOST_TEST(alive <= token_vocabulary::kept_table_bytes);
  BOOST_TEST(!made.back().expired());
  // where they are small, not very many: each use looks at all
  const std::vector<std::string_view> texts{"a", "bc"};
  const auto small = std::make_shared<const token_vocabulary>(texts, 3, 2);
  made.clear();
  for (char32_t c = 0x4E00; made.size() < 2 * token_vocabulary::most_kept_tables; ++c) {
    constraint what;
    what.kind = constraint_kind::regex;
    what.text = "[^" + to_utf8(std::u32string(1, c)) + "]*";
    const auto grammar = compile_constraint(what, small);
    BOOST_REQUIRE(grammar);
    constraint_matcher(*grammar).fill(row.data());
    const auto table = small->known_table((*grammar)->network().round_dfas.at(0));
    BOOST_REQUIRE(table);
    made.push_back(table);
  }
  BOOST_TEST(std::ranges::count_if(made, [](const auto& m) { return !m.expired(); }) ==
             static_cast<std::ptrdiff_t>(token_vocabulary::most_kept_tables));
}

BOOST_AUTO_TEST_SUITE_END()
