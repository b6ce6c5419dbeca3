#include "bench/tokenizer_bench.hpp"
#include "runtime/base/result.hpp"
#include "runtime/tokenizer/streaming.hpp"
#include <algorithm>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <random>

namespace troupe {

namespace {

constexpr std::size_t corpus_bytes = std::size_t{4} << 20, text_bytes = 4096, piece_bytes = std::size_t{1} << 20;

// CPU time, since other work on the machine must not count.
template <class F> double fastest_seconds(int runs, F&& work) {
  double best = 1e30;
  for (int i = 0; i < runs; ++i) {
    const std::clock_t start = std::clock();
    work();
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return best;
}

void report(std::ostream& out, const std::string& name, std::size_t bytes, double seconds, std::size_t tokens) {
  const nlohmann::ordered_json line = {
      {"bench", "tokenizer"}, {"case", name},
      {"bytes", bytes},       {"tokens", tokens},
      {"cpu_s", seconds},     {"mb_per_s", static_cast<double>(bytes) / 1e6 / std::max(seconds, 1e-9)}};
  out << line.dump() << "\n";
}

// Texts of one category: its lines over and over, in a new order each time.
std::vector<std::string> texts_of(std::vector<std::string> lines) {
  std::mt19937 random(1);
  std::vector<std::string> texts(1);
  for (std::size_t total = 0; total < corpus_bytes;) {
    std::shuffle(lines.begin(), lines.end(), random);
    for (const std::string& line : lines) {
      if (texts.back().size() >= text_bytes)
        texts.emplace_back();
      texts.back() += line + "\n";
      total += line.size() + 1;
    }
  }
  return texts;
}

std::map<std::string, std::vector<std::string>> read_lines(const std::string& path) {
  std::ifstream in(path);
  std::map<std::string, std::vector<std::string>> out;
  for (std::string line; std::getline(in, line);) {
    const auto parsed = nlohmann::json::parse(line, nullptr, false);
    if (parsed.is_object() && parsed.contains("text") && parsed.contains("cat"))
      out[parsed["cat"].get<std::string>()].push_back(parsed["text"].get<std::string>());
  }
  if (out.empty())
    throw config_error(path, "", "", "has no lines with cat and text", "give the path of encode.jsonl");
  return out;
}

} // namespace

int bench_tokenizer(const std::string& tokenizer_path, const std::string& lines_path, std::ostream& out) {
  std::ifstream file(tokenizer_path, std::ios::binary | std::ios::ate);
  const auto file_bytes = file ? static_cast<std::size_t>(file.tellg()) : 0;
  report(out, "load", file_bytes, fastest_seconds(5, [&] { (void)tokenizer::load(tokenizer_path); }), 0);
  const tokenizer t = tokenizer::load(tokenizer_path);
  auto categories = read_lines(lines_path);
  std::vector<std::int32_t> english;
  for (const char* name : {"english", "code", "cjk", "world", "mixed"}) {
    const auto texts = texts_of(categories[name]);
    std::size_t bytes = 0, tokens = 0;
    for (const std::string& text : texts)
      bytes += text.size();
    const double seconds = fastest_seconds(5, [&] {
      tokens = 0;
      for (const std::string& text : texts)
        tokens += t.encode(text, encode_mode::full).size();
    });
    report(out, std::string("encode ") + name, bytes, seconds, tokens);
    if (english.empty())
      for (const std::string& text : texts)
        for (const auto id : t.encode(text, encode_mode::full))
          english.push_back(id);
  }
  std::size_t decoded = 0;
  const double streaming = fastest_seconds(5, [&] {
    decoded = 0;
    streaming_decoder stream(t);
    for (const auto id : english)
      decoded += stream.push(id).size();
  });
  report(out, "decode english, streaming", decoded, streaming, english.size());
  for (const auto& [name, unit] : {std::pair("letter", "a"), std::pair("space", " "), std::pair("line feed", "\n"),
                                   std::pair("han", "\u4E2D"), std::pair("punctuation", "-")}) {
    std::string text;
    while (text.size() < piece_bytes)
      text += unit;
    std::size_t tokens = 0;
    const double seconds = fastest_seconds(2, [&] { tokens = t.encode(text, encode_mode::full).size(); });
    report(out, std::string("encode 1 MB of one ") + name, text.size(), seconds, tokens);
  }
  return 0;
}

} // namespace troupe
