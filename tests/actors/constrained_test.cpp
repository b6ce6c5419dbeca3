// Requests with so_args through the public API on the embedded model: every output is valid by validators that share
// nothing with the grammar engine, and none depends on a setting or on company.
#include "actors/llm.hpp"
#include "runtime/grammar/constraint.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "tests/support/embedded_options.hpp"
#include "tests/support/json_validator.hpp"
#include "tests/support/metric_text.hpp"
#include "tests/support/sanitizers.hpp"
#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <deque>
#include <functional>
#include <map>
#include <regex>
#include <unordered_set>

using namespace troupe;

namespace {

const int times = test::by_build(20, 2, 1); // that every constraint is asked for

// A constraint, and whether a whole text satisfies it, found without the grammar engine.
struct judged_constraint {
  std::string kind, text;
  std::function<bool(const std::string&)> valid;
};

judged_constraint regex(const std::string& pattern) {
  return {"regex", pattern, [e = std::regex(pattern)](const std::string& s) { return std::regex_match(s, e); }};
}

judged_constraint schema(const std::string& text) {
  return {"json", text, [v = std::make_shared<testing::json_validator>(text)](const std::string& s) {
            try {
              return v->valid(s);
            } catch (const std::exception&) { // no JSON
              return false;
            }
          }};
}

bool balanced(const std::string& s) {
  int depth = 0;
  for (const char c : s)
    if (c == '(')
      ++depth;
    else if (c != ')' || --depth < 0)
      return false;
  return depth == 0 && !s.empty();
}

// sum ::= term ("+" term)*, term ::= digits or "(" sum ")"
bool is_sum(const char*& p) {
  for (;;) {
    if (*p == '(') {
      ++p;
      if (!is_sum(p) || *p++ != ')')
        return false;
    } else {
      const char* const first = p;
      while (*p >= '0' && *p <= '9' && p - first < 3)
        ++p;
      if (p == first)
        return false;
    }
    if (*p != '+')
      return true;
    ++p;
  }
}

const std::vector<judged_constraint>& constraints() {
  static const std::vector<judged_constraint> all{
      regex("(yes|no|maybe)"),
      regex("[A-Z][a-z]{2,9}( [A-Z][a-z]{2,9}){0,2}"),
      regex("[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"),
      regex("#[0-9a-f]{6}"),
      regex("([a-z]+, ){1,3}[a-z]{1,8}"),
      regex("-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,2})?"),
      schema(R"({"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer",
                 "minimum":0,"maximum":120}},"required":["name","age"]})"),
      schema(R"({"type":"array","items":{"enum":["red","green","blue"]},"minItems":1,"maxItems":3})"),
      schema(R"({"enum":[1,"two",[3],{"four":4},null,true]})"),
      schema(R"({"type":"integer","minimum":-20,"maximum":500,"multipleOf":5})"),
      schema(R"({"anyOf":[{"type":"boolean"},{"type":"object","properties":{"id":{"type":"integer","minimum":1,
                 "maximum":9}},"required":["id"]}]})"),
      schema(R"({"type":"object","properties":{"when":{"type":"string","format":"date"},"tag":{"type":"string",
                 "pattern":"^[a-z]{1,6}$"}},"required":["when"]})"),
      schema(R"({"$defs":{"tree":{"type":"object","properties":{"v":{"type":"integer","minimum":0,"maximum":9},
                 "next":{"$ref":"#/$defs/tree"}},"required":["v"]}},"$ref":"#/$defs/tree"})"),
      {"ebnf", "root ::= pair+\npair ::= \"(\" pair* \")\"\n", balanced},
      {"ebnf", "root ::= term (\"+\" term)*\nterm ::= [0-9]{1,3} | \"(\" root \")\"\n",
       [](const std::string& s) {
         const char* p = s.c_str();
         return is_sum(p) && *p == 0 && std::char_traits<char>::length(s.c_str()) == s.size();
       }},
      {"ebnf", "root ::= (\"- \" [a-z ]{1,20} \"\\n\"){1,3}\n",
       [](const std::string& s) { return std::regex_match(s, std::regex("(- [a-z ]{1,20}\n){1,3}")); }},
  };
  return all;
}

// A shortest text that the grammar reads behind `text`; nullopt if there is none among the places looked at.
std::optional<std::string> completed(const judged_constraint& c, const std::string& text) {
  static const auto bytes = [] {
    std::vector<std::string> texts;
    for (int b = 0; b < 256; ++b)
      texts.emplace_back(1, static_cast<char>(b));
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    return std::make_shared<const token_vocabulary>(views, 257, 256);
  }();
  const auto grammar = compile_constraint(constraint_of({.schema_type = c.kind, .schema = c.text}), bytes);
  BOOST_REQUIRE(grammar);
  const auto masks = (*grammar)->masks();
  frontier_store& store = masks->store();
  struct place {
    frontier at;
    std::string text;
  };
  std::deque<place> next{{store.read(store.start(), text), text}};
  std::unordered_set<frontier> seen{dead_frontier};
  while (!next.empty() && seen.size() < 100'000) {
    const place p = std::move(next.front());
    next.pop_front();
    if (!seen.insert(p.at).second)
      continue;
    const frontier_store::expansion& e = store.expand(p.at);
    if (e.can_end)
      return p.text;
    for (unsigned b = 0; b < 256; ++b)
      if (const frontier f = e.next[store.network().class_of[b]]; f != dead_frontier && !seen.contains(f))
        next.push_back({f, p.text + static_cast<char>(b)});
  }
  return std::nullopt;
}

struct asked {
  generation_request request;
  sampling_params params;
  const judged_constraint* constraint = nullptr;
};

constexpr const char* prompts[] = {"The answer is ", "def main():", "Once upon a time",
                                   "{\"a\":", "<｜User｜>Make a record: Ada, 36, from Lima.<｜Assistant｜></think>"};

// Every constraint `rounds` times, greedy and drawn in turn.
std::vector<asked> requests(int rounds, std::int32_t max_tokens) {
  std::vector<asked> all;
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < constraints().size(); ++i) {
      const judged_constraint& c = constraints()[i];
      asked a;
      a.constraint = &c;
      a.request.id = c.kind + std::to_string(i) + " round " + std::to_string(round);
      a.request.prompt = prompts[(i + static_cast<std::size_t>(round)) % std::size(prompts)];
      a.request.raw = a.request.prompt->starts_with("<");
      sampling_params& p = a.params;
      p.temperature = round % 2 == 0 ? 0 : 0.5f + 0.25f * static_cast<float>(round % 4);
      p.top_p = round % 3 == 0 ? 1 : 0.9f;
      p.top_k = round % 5 == 4 ? 20 : -1;
      p.max_tokens = max_tokens;
      p.seq_seed = static_cast<std::uint64_t>(1000 * round) + i;
      p.so_args = structured_output_args{.schema_type = c.kind, .schema = c.text, .max_whitespace = 2};
      all.push_back(std::move(a));
    }
  return all;
}

std::vector<generation_result> generate(LLM& llm, const std::vector<asked>& all) {
  std::vector<generation_request> requests;
  std::vector<sampling_params> params;
  for (const asked& a : all) {
    requests.push_back(a.request);
    params.push_back(a.params);
  }
  return llm.generate(requests, params);
}

struct tally {
  int complete = 0, cut = 0;
};

// A whole output satisfies the constraint; one that was cut begins a text that does.
void judge(const judged_constraint& c, const generation_result& r, const std::string& text, tally& t) {
  BOOST_TEST(!r.failure, r.id << ": " << (r.failure ? r.failure->message : ""));
  if (r.finish_reason == "stop") {
    ++t.complete;
    BOOST_TEST(c.valid(text), r.id << ": " << c.kind << ' ' << c.text << " gave: " << text);
    return;
  }
  ++t.cut;
  BOOST_TEST(r.finish_reason == "length", r.id);
  const auto whole = completed(c, text);
  BOOST_TEST((whole && c.valid(*whole)), r.id << ": " << c.kind << ' ' << c.text << " cannot begin with: " << text);
}

// Requests that are free up to a trigger: two letters of a line's end that the bias makes likely, or what a bound
// forces.
std::vector<asked> triggered_requests(int rounds, std::int32_t max_tokens) {
  constexpr std::int32_t line_end = 201, colon = 28, blank = 223, full_stop = 16;
  struct way {
    std::vector<std::int32_t> trigger;
    std::optional<std::int32_t> bound;
    std::int32_t likely;
  };
  const std::vector<way> ways{{{line_end}, {}, line_end},
                              {{colon, blank}, line_end, line_end},
                              {{line_end, line_end, colon}, full_stop, full_stop},
                              {{line_end, blank, line_end}, line_end, line_end}}; // the bound is part of the trigger
  std::vector<asked> all;
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const std::size_t which = (7 * i + static_cast<std::size_t>(round)) % constraints().size();
      asked a;
      a.constraint = &constraints()[which];
      a.request.id = "trigger" + std::to_string(i) + " round " + std::to_string(round);
      a.request.prompt = prompts[(i + static_cast<std::size_t>(round)) % std::size(prompts)];
      a.request.raw = a.request.prompt->starts_with("<");
      sampling_params& p = a.params;
      p.temperature = round % 2 == 0 ? 0 : 0.8f;
      p.max_tokens = max_tokens;
      p.seq_seed = static_cast<std::uint64_t>(77 * round) + i;
      p.logit_bias = {{ways[i].likely, 9.0f}};
      p.so_args = structured_output_args{.schema_type = a.constraint->kind,
                                         .schema = a.constraint->text,
                                         .trigger_token_ids = ways[i].trigger,
                                         .bound_token_id = ways[i].bound,
                                         .max_whitespace = 2};
      all.push_back(std::move(a));
    }
  return all;
}

// Where the constrained part of an output begins: behind the first whole trigger, or behind what remains of one after
// the bound. nullopt: it never does. By plain search.
std::optional<std::size_t> begin_of_constrained(const std::vector<std::int32_t>& ids, const structured_output_args& a) {
  const auto& trigger = a.trigger_token_ids;
  const auto prefix_at_end = [&](std::size_t end) { // longest prefix of the trigger that ends there
    for (std::size_t n = std::min(trigger.size(), end); n > 0; --n)
      if (std::equal(trigger.begin(), trigger.begin() + static_cast<std::ptrdiff_t>(n),
                     ids.begin() + static_cast<std::ptrdiff_t>(end - n)))
        return n;
    return std::size_t{0};
  };
  for (std::size_t end = 1; end <= ids.size(); ++end) {
    const std::size_t have = prefix_at_end(end);
    if (have == trigger.size())
      return end;
    if (a.bound_token_id != ids[end - 1])
      continue;
    for (std::size_t k = have; k < trigger.size() && end + k - have < ids.size(); ++k)
      BOOST_TEST(ids[end + k - have] == trigger[k], "the bound does not force the trigger");
    if (end + trigger.size() - have > ids.size())
      return std::nullopt; // cut before
    return end + trigger.size() - have;
  }
  return std::nullopt;
}

// Every third prompt nearly fills one or three blocks, of which the first is the same.
std::vector<asked> with_long_prompts(std::vector<asked> all) {
  for (std::size_t i = 0; i < all.size(); i += 3) {
    std::vector<std::int32_t> ids;
    for (int k = 0; k < (i % 2 == 0 ? 121 : 377); ++k)
      ids.push_back(3 + (37 * k + k * k + (k > 128 ? static_cast<int>(i) : 0)) % 8000);
    all[i].request.prompt.reset();
    all[i].request.prompt_ids = ids;
  }
  return all;
}

// Everything of a result that is a function of the request.
std::string line_of(generation_result r) {
  r.usage = {};
  r.cached_tokens = 0;
  return result_line(r);
}

} // namespace

BOOST_AUTO_TEST_SUITE(constrained_requests)

BOOST_AUTO_TEST_CASE(c10_every_output_is_valid) {
  auto o = embedded_options();
  o.max_num_seqs = 32;
  LLM llm(o);
  tally t;
  const std::vector<asked> all = requests(times, 40);
  const auto results = generate(llm, all);
  BOOST_REQUIRE(results.size() == all.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    judge(*all[i].constraint, results[i], results[i].text, t);
  BOOST_TEST_MESSAGE(all.size() << " constrained outputs: " << t.complete << " whole, " << t.cut
                                << " cut at max_tokens");
  BOOST_TEST(t.complete >= test::by_build(200, 22, 11)); // those alone are judged without the grammar engine
}

BOOST_AUTO_TEST_CASE(output_is_free_up_to_the_trigger_and_valid_behind_it) {
  LLM llm(embedded_options());
  tally t;
  int never = 0;
  const std::vector<asked> all = triggered_requests(times, 60);
  const auto results = generate(llm, all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    generation_result r = results[i];
    if (r.finish_reason == "stop")
      r.token_ids.pop_back(); // the end token
    const auto begin = begin_of_constrained(r.token_ids, *all[i].params.so_args);
    if (!begin) {
      ++never;
      BOOST_TEST(!r.failure, r.id);
      continue;
    }
    judge(*all[i].constraint, r, llm.vocabulary().decode(std::span(r.token_ids).subspan(*begin)), t);
  }
  BOOST_TEST_MESSAGE(all.size() << " outputs with a trigger: " << t.complete << " whole, " << t.cut << " cut, " << never
                                << " without it");
  BOOST_TEST(t.complete * 2 >= std::ssize(all));
}

// Drafts are verified under masks by the other rule too; what comes out is valid, if not the same.
BOOST_AUTO_TEST_CASE(outputs_of_rejection_sampling_are_valid) {
  auto o = embedded_options();
  o.verify = "rejection";
  o.varlen = false;
  LLM llm(o);
  tally t;
  const std::vector<asked> all = requests(2, 40);
  const auto results = generate(llm, all);
  for (std::size_t i = 0; i < all.size(); ++i)
    judge(*all[i].constraint, results[i], results[i].text, t);
  BOOST_TEST(test_support::metric(llm.metrics(), "spec_decode_num_accepted_tokens_total") > 0);
}

BOOST_AUTO_TEST_CASE(c10_outputs_are_the_same_in_every_setting_and_company) {
  std::vector<asked> all = with_long_prompts(requests(2, 24));
  for (asked& a : triggered_requests(2, 24))
    all.push_back(std::move(a));
  for (asked& a : all)
    a.params.top_logprobs = 2, a.params.logprobs_mode = logprobs_source::processed;
  all[4].params.n = 3;
  std::map<std::pair<std::string, int>, std::string> alone;
  {
    auto o = embedded_options();
    o.max_num_seqs = 1;
    o.nextn = 0;
    o.async = o.prefix_cache = false;
    LLM llm(o);
    for (const asked& a : all)
      for (const auto& r : generate(llm, {a}))
        alone[{r.id, r.index}] = line_of(r);
  }
  struct setting {
    int nextn;
    bool varlen, async;
    int seqs, chunk, kv_blocks, engines, cp;
    bool prefix_cache, company;
  };
  const std::vector<setting> every{
      {0, false, true, 16, 64, 0, 1, 1, true, true},     {1, false, true, 7, 128, 9, 1, 1, true, true},
      {2, false, false, 16, 128, 0, 1, 1, false, false}, {3, true, true, 3, 33, 0, 2, 1, true, true},
      {4, false, true, 16, 128, 9, 1, 2, true, true},    {5, false, true, 16, 128, 0, 1, 1, true, true},
      {5, true, true, 8, 128, 9, 1, 1, true, true},      {5, true, false, 16, 128, 0, 1, 1, true, true}};
  const std::size_t settings = test::any_sanitizer ? 2 : every.size();
  double preemptions = 0, accepted = 0, cached = 0;
  for (std::size_t place = 0; place < settings; ++place) {
    const setting& s = every[place];
    auto o = embedded_options();
    o.nextn = s.nextn;
    if (s.nextn > 0)
      o.varlen = s.varlen;
    o.async = s.async;
    o.max_num_seqs = s.seqs;
    o.max_num_batched_tokens = s.chunk;
    o.kv_blocks = s.kv_blocks;
    o.engines = s.engines;
    o.cp = s.cp;
    o.prefix_cache = s.prefix_cache;
    LLM llm(o);
    std::vector<asked> together = all;
    for (std::size_t i = 0; s.company && i < 12; ++i) { // without constraints
      asked a = all[i];
      a.request.id = "free " + std::to_string(i);
      a.params.so_args.reset();
      together.insert(together.begin() + static_cast<std::ptrdiff_t>(3 * i), std::move(a));
    }
    std::size_t found = 0;
    for (const auto& r : generate(llm, together)) {
      const auto want = alone.find({r.id, r.index});
      if (want == alone.end())
        continue;
      ++found;
      BOOST_TEST(line_of(r) == want->second,
                 "nextn " << s.nextn << ", async " << s.async << ", blocks " << s.kv_blocks << ": " << r.id);
    }
    BOOST_TEST(found == alone.size());
    const std::string metrics = llm.metrics();
    preemptions += test_support::metric(metrics, "num_preemptions_total");
    accepted += test_support::metric(metrics, "spec_decode_num_accepted_tokens_total");
    cached += test_support::metric(metrics, "prefix_cache_hits_total");
  }
  BOOST_TEST_MESSAGE(alone.size() << " constrained outputs in " << settings << " settings, " << preemptions
                                  << " preemptions, " << accepted << " drafts accepted, " << cached
                                  << " prompt tokens from the cache");
  BOOST_TEST(accepted > 0);
  if (!test::any_sanitizer) {
    BOOST_TEST(preemptions > 0);
    BOOST_TEST(cached > 0);
  }
}

// The warnings of a lenient constraint come with every output, also where the constraint was compiled for an earlier
// request.
BOOST_AUTO_TEST_CASE(a_lenient_request_is_told_what_has_no_effect) {
  LLM llm(embedded_options());
  sampling_params p;
  p.temperature = 0, p.max_tokens = 60;
  p.so_args = structured_output_args{
      .schema_type = "json",
      .schema = R"({"type":"array","uniqueItems":true,"maxItems":2,"items":{"type":"string","maxLength":4}})",
      .max_whitespace = 1};
  generation_request request;
  request.id = "list", request.prompt = "A list:";
  const auto ask = [&] { return llm.generate({request}, std::vector{p}); };
  const auto strict = ask();
  BOOST_REQUIRE(strict.size() == 1u);
  BOOST_REQUIRE(strict[0].failure);
  BOOST_TEST(strict[0].failure->code == "so_unsupported");
  BOOST_TEST(strict[0].failure->message.find("#/uniqueItems") != std::string::npos);
  BOOST_TEST(strict[0].warnings.empty());
  p.so_args->lenient = true, p.n = 2;
  const auto once = ask(), again = ask();
  const std::vector<std::string> warnings{"#/uniqueItems has no effect: only for items of at most 64 values"};
  testing::json_validator valid(R"({"type":"array","maxItems":2,"items":{"type":"string","maxLength":4}})");
  for (const auto& results : {once, again}) {
    BOOST_REQUIRE(results.size() == 2u);
    for (const generation_result& r : results) {
      BOOST_TEST(!r.failure);
      BOOST_TEST(r.finish_reason == "stop");
      BOOST_TEST(valid.valid(r.text), r.text);
      BOOST_TEST(r.warnings == warnings, boost::test_tools::per_element());
    }
  }
}

// What is wrong with a constraint ends its request with a code and a reason; the engine and the others do not notice.
BOOST_AUTO_TEST_CASE(c10_bad_constraints_end_their_request_only) {
  struct bad {
    const char* kind;
    std::string text;
    std::string code, part;
  };
  std::string deep_schema = "true", deep_regex = "a", deep_group = "\"a\"";
  for (int i = 0; i < 400; ++i)
    deep_schema = R"({"items":)" + deep_schema + "}";
  for (int i = 0; i < 100'000; ++i)
    deep_regex = "(" + deep_regex + ")", deep_group = "(" + deep_group + ")";
  const std::vector<bad> all{
      {"regex", "(ab", "so_syntax", ""},
      {"regex", "ab)", "so_syntax", ""},
      {"regex", "a{3,2}", "so_syntax", ""},
      {"regex", "x**", "so_syntax", ""},
      {"regex", "[z-a]", "so_syntax", ""},
      {"regex", "a\\", "so_syntax", ""},
      {"regex", "(?=a)b", "so_unsupported", "look"},
      {"regex", "\\p{L}", "so_unsupported", ""},
      {"regex", std::string("a\0b", 3), "so_syntax", "NUL"},
      {"regex", "a\xff", "so_syntax", "UTF-8"},
      {"regex", deep_regex, "so_too_complex", ""},
      {"json", "{", "so_syntax", ""},
      {"json", "", "so_syntax", ""},
      {"json", "{\"type\":\"strung\"}", "so_syntax", "#/type"},
      {"json", std::string("{\"const\":\"\0\"}", 13), "so_syntax", ""},
      {"json", "{\"const\":\"\xff\"}", "so_syntax", "UTF-8"},
      {"json", R"({"type":"array","items":{"type":"string"},"uniqueItems":true})", "so_unsupported", "uniqueItems"},
      {"json", R"({"properties":{"a":{"$ref":"http://example.com/x"}}})", "so_unsupported", "/properties/a"},
      {"json", R"({"type":"string","minLength":3,"maxLength":1})", "so_unsatisfiable", ""},
      {"json", R"({"$ref":"#"})", "so_", ""},
      {"json", deep_schema, "so_too_complex", "256"},
      {"json", "\"" + std::string(5 << 20, 'x') + "\"", "so_too_complex", "bytes"},
      {"ebnf", "root ::= root", "so_unsatisfiable", ""},
      {"ebnf", "root ::= missing", "so_syntax", "missing"},
      {"ebnf", "start ::= \"a\"", "so_syntax", "root"},
      {"ebnf", "root ::= [\\d]", "so_syntax", ""},
      {"ebnf", "", "so_syntax", "root"},
      {"ebnf", "root ::= " + deep_group, "so_too_complex", ""},
      {"ebnf", "root ::= Token(9000)", "so_syntax", "9000"},
  };
  std::vector<generation_request> requests;
  std::vector<sampling_params> params;
  for (std::size_t i = 0; i < 2 * all.size(); ++i) {
    generation_request r;
    r.id = std::to_string(i);
    r.prompt = "def main():";
    requests.push_back(r);
    sampling_params p;
    p.temperature = 0;
    p.max_tokens = 4;
    if (i % 2 == 0)
      p.so_args = structured_output_args{.schema_type = all[i / 2].kind, .schema = all[i / 2].text};
    params.push_back(p);
  }
  LLM llm(embedded_options());
  const auto results = llm.generate(requests, params);
  BOOST_REQUIRE(results.size() == requests.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (i % 2 == 1) {
      BOOST_TEST(results[i].text == results[1].text);
      BOOST_TEST(results[i].token_ids.size() == 4u);
      continue;
    }
    const bad& b = all[i / 2];
    const std::string shown = std::string(b.kind) + ' ' + b.text.substr(0, 60);
    BOOST_REQUIRE_MESSAGE(results[i].failure, shown << " was taken");
    BOOST_TEST(results[i].finish_reason == "error");
    BOOST_TEST(results[i].failure->code.starts_with(b.code), shown << ": " << results[i].failure->code);
    BOOST_TEST(results[i].failure->message.find(b.part) != std::string::npos,
               shown << ": " << results[i].failure->message);
  }
  BOOST_TEST(test_support::metric(llm.metrics(), "request_errors_total", "code=\"so_syntax\"") > 10);
}

// Small texts with large meanings compile or are refused, and are followed or end with a code, while others go on.
BOOST_AUTO_TEST_CASE(hostile_constraints_harm_nobody) {
  const std::vector<std::pair<const char*, std::string>> all{
      {"ebnf", "root ::= ((\"a\"{0,50}){0,50}){0,50}"},
      {"regex", "(a{1,1000}){1,1000}"},
      {"regex", "((((a?){9}){9}){9}){9}"},
      {"regex", "(x+x+)+y"},
      {"regex", "[a-z]{1,2000}"},
      {"ebnf", "root ::= root root | \"a\" | \"\""},
      {"ebnf", "root ::= \"(\" root \")\" | \"(\" root \"}\" | root root | \"x\""},
      {"json",
       R"({"$defs":{"a":{"anyOf":[{"type":"array","items":{"$ref":"#/$defs/a"}},{"type":"null"}]}},"$ref":"#/$defs/a"})"},
      {"json",
       R"({"oneOf":[{"oneOf":[{"type":"object"},{"type":"array"}]},{"oneOf":[{"type":"string"},{"type":"null"}]}]})"},
  };
  std::vector<generation_request> requests(all.size() + 1);
  std::vector<sampling_params> params(all.size() + 1);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = "aaaa";
    params[i].max_tokens = 24;
    params[i].seq_seed = i;
    if (i < all.size())
      params[i].so_args = structured_output_args{.schema_type = all[i].first, .schema = all[i].second};
  }
  LLM llm(embedded_options());
  const auto results = llm.generate(requests, params);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (results[i].failure)
      BOOST_TEST(results[i].failure->code == "so_too_complex", all[i].second << ": " << results[i].failure->message);
  BOOST_TEST(!results.back().failure);
}

BOOST_AUTO_TEST_SUITE_END()
