// What the fuzz targets do with one input, and the seeded test with its own.
#pragma once
#include "runtime/grammar/constraint.hpp"
#include "runtime/grammar/constraint_matcher.hpp"
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::fuzz {

// All single bytes and a few longer tokens; the last id is the end token.
inline std::shared_ptr<const token_vocabulary> vocabulary() {
  static const auto v = [] {
    std::vector<std::string> texts;
    for (int b = 0; b < 256; ++b)
      texts.emplace_back(1, static_cast<char>(b));
    for (const char* t : {"aa", "ab", "\"a", "\":", "{\"", "  ", "10", "\xE4\xBD\xA0", "\\u00", "true"})
      texts.emplace_back(t);
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    const auto size = static_cast<std::int32_t>(texts.size());
    return std::make_shared<const token_vocabulary>(views, size + 1, size);
  }();
  return v;
}

// Input up to the first 0xFF: the constraint; behind it: what chooses tokens. Aborts where a property is broken.
inline void try_constraint(constraint_kind kind, std::string_view input) {
  const std::size_t cut = std::min(input.find('\xFF'), input.size());
  constraint what;
  what.kind = kind;
  what.text = std::string(input.substr(0, cut));
  const std::string_view choices = cut < input.size() ? input.substr(cut + 1) : std::string_view{};
  compile_limits limits; // small, so that an input takes milliseconds
  limits.states_per_rule = 2'000;
  limits.states_total = 5'000;
  limits.automaton_pairs = 5'000;
  limits.memory_bytes = std::size_t{16} << 20;
  limits.frontier_items = 200;
  int asked = 0;
  const auto grammar = compile_constraint(what, vocabulary(), limits, [&] { return ++asked > 200; });
  if (!grammar) {
    if (grammar.failure().code.rfind("so_", 0) != 0 || grammar.failure().message.empty())
      std::abort();
    return;
  }
  constraint_matcher matcher(*grammar);
  std::vector<std::uint32_t> row(vocabulary()->words());
  for (std::size_t step = 0; step < 8 && !matcher.finished(); ++step) {
    matcher.fill(row.data());
    if (matcher.overflowed())
      return;
    std::vector<std::int32_t> legal;
    for (std::int32_t id = 0; id < vocabulary()->size(); ++id) {
      constraint_matcher probe = matcher;
      const bool taken = probe.accept(id);
      if (probe.overflowed())
        return;
      if (taken != has_bit(row.data(), id))
        std::abort();
      if (taken)
        legal.push_back(id);
    }
    if (legal.empty())
      std::abort();
    const std::size_t choice = step < choices.size() ? static_cast<unsigned char>(choices[step]) : 0;
    if (!matcher.accept(legal[choice % legal.size()]))
      std::abort();
  }
}

} // namespace troupe::fuzz
