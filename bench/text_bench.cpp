#include "bench/text_bench.hpp"
#include "runtime/tokenizer/streaming.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include <algorithm>
#include <array>
#include <random>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

constexpr std::array words{"the",   "light",   "of",    "a",     "house", "that",     "stands", "near",
                           "water", "and",     "warns", "ships", "which", "computer", "runs",   "several",
                           "steps", "between", "two",   "lines", "Every", "document", "has",    "sections"};
constexpr std::array code{"for (int i = 0; i < n; ++i)\n",
                          "  if (value == nullptr)\n    return false;\n",
                          "def update(self, key, value):\n",
                          "        self.items[key] = value  # keep\n",
                          "const auto found = table.find(\"name\");\n",
                          "x = a[3] * 0.25 + b\n"};

template <class List> std::string text_of(const List& parts, const char* between, std::size_t bytes) {
  std::mt19937 random(7);
  std::string text;
  while (text.size() < bytes)
    text += parts[random() % parts.size()] + std::string(between);
  return text;
}

json line_of(const bench_settings& settings, const std::string& test_case) {
  json line{{"bench", "tokenizer"}, {"case", test_case}};
  line.update(machine_facts());
  if (settings.smoke)
    line["smoke"] = true;
  return line;
}

template <class F> double best_seconds(int runs, F&& work) {
  double best = 1e30;
  for (int i = 0; i < runs; ++i) {
    const stopwatch watch;
    work();
    best = std::min(best, watch.seconds());
  }
  return best;
}

} // namespace

void bench_text(const bench_settings& settings) {
  const int runs = settings.smoke ? 1 : 5;
  const std::size_t bytes = settings.smoke ? 1 << 16 : 4 << 20;
  const std::string file = settings.engine.model + "/tokenizer.json";
  json line = line_of(settings, "load");
  line["ms"] = 1000 * best_seconds(runs, [&] { (void)tokenizer::load(file); });
  settings.emit(line);

  const tokenizer t = tokenizer::load(file);
  for (const auto& [name, text] :
       {std::pair("English", text_of(words, " ", bytes)), std::pair("code", text_of(code, "", bytes))}) {
    std::vector<std::int32_t> ids;
    const double encode = best_seconds(runs, [&] { ids = t.encode(text, encode_mode::full); });
    line = line_of(settings, std::string("encode ") + name);
    line.update({{"mb_per_s", static_cast<double>(text.size()) / 1e6 / encode}, {"tokens", ids.size()}});
    settings.emit(line);
    std::size_t decoded = 0;
    const double decode = best_seconds(runs, [&] {
      decoded = 0;
      streaming_decoder stream(t);
      for (const std::int32_t id : ids)
        decoded += stream.push(id).size();
    });
    line = line_of(settings, std::string("streaming decode ") + name);
    line.update({{"mb_per_s", static_cast<double>(decoded) / 1e6 / decode}, {"bytes", decoded}});
    settings.emit(line);
  }
}

} // namespace troupe
