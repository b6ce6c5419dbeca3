#include "runtime/grammar/constraint_matcher.hpp"
#include "tests/runtime/grammar/grammar_support.hpp"
#include <bit>
#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::testing;

namespace {

std::shared_ptr<const compiled_grammar> literal(std::string_view text) {
  compile_budget budget;
  grammar_builder builder(budget);
  return compile_grammar(builder, builder.define("root", builder.literal(text)), small_vocabulary());
}

constexpr std::int32_t special = 256, end = 257; // of small_vocabulary()

std::vector<std::int32_t> bits(const constraint_matcher& m) {
  std::vector<std::uint32_t> row(m.grammar().vocabulary().words());
  m.fill(row.data());
  std::vector<std::int32_t> out;
  for (std::int32_t id = 0; id < m.grammar().vocabulary().size(); ++id)
    if (has_bit(row.data(), id))
      out.push_back(id);
  return out;
}
using ids = std::vector<std::int32_t>;

} // namespace

BOOST_AUTO_TEST_SUITE(constraint_matchers)

BOOST_AUTO_TEST_CASE(without_trigger) {
  constraint_matcher m(literal("ab"));
  BOOST_TEST(m.constrained());
  BOOST_TEST(bits(m) == ids{'a'});
  BOOST_TEST(!m.accept(end));
  BOOST_TEST(!m.accept(special));
  BOOST_TEST(!m.accept(-1));
  BOOST_TEST(!m.accept(258));
  BOOST_TEST(m.accept('a'));
  BOOST_TEST(m.accept('b'));
  BOOST_TEST(bits(m) == ids{end}); // nothing but the end can follow
  BOOST_TEST(m.accept(end));
  BOOST_TEST(m.finished());
}

// A finished matcher allows everything and counts what comes, so that it can be taken back (reports SO-11, SO-13).
BOOST_AUTO_TEST_CASE(behind_the_end) {
  constraint_matcher m(literal("a"));
  BOOST_TEST(m.accept('a'));
  BOOST_TEST(m.accept(end));
  BOOST_TEST(bits(m).size() == 258u);
  std::vector<std::uint32_t> row(m.grammar().vocabulary().words());
  m.fill(row.data());
  BOOST_TEST(row.back() == 3u); // ids 256 and 257; the other bits are beyond the vocabulary
  BOOST_TEST(m.accept('z'));
  BOOST_TEST(m.accept('z'));
  BOOST_TEST(m.rollback(2));
  BOOST_TEST(m.finished());
  BOOST_TEST(m.rollback(1));
  BOOST_TEST(!m.finished());
  BOOST_TEST(bits(m) == ids{end});
  BOOST_TEST(!m.accept('z'));
}

BOOST_AUTO_TEST_CASE(window_stops_at_a_refused_draft) {
  constraint_matcher m(literal("ab"));
  std::vector<std::vector<std::uint32_t>> rows(5, std::vector<std::uint32_t>(m.grammar().vocabulary().words(), 0x77u));
  std::vector<std::uint32_t*> pointers;
  for (auto& r : rows)
    pointers.push_back(r.data());
  std::vector<std::uint8_t> constrained(5);
  BOOST_TEST(m.fill_window(ids{'a', 'c', 'b', 'b'}, pointers, constrained) == 2u);
  BOOST_TEST(has_bit(rows[1].data(), 'b'));
  BOOST_TEST(!has_bit(rows[1].data(), 'c'));
  BOOST_TEST(rows[2][0] == 0x77u); // not written
  BOOST_TEST(bits(m) == ids{'a'});
  // a, b, end, z: the last row is free
  BOOST_TEST(m.fill_window(ids{'a', 'b', end, 'z'}, pointers, constrained) == 5u);
  BOOST_TEST(constrained == (std::vector<std::uint8_t>{1, 1, 1, 0, 0}));
}

BOOST_AUTO_TEST_CASE(trigger_is_searched_with_overlaps) {
  constraint_matcher m(literal("x"), {{'A', 'A', 'B'}, {}});
  BOOST_TEST(!m.constrained());
  BOOST_TEST(bits(m).size() == 258u);
  for (const std::int32_t id : {'A', 'A', 'A'})
    BOOST_TEST(m.accept(id));
  BOOST_TEST(!m.constrained());
  BOOST_TEST(m.accept('B'));
  BOOST_TEST(m.constrained());
  BOOST_TEST(bits(m) == ids{'x'});
  // back over the trigger's completion and forth on another way
  BOOST_TEST(m.accept('x'));
  BOOST_TEST(m.rollback(2));
  BOOST_TEST(!m.constrained());
  BOOST_TEST(m.accept('A'));
  BOOST_TEST(m.accept('B'));
  BOOST_TEST(bits(m) == ids{'x'});
}

BOOST_AUTO_TEST_CASE(bound_forces_the_trigger) {
  constraint_matcher m(literal("x"), {{'A', 'B', 'C'}, '!'});
  BOOST_TEST(m.accept('A'));
  BOOST_TEST(m.accept('!')); // no part of the trigger: its search starts anew
  BOOST_TEST(m.constrained());
  BOOST_TEST(bits(m) == ids{'A'});
  BOOST_TEST(!m.accept('B'));
  BOOST_TEST(m.accept('A'));
  BOOST_TEST(m.accept('B'));
  BOOST_TEST(bits(m) == ids{'C'});
  BOOST_TEST(m.accept('C'));
  BOOST_TEST(bits(m) == ids{'x'});
  BOOST_TEST(m.accept('x'));
  BOOST_TEST(m.rollback(5)); // to before the bound
  BOOST_TEST(!m.constrained());
  BOOST_TEST(m.accept('B'));
  BOOST_TEST(!m.constrained());
  BOOST_TEST(m.accept('C'));
  BOOST_TEST(m.constrained());
}

BOOST_AUTO_TEST_CASE(bound_inside_the_trigger_keeps_the_progress) {
  constraint_matcher m(literal("x"), {{'A', 'B', 'C'}, 'B'});
  BOOST_TEST(m.accept('A'));
  BOOST_TEST(m.accept('B'));
  BOOST_TEST(bits(m) == ids{'C'});
  constraint_matcher last(literal("x"), {{'A', 'B'}, 'B'});
  BOOST_TEST(last.accept('A'));
  BOOST_TEST(last.accept('B'));
  BOOST_TEST(bits(last) == ids{'x'});
  // elsewhere it fires as well and the trigger begins anew
  constraint_matcher other(literal("x"), {{'A', 'B', 'C'}, 'B'});
  BOOST_TEST(other.accept('B'));
  BOOST_TEST(bits(other) == ids{'A'});
}

BOOST_AUTO_TEST_CASE(room_to_go_back_is_bounded) {
  constraint_matcher m(literal("abcdef"), {}, 3);
  for (const char c : std::string("abcdef"))
    BOOST_TEST(m.accept(c));
  BOOST_TEST(!m.rollback(4));
  BOOST_TEST(m.rollback(3));
  BOOST_TEST(bits(m) == ids{'d'});
  constraint_matcher fresh(literal("ab"));
  BOOST_TEST(fresh.accept('a'));
  BOOST_TEST(!fresh.rollback(2));
  BOOST_TEST(fresh.rollback(1));
  BOOST_TEST(bits(fresh) == ids{'a'});
}

BOOST_AUTO_TEST_CASE(forced_text) {
  compile_budget budget;
  grammar_builder builder(budget);
  const grammar_expr digit = builder.chars(char_set({{'0', '9'}}));
  const auto grammar = compile_grammar(
      builder, builder.define("root", builder.sequence({builder.literal("value: "), digit, builder.literal(" units")})),
      small_vocabulary());
  constraint_matcher m(grammar);
  BOOST_TEST(m.forced() == "value: ");
  BOOST_TEST(m.forced(3) == "val");
  for (const char c : std::string("value: 7"))
    BOOST_TEST(m.accept(c));
  BOOST_TEST(m.forced() == " units");
}

BOOST_AUTO_TEST_SUITE_END()
