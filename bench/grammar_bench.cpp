#include "bench/grammar_bench.hpp"
#include "actors/processor_time.hpp"
#include "runtime/grammar/constraint.hpp"
#include "runtime/grammar/constraint_matcher.hpp"
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

constexpr const char* built_in = R"rows({"kind":"regex","source":"[a-z]{1,400}","cases":[{"text":"abcdefghij"}]}
{"kind":"regex","source":"\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])","cases":[{"text":"2024-02-29"}]}
{"kind":"regex","source":"[^,\\n]*(,[^,\\n]*)*","cases":[{"text":"some words,more of them,1.5"}]}
{"kind":"ebnf","source":"root ::= value\nvalue ::= object | array | string | number\nobject ::= \"{\" (pair (\",\" pair)*)? \"}\"\npair ::= string \":\" value\narray ::= \"[\" (value (\",\" value)*)? \"]\"\nstring ::= \"\\\"\" [^\"\\\\\\x00-\\x1f]* \"\\\"\"\nnumber ::= \"-\"? [0-9]+","cases":[{"text":"{\"name\":\"a longer text in here\",\"list\":[1,22,-333,[\"x\"]]}"}]}
{"kind":"json_schema","source":"{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":40},\"age\":{\"type\":\"integer\",\"minimum\":0},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"red\",\"green\"]}}},\"required\":[\"name\"]}","cases":[{"text":"{\"name\": \"Ada Lovelace\", \"age\": 36, \"tags\": [\"red\", \"green\"]}"}]}
)rows";

std::vector<json> read_constraints() {
  std::vector<json> rows;
  const auto read = [&rows](std::istream& in) {
    for (std::string line; std::getline(in, line);)
      if (const json row = json::parse(line, nullptr, false); row.is_object() && row.contains("source"))
        rows.push_back(row);
  };
  const char* folder = std::getenv("TROUPE_GRAMMAR_CASES");
  if (folder == nullptr || *folder == '\0') {
    std::istringstream in(built_in);
    read(in);
    return rows;
  }
  std::vector<std::filesystem::path> files;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed))
    if (entry.path().extension() == ".jsonl")
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    std::ifstream in(file);
    read(in);
  }
  if (rows.empty())
    throw config_error("environment", "TROUPE_GRAMMAR_CASES", folder, "the folder has no .jsonl file of constraints",
                       "name a folder with rows of {kind, source, cases}");
  return rows;
}

json quantiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  if (values.empty())
    return nullptr;
  const auto at = [&](double q) {
    return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
  };
  return {{"p50", at(0.5)}, {"p90", at(0.9)}, {"p99", at(0.99)}, {"p99_9", at(0.999)}, {"max", values.back()}};
}

struct measurements {
  std::vector<double> compile_us, cold_us, warm_us, window_us, kilobytes;
  std::size_t constraints = 0, refused = 0;

  void add(const measurements& m) {
    for (const auto list : {&measurements::compile_us, &measurements::cold_us, &measurements::warm_us,
                            &measurements::window_us, &measurements::kilobytes})
      (this->*list).insert((this->*list).end(), (m.*list).begin(), (m.*list).end());
    constraints += m.constraints;
    refused += m.refused;
  }
};

// One walk along the accepted texts, with a mask before every token and at the end.
void walk(const std::shared_ptr<const compiled_grammar>& grammar, const std::vector<std::vector<std::int32_t>>& texts,
          std::vector<double>& mask_us, std::vector<std::uint32_t>& row) {
  for (const auto& ids : texts) {
    constraint_matcher matcher(grammar);
    for (std::size_t i = 0; i <= ids.size(); ++i) {
      const double start = thread_seconds();
      matcher.fill(row.data());
      mask_us.push_back(1e6 * (thread_seconds() - start));
      if (i < ids.size() && !matcher.accept(ids[i]))
        break;
    }
  }
}

void measure(const json& row_of_file, const tokenizer& t, const std::shared_ptr<const token_vocabulary>& vocabulary,
             std::vector<std::uint32_t>& row, measurements& m) {
  constraint what;
  const std::string kind = row_of_file.value("kind", "");
  const auto known = constraint_kind_of(kind == "json_schema" ? "json" : kind);
  if (!known)
    return;
  what.kind = *known;
  what.text = row_of_file["source"];
  what.schema.strict = false;
  what.schema.infer_type = false;
  ++m.constraints;
  const double start = thread_seconds();
  const auto grammar = compile_constraint(what, vocabulary);
  m.compile_us.push_back(1e6 * (thread_seconds() - start));
  if (!grammar) {
    ++m.refused;
    return;
  }
  std::vector<std::vector<std::int32_t>> texts;
  for (const json& c : row_of_file.value("cases", json::array()))
    if (c.value("expect", "accept") == "accept")
      texts.push_back(t.encode(c.value("text", ""), encode_mode::plain));
  walk(*grammar, texts, m.cold_us, row);
  walk(*grammar, texts, m.warm_us, row);
  m.kilobytes.push_back(static_cast<double>((*grammar)->bytes()) / 1024);
  // five drafts, in a used grammar: six masks
  std::vector<std::vector<std::uint32_t>> rows(6, row);
  std::vector<std::uint32_t*> pointers;
  for (auto& r : rows)
    pointers.push_back(r.data());
  std::vector<std::uint8_t> constrained(6);
  for (const auto& ids : texts) {
    if (ids.size() < 5)
      continue;
    constraint_matcher matcher(*grammar);
    const double before = thread_seconds();
    matcher.fill_window(std::span(ids).first(5), pointers, constrained);
    m.window_us.push_back(1e6 * (thread_seconds() - before));
  }
}

json line_of(const bench_settings& settings, const std::string& test_case) {
  json line{{"bench", "grammar"}, {"case", test_case}};
  line.update(machine_facts());
  if (settings.smoke)
    line["smoke"] = true;
  return line;
}

} // namespace

void bench_grammar(const bench_settings& settings) {
  const tokenizer t = tokenizer::load(settings.engine.model + "/tokenizer.json");
  double start = thread_seconds();
  const auto vocabulary = token_vocabulary::of(t, t.vocab_size());
  json line = line_of(settings, "vocabulary");
  line.update({{"ids", vocabulary->size()},
               {"ms", 1e3 * (thread_seconds() - start)},
               {"trie_nodes", vocabulary->trie().size()},
               {"trie_mb", static_cast<double>(vocabulary->trie().bytes()) / (1 << 20)}});
  settings.emit(line);
  std::vector<std::uint32_t> row(vocabulary->words());
  std::map<std::string, measurements> by_kind;
  for (const json& constraint_row : read_constraints())
    measure(constraint_row, t, vocabulary, row, by_kind[constraint_row.value("kind", "")]);
  if (by_kind.size() > 1) {
    measurements all;
    for (const auto& [kind, m] : by_kind)
      all.add(m);
    by_kind.emplace("all", std::move(all));
  }
  for (const auto& [kind, m] : by_kind) {
    line = line_of(settings, kind);
    line.update({{"constraints", m.constraints},
                 {"refused", m.refused},
                 {"masks", m.cold_us.size()},
                 {"compile_us", quantiles(m.compile_us)},
                 {"new_mask_us", quantiles(m.cold_us)},
                 {"used_mask_us", quantiles(m.warm_us)},
                 {"window_of_5_us", quantiles(m.window_us)},
                 {"grammar_kb", quantiles(m.kilobytes)}});
    settings.emit(line);
  }
}

} // namespace troupe
