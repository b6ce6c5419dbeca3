// Vocabularies and case files for the tests of constraints.
#pragma once
#include "runtime/grammar/constraint_matcher.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace troupe::testing {

// The tokenizer of DeepSeek-V4.1, 129,280 ids.
inline const tokenizer& real_tokenizer() {
  static const tokenizer t = tokenizer::load(TROUPE_TEST_DATA "/tokenizer/tokenizer.json");
  return t;
}
inline std::shared_ptr<const token_vocabulary> real_vocabulary() {
  static const auto v = token_vocabulary::of(real_tokenizer(), real_tokenizer().vocab_size());
  return v;
}
inline const tokenizer& embedded_tokenizer() {
  static const tokenizer t = tokenizer::load(TROUPE_SOURCE_DIR "/models/tiny-v41/tokenizer.json");
  return t;
}
inline std::shared_ptr<const token_vocabulary> embedded_vocabulary() {
  static const auto v = token_vocabulary::of(embedded_tokenizer(), embedded_tokenizer().vocab_size());
  return v;
}

// All 256 bytes, then `longer`, then two special ids of which the last ends the text.
inline std::shared_ptr<const token_vocabulary> small_vocabulary(const std::vector<std::string>& longer = {}) {
  std::vector<std::string> texts;
  for (int b = 0; b < 256; ++b)
    texts.emplace_back(1, static_cast<char>(b));
  texts.insert(texts.end(), longer.begin(), longer.end());
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const auto size = static_cast<std::int32_t>(texts.size());
  return std::make_shared<const token_vocabulary>(views, size + 2, size + 1);
}

inline std::vector<nlohmann::json> read_rows(const std::string& file) {
  std::ifstream in(std::string(TROUPE_TEST_DATA "/grammar/") + file);
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(in, line);)
    rows.push_back(nlohmann::json::parse(line));
  return rows;
}

// Reads text byte by byte; tells whether it can end there.
inline bool matches(const std::shared_ptr<const compiled_grammar>& grammar, std::string_view text) {
  const auto masks = grammar->masks();
  const frontier f = masks->store().read(masks->store().start(), text);
  return f != dead_frontier && masks->can_end(f);
}

// Ids for which the mask and accept() disagree; at most `most`.
inline std::vector<std::int32_t> disagreements(const constraint_matcher& at, std::size_t most = 5) {
  const token_vocabulary& v = at.grammar().vocabulary();
  std::vector<std::uint32_t> row(v.words(), 0xA5A5A5A5);
  at.fill(row.data());
  std::vector<std::int32_t> out;
  constraint_matcher probe = at;
  for (std::int32_t id = 0; id < v.size() && out.size() < most; ++id) {
    const bool taken = probe.accept(id);
    if (taken)
      probe.rollback(1);
    if (taken != has_bit(row.data(), id))
      out.push_back(id);
  }
  for (std::int32_t bit = v.size(); bit < static_cast<std::int32_t>(32 * v.words()); ++bit)
    if (has_bit(row.data(), bit))
      out.push_back(bit);
  return out;
}

// Every case of a file, byte by byte and token by token with the real vocabulary: the bit of each token says what
// accept() does. `compile` makes the constraint of a row's source. Returns the number of cases.
template <class Compile> std::size_t check_cases(const std::string& file, const Compile& compile) {
  const auto vocabulary = real_vocabulary();
  std::vector<std::uint32_t> row(vocabulary->words());
  std::size_t cases = 0;
  for (const nlohmann::json& r : read_rows(file)) {
    const std::string source = r["source"], id = r["id"];
    const auto grammar = compile(source);
    for (const nlohmann::json& c : r["cases"]) {
      const std::string text = c["text"];
      const bool expected = c["expect"] == "accept";
      BOOST_TEST(matches(grammar, text) == expected, id << ": " << text << " byte by byte");
      constraint_matcher m(grammar);
      bool accepted = true;
      for (const std::int32_t token : real_tokenizer().encode(text, encode_mode::plain)) {
        m.fill(row.data());
        const bool allowed = has_bit(row.data(), token);
        accepted = m.accept(token);
        BOOST_TEST(allowed == accepted, id << ": " << text << " at token " << token);
        if (!accepted)
          break;
      }
      m.fill(row.data());
      BOOST_TEST(has_bit(row.data(), vocabulary->end_token()) == m.can_end());
      BOOST_TEST((accepted && m.can_end()) == expected, id << ": " << text);
      ++cases;
    }
  }
  return cases;
}

// Along the first case of each row of a file, at every `every`-th state: the bit of each id of the real vocabulary.
// Sources without a grammar (null) are passed over. By hand, TROUPE_MASK_EVERY takes the place of `every`. Returns the
// number of states that were compared.
template <class Compile> std::size_t check_masks(const std::string& file, const Compile& compile, std::size_t every) {
  if (const char* by_hand = std::getenv("TROUPE_MASK_EVERY"))
    every = std::max<std::size_t>(std::strtoul(by_hand, nullptr, 10), 1);
  std::size_t states = 0, compared = 0;
  for (const nlohmann::json& r : read_rows(file)) {
    const std::string source = r["source"], text = r["cases"][0]["text"];
    const std::shared_ptr<const compiled_grammar> grammar = compile(source);
    if (!grammar)
      continue;
    constraint_matcher m(grammar);
    for (const std::int32_t token : real_tokenizer().encode(text, encode_mode::plain)) {
      if (states++ % every == 0) {
        ++compared;
        const auto wrong = disagreements(m);
        BOOST_TEST(wrong.empty(),
                   r["id"] << " before token " << token << ": wrong bit of " << (wrong.empty() ? -1 : wrong[0]));
      }
      if (!m.accept(token))
        break;
    }
  }
  BOOST_TEST_MESSAGE(file << ": every bit of " << compared << " masks compared with accept()");
  return compared;
}

} // namespace troupe::testing
