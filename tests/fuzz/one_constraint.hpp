// What the fuzz targets do with one input, and the seeded tests with theirs.
#pragma once
#include "runtime/grammar/constraint.hpp"
#include "runtime/grammar/constraint_matcher.hpp"
#include <cstdio>
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

// Shows the input, as libFuzzer cannot for the seeded tests, and aborts.
[[noreturn]] inline void broken(const char* property, std::string_view input) {
  std::fprintf(stderr, "%s; the input as hexadecimal digits: ", property);
  for (const char c : input)
    std::fprintf(stderr, "%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
  std::fputc('\n', stderr);
  std::abort();
}

enum class outcome { refused, overflowed, followed };

// Input up to the first 0xFF: the constraint; behind it: what chooses tokens. Aborts where a property is broken.
inline outcome try_constraint(constraint_kind kind, std::string_view input) {
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
  const auto grammar = compile_constraint(what, vocabulary(), limits, [&] { return ++asked > 50; });
  if (!grammar) {
    if (grammar.failure().code.rfind("so_", 0) != 0 || grammar.failure().message.empty())
      broken("a failure without a code or message", input);
    return outcome::refused;
  }
  constraint_matcher matcher(*grammar);
  std::vector<std::uint32_t> row(vocabulary()->words());
  for (std::size_t step = 0; step < 8 && !matcher.finished(); ++step) {
    matcher.fill(row.data());
    if (matcher.overflowed())
      return outcome::overflowed;
    std::vector<std::int32_t> legal;
    constraint_matcher probe = matcher;
    for (std::int32_t id = 0; id < vocabulary()->size(); ++id) {
      const bool taken = probe.accept(id);
      if (probe.overflowed())
        return outcome::overflowed;
      if (taken && !probe.rollback(1))
        broken("a token that was taken cannot be taken back", input);
      if (taken != has_bit(row.data(), id))
        broken("mask and accept() disagree", input);
      if (taken)
        legal.push_back(id);
    }
    if (legal.empty())
      broken("no token is legal before the end", input);
    const std::size_t choice = step < choices.size() ? static_cast<unsigned char>(choices[step]) : 0;
    if (!matcher.accept(legal[choice % legal.size()]))
      broken("a legal token is refused", input);
  }
  return outcome::followed;
}

} // namespace troupe::fuzz
