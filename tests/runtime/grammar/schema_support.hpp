// Schemas as grammars over single bytes, with their verdicts and words, for the tests of the front end.
#pragma once
#include "runtime/grammar/json_schema.hpp"
#include "tests/runtime/grammar/grammar_support.hpp"
#include <memory>
#include <optional>
#include <random>
#include <string>

namespace troupe::testing {

// A compiled schema, or why there is none.
struct compiled_schema {
  std::shared_ptr<const compiled_grammar> grammar;
  error failure;

  explicit compiled_schema(std::string_view schema, const json_schema_options& options = {}) {
    static const std::shared_ptr<const token_vocabulary> bytes = small_vocabulary();
    try {
      compile_budget budget;
      grammar_builder builder(budget);
      const grammar_rule root = json_schema_grammar(builder, schema, options);
      grammar = compile_grammar(builder, root, bytes);
    } catch (const grammar_failure& f) {
      failure = f.why;
    }
  }
  bool refused() const { return !grammar && failure.code != "so_unsatisfiable"; }
  bool accepts(std::string_view text) const { return grammar && matches(grammar, text); }
  std::string outcome() const { return grammar ? "compiled" : failure.code + ": " + failure.message; }
};

// A random word of the grammar, drawn byte by byte; none if it grows too long.
inline std::optional<std::string> random_word(const compiled_grammar& grammar, std::mt19937& random,
                                              std::size_t longest = 400) {
  frontier_store& store = grammar.masks()->store();
  const rule_network& net = grammar.network();
  std::string text;
  frontier at = store.start();
  while (text.size() < longest) {
    const frontier_store::expansion& e = store.expand(at);
    if (e.can_end && random() % 2 == 0)
      return text;
    std::vector<unsigned char> next; // brackets and quotes that end something first, once the text is long
    const bool hurry = text.size() > longest / 4;
    for (int b = 0; b < 256; ++b)
      if (e.next[net.class_of[b]] != dead_frontier) {
        const bool ends = b == '"' || b == ']' || b == '}';
        const bool plain = (b >= 'a' && b <= 'c') || (b >= '0' && b <= '2');
        next.insert(next.end(),
                    hurry && ends       ? 50
                    : plain             ? 20
                    : b > 32 && b < 127 ? 3
                                        : 1,
                    static_cast<unsigned char>(b));
      }
    if (next.empty())
      return e.can_end ? std::optional(text) : std::nullopt;
    const unsigned char byte = next[random() % next.size()];
    text += static_cast<char>(byte);
    at = store.step(at, byte);
  }
  return std::nullopt;
}

} // namespace troupe::testing
