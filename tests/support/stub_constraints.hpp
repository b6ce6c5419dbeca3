// Constraints over the stub model's vocabulary of 50 ids: letters, pieces of several, digits and signs, one special id
// and the one that ends a text.
#pragma once
#include "runtime/grammar/constraint.hpp"
#include "runtime/grammar/constraint_matcher.hpp"
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace troupe {

inline constexpr std::int32_t stub_special = 48, stub_end = 49;

inline const std::vector<std::string>& stub_texts() {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> t;
    for (char c = 'a'; c <= 'z'; ++c)
      t.emplace_back(1, c);
    for (char c = '0'; c <= '9'; ++c)
      t.emplace_back(1, c);
    for (const char* piece : {"ab", "abc", " ", ",", ", ", "[", "]", "\"", ":", "(", ")", "((", "", ""})
      t.emplace_back(piece);
    return t;
  }();
  return texts;
}

inline std::shared_ptr<const token_vocabulary> stub_vocabulary() {
  static const auto v = [] {
    const std::vector<std::string_view> views(stub_texts().begin(), stub_texts().end());
    return std::make_shared<const token_vocabulary>(views, static_cast<std::int32_t>(views.size()), stub_end);
  }();
  return v;
}

inline std::string stub_text(const std::vector<std::int32_t>& ids, std::size_t from = 0) {
  std::string text;
  for (std::size_t i = from; i < ids.size(); ++i)
    text += stub_texts().at(static_cast<std::size_t>(ids[i]));
  return text;
}

inline std::shared_ptr<const sequence_constraint> stub_constraint(const std::string& kind, const std::string& text,
                                                                  constraint_trigger trigger = {},
                                                                  const compile_limits& limits = {}) {
  constraint c;
  c.kind = constraint_kind_of(kind).value();
  c.text = text;
  const auto made = compile_constraint(c, stub_vocabulary(), limits);
  if (!made)
    throw std::invalid_argument(made.failure().message);
  return std::make_shared<const sequence_constraint>(sequence_constraint{*made, std::move(trigger)});
}

// Some that end soon, some that go on, some that begin late.
inline const std::vector<std::shared_ptr<const sequence_constraint>>& stub_constraints() {
  static const std::vector<std::shared_ptr<const sequence_constraint>> all{
      stub_constraint("regex", "[a-z]{0,300}"),
      stub_constraint("regex", "([a-m]{1,6}, ){1,9}[n-z0-9]{2,40}"),
      stub_constraint("ebnf", "root ::= pair+\npair ::= \"(\" [a-z]* pair* \")\"\n"),
      stub_constraint("regex", "[a-z0-9]+", {{3, 4}, {}}),
      stub_constraint("regex", "[0-9]{3,8}", {{10, 11, 10, 12}, 7}),
      stub_constraint("json", R"({"type":"array","items":{"enum":[1,22,"abc"]},"maxItems":20})"),
  };
  return all;
}

} // namespace troupe
