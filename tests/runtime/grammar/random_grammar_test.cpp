// Random grammars, recursive in every way, against their languages enumerated by hand.
#include "tests/runtime/grammar/grammar_support.hpp"
#include <boost/test/unit_test.hpp>
#include <random>
#include <set>

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr std::size_t longest = 6;
using language = std::set<std::string>; // words of up to `longest` letters

language joined(const language& a, const language& b) {
  language out;
  for (const std::string& x : a)
    for (const std::string& y : b)
      if (x.size() + y.size() <= longest)
        out.insert(x + y);
  return out;
}

// An expression and how to compute its words from those of the rules.
struct random_expr {
  grammar_expr built;
  std::function<language(const std::vector<language>& rules)> words;
};

class random_grammar {
public:
  random_grammar(grammar_builder& builder, std::uint32_t seed) : builder_(builder), random_(seed) {
    const std::size_t count = 1 + pick(4);
    for (std::size_t i = 0; i < count; ++i)
      rules_.push_back(builder.declare("r" + std::to_string(i)));
    for (const grammar_rule r : rules_) {
      bodies_.push_back(expression(3));
      builder.define(r, bodies_.back().built);
    }
  }

  grammar_rule root() const { return rules_[0]; }

  language root_words() const {
    std::vector<language> now(rules_.size());
    while (true) {
      std::vector<language> next;
      for (const random_expr& b : bodies_)
        next.push_back(b.words(now));
      if (next == now)
        return now[0];
      now = std::move(next);
    }
  }

private:
  std::size_t pick(std::size_t n) { return random_() % n; }

  random_expr expression(int depth) {
    switch (depth == 0 ? pick(4) : pick(11)) {
    case 0:
      return letter("a");
    case 1:
      return letter("b");
    case 2:
      return {builder_.empty(), [](const auto&) { return language{""}; }};
    case 3:
    case 4: {
      const std::size_t r = pick(rules_.size());
      return {builder_.call(rules_[r]), [r](const auto& rules) { return rules[r]; }};
    }
    case 5:
    case 6: {
      const random_expr x = expression(depth - 1), y = expression(depth - 1);
      return {builder_.alternatives({x.built, y.built}), [x, y](const auto& rules) {
                language out = x.words(rules);
                out.merge(y.words(rules));
                return out;
              }};
    }
    case 7:
    case 8:
    case 9: {
      const random_expr x = expression(depth - 1), y = expression(depth - 1);
      return {builder_.sequence({x.built, y.built}),
              [x, y](const auto& rules) { return joined(x.words(rules), y.words(rules)); }};
    }
    default: {
      // up to 300 rounds: counted where the body is large, written out where it is small
      const std::uint64_t min = pick(4), max = std::array<std::uint64_t, 4>{min + pick(3), 5, 300, unbounded}[pick(4)];
      const random_expr x = expression(depth - 1);
      return {builder_.repeat(x.built, min, std::max(min, max)), [x, min, max = std::max(min, max)](const auto& rules) {
                const language body = x.words(rules);
                language power{""}, out;
                if (min == 0)
                  out = power;
                for (std::uint64_t i = 1; i <= std::min<std::uint64_t>(max, longest + min + 1); ++i) {
                  power = joined(power, body);
                  if (i >= min)
                    out.insert(power.begin(), power.end());
                }
                return out;
              }};
    }
    }
  }

  random_expr letter(const char* l) {
    return {builder_.literal(l), [l](const auto&) { return language{l}; }};
  }

  grammar_builder& builder_;
  std::mt19937 random_;
  std::vector<grammar_rule> rules_;
  std::vector<random_expr> bodies_;
};

std::vector<std::string> all_words() {
  std::vector<std::string> words{""};
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i].size() < longest)
      for (const char c : {'a', 'b'})
        words.push_back(words[i] + c);
  return words;
}

// Whether the text can be completed from f; every place that is not dead must have an end.
bool has_an_end(mask_maker& masks, frontier f) {
  std::set<frontier> seen{f};
  std::vector<frontier> todo{f};
  for (std::size_t i = 0; i < todo.size() && i < 2000; ++i) {
    if (masks.can_end(todo[i]))
      return true;
    for (const unsigned char c : {'a', 'b'})
      if (const frontier next = masks.store().step(todo[i], c); next != dead_frontier && seen.insert(next).second)
        todo.push_back(next);
  }
  return false;
}

} // namespace

BOOST_AUTO_TEST_SUITE(grammar_random)

BOOST_AUTO_TEST_CASE(languages_are_those_enumerated_by_hand) {
  const auto vocabulary = small_vocabulary({"ab", "ba", "aa", "bbb", "aab", "abab"});
  const std::vector<std::string> words = all_words();
  std::size_t compiled = 0;
  for (std::uint32_t seed = 0; seed < 1500; ++seed) {
    compile_budget budget;
    grammar_builder builder(budget);
    const random_grammar g(builder, seed);
    const language expected = g.root_words();
    std::shared_ptr<const compiled_grammar> grammar;
    try {
      grammar = compile_grammar(builder, g.root(), vocabulary);
    } catch (const grammar_failure& f) {
      BOOST_TEST(f.why.code == "so_unsatisfiable");
      BOOST_TEST(expected.empty(), "seed " << seed << " was refused but has words");
      continue;
    }
    ++compiled;
    const auto masks = grammar->masks();
    for (const std::string& word : words) {
      const frontier f = masks->store().read(masks->store().start(), word);
      const bool accepted = f != dead_frontier && masks->can_end(f);
      if (accepted != expected.contains(word))
        BOOST_TEST(false, "seed " << seed << ": \"" << word << "\" " << (accepted ? "accepted" : "rejected"));
      if (f != dead_frontier && word.size() <= 3 && !has_an_end(*masks, f))
        BOOST_TEST(false, "seed " << seed << ": no way to an end behind \"" << word << "\"");
    }
  }
  BOOST_TEST(compiled > 800u);
}

// Along random outputs: mask bits, taking back, forks and windows.
BOOST_AUTO_TEST_CASE(matchers_along_random_outputs) {
  const auto vocabulary = small_vocabulary({"ab", "ba", "aa", "bbb", "aab", "abab"});
  std::mt19937 random(7);
  std::vector<std::uint32_t> row(vocabulary->words()), again(vocabulary->words());
  std::size_t walked = 0;
  for (std::uint32_t seed = 0; seed < 150; ++seed) {
    compile_budget budget;
    grammar_builder builder(budget);
    const random_grammar g(builder, seed);
    std::shared_ptr<const compiled_grammar> grammar;
    try {
      grammar = compile_grammar(builder, g.root(), vocabulary);
    } catch (const grammar_failure&) {
      continue;
    }
    constraint_matcher m(grammar);
    std::vector<std::int32_t> taken;
    for (int step = 0; step < 12 && !m.finished(); ++step) {
      BOOST_REQUIRE(disagreements(m).empty());
      m.fill(row.data());
      std::vector<std::int32_t> legal;
      for (std::int32_t id = 0; id < vocabulary->size(); ++id)
        if (has_bit(row.data(), id))
          legal.push_back(id);
      BOOST_REQUIRE(!legal.empty());
      const std::int32_t id = legal[random() % legal.size()];
      // a fork goes its own way, comes back, and is where it was
      constraint_matcher fork = m;
      std::size_t ahead = 0;
      while (ahead < 5 && fork.accept(static_cast<std::int32_t>(random() % 262)))
        ++ahead;
      BOOST_TEST(fork.rollback(ahead));
      fork.fill(again.data());
      BOOST_TEST(row == again);
      BOOST_TEST(m.accept(id));
      taken.push_back(id);
      ++walked;
    }
    // a fresh matcher that takes the same tokens is at the same place
    constraint_matcher replay(grammar);
    for (const std::int32_t id : taken)
      BOOST_TEST(replay.accept(id));
    m.fill(row.data());
    replay.fill(again.data());
    BOOST_TEST(row == again);
    // a window equals feeding step by step
    constraint_matcher window(grammar), single(grammar);
    std::vector<std::vector<std::uint32_t>> rows(taken.size() + 1, row);
    std::vector<std::uint32_t*> pointers;
    for (auto& r : rows)
      pointers.push_back(r.data());
    std::vector<std::uint8_t> constrained(rows.size());
    BOOST_TEST(window.fill_window(taken, pointers, constrained) == rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      single.fill(again.data());
      if (constrained[i])
        BOOST_TEST(rows[i] == again);
      else
        BOOST_TEST(single.finished());
      if (i < taken.size())
        BOOST_TEST(single.accept(taken[i]));
    }
  }
  BOOST_TEST(walked > 200u);
}

BOOST_AUTO_TEST_SUITE_END()
