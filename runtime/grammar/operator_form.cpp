#include "runtime/grammar/operator_form.hpp"
#include <algorithm>

namespace troupe {

namespace {

using kind = grammar_builder::kind;
using word = operator_form::word;

constexpr std::size_t most_product = 64;   // words of a sequence of groups
constexpr std::size_t most_words = 20'000; // of a rule
constexpr std::size_t most_nodes = 1'000;  // looked at in search of a rule
constexpr std::size_t most_depth = 32;     // of groups that are written out
constexpr std::size_t most_group = 8;      // rules that stand between a rule and itself

// The least set of words that satisfies a rule does not change when some uses of the rule in its own body are taken for
// the rule as a whole, which is read by a call, and others are solved for first. So only those at the ends of the
// body's words are solved for, and any writing out may stop where it becomes too large.
class form_finder {
public:
  form_finder(const grammar_builder& builder, grammar_rule rule) : builder_(builder), rule_(rule) {}

  std::optional<operator_form> find() {
    std::vector<grammar_rule> near = called_at_ends(rule_);
    if (std::find(near.begin(), near.end(), rule_) == near.end())
      return std::nullopt;
    std::erase_if(near, [&](grammar_rule r) {
      const auto back = r == rule_ ? std::vector<grammar_rule>() : called_at_ends(r);
      return std::find(back.begin(), back.end(), rule_) == back.end();
    });
    if (near.size() <= most_group)
      group_ = near;
    auto words = written_out(builder_.body_of(rule_), 0);
    if (!words || !replace_group(*words))
      return std::nullopt;
    return sorted(*words);
  }

private:
  bool is_self(grammar_expr e) const {
    return builder_.at(e).what == kind::call && builder_.at(e).first == rule_.index;
  }
  bool is_group(grammar_expr e) const {
    return builder_.at(e).what == kind::call &&
           std::find(group_.begin(), group_.end(), grammar_rule{builder_.at(e).first}) != group_.end();
  }

  // Whether it is seen at once that the empty word is one of e's.
  bool can_be_empty(grammar_expr e) const {
    for (std::size_t calls = 0;; ++calls) {
      const grammar_builder::node& n = builder_.at(e);
      if (n.what != kind::call || calls == most_group || !builder_.defined({n.first}))
        break;
      e = builder_.body_of({n.first});
    }
    const grammar_builder::node& n = builder_.at(e);
    if (n.what != kind::alternatives)
      return e == builder_.empty() || (n.what == kind::repeat && n.min == 0);
    const auto parts = builder_.children(n);
    builder_.budget().work(parts.size());
    return parts.size() <= most_product && std::find(parts.begin(), parts.end(), builder_.empty()) != parts.end();
  }

  // The words of e, of which one is empty, so that no other is where e shows it.
  std::vector<word> without_empty(grammar_expr e) const {
    while (builder_.at(e).what == kind::call)
      e = builder_.body_of({builder_.at(e).first});
    const grammar_builder::node& n = builder_.at(e);
    std::vector<word> out{{}};
    if (n.what == kind::alternatives) {
      for (const grammar_expr part : builder_.children(n))
        if (part != builder_.empty())
          out.push_back({part});
    } else if (n.what == kind::repeat && n.max == 1) {
      out.push_back({{n.first}});
    } else if (n.what == kind::repeat && n.max == unbounded) {
      out.push_back({{n.first}, e});
    } else if (n.what == kind::repeat) {
      out.push_back({e});
    }
    return out;
  }

  // Rules that stand at the ends of words of r, the rule itself included if it does.
  std::vector<grammar_rule> called_at_ends(grammar_rule r) const {
    std::vector<grammar_rule> found;
    std::vector<grammar_expr> open;
    if (builder_.defined(r))
      open.push_back(builder_.body_of(r));
    for (std::size_t i = 0; i < open.size() && i < most_nodes; ++i) {
      builder_.budget().work();
      const grammar_builder::node& n = builder_.at(open[i]);
      const auto parts = n.what == kind::sequence || n.what == kind::alternatives ? builder_.children(n)
                                                                                  : std::span<const grammar_expr>();
      if (n.what == kind::sequence) { // what can be empty at an end may be left out there
        std::size_t first = 0, last = parts.size() - 1;
        for (; open.push_back(parts[first]), first < last && can_be_empty(parts[first]); ++first)
          ;
        for (; open.push_back(parts[last]), first < last && can_be_empty(parts[last]); --last)
          ;
      } else if (n.what == kind::alternatives) {
        for (const grammar_expr part : parts.first(std::min(parts.size(), most_nodes)))
          if (builder_.at(part).what != kind::bytes)
            open.push_back(part);
      } else if (n.what == kind::repeat) {
        open.push_back({n.first});
      } else if (n.what == kind::call && std::find(found.begin(), found.end(), grammar_rule{n.first}) == found.end()) {
        found.push_back({n.first});
        if (builder_.defined({n.first}))
          open.push_back(builder_.body_of({n.first}));
      }
    }
    return found;
  }

  // Whether the rule, or one of the group, stands in e itself.
  bool is_inside(grammar_expr e) const {
    std::vector<grammar_expr> open{e};
    for (std::size_t i = 0; i < open.size() && i < most_nodes; ++i) {
      builder_.budget().work();
      if (is_self(open[i]) || is_group(open[i]))
        return true;
      const grammar_builder::node& n = builder_.at(open[i]);
      if (n.what == kind::repeat)
        open.push_back({n.first});
      else if (n.what == kind::sequence || n.what == kind::alternatives)
        open.insert(open.end(), builder_.children(n).begin(), builder_.children(n).end());
    }
    return false;
  }

  // The words of e, with the rule as a part of its own wherever it stands; nothing: too many.
  std::optional<std::vector<word>> written_out(grammar_expr e, std::size_t depth) const {
    if (e == builder_.empty())
      return std::vector<word>{{}};
    const grammar_builder::node& n = builder_.at(e);
    const std::vector<word> whole{{e}};
    if (n.what == kind::call || depth > most_depth || !is_inside(e))
      return whole;
    std::vector<word> out;
    if (n.what == kind::alternatives) {
      for (const grammar_expr part : builder_.children(n)) {
        const auto more = written_out(part, depth + 1);
        if (!more || out.size() + more->size() > most_words)
          return std::nullopt;
        out.insert(out.end(), more->begin(), more->end());
      }
      return out;
    }
    if (n.what == kind::sequence) {
      out = {{}};
      for (const grammar_expr part : builder_.children(n)) {
        const auto more = written_out(part, depth + 1);
        if (!more || !multiply(out, *more))
          return std::nullopt;
      }
      return out;
    }
    if (n.what != kind::repeat)
      return whole;
    // Many of the rule in a row are made of fewer: x{3,} is three or four, each of which can be three or four again.
    std::uint64_t max = n.max;
    if (max == unbounded && is_self({n.first}))
      max = std::max<std::uint64_t>(2, n.min > 2 ? 2 * n.min - 2 : 2);
    if (max > 2 * most_group)
      return whole;
    const auto round = written_out({n.first}, depth + 1);
    std::vector<word> rounds{{}};
    for (std::uint64_t i = 0; i <= max; ++i) {
      if (i >= n.min)
        out.insert(out.end(), rounds.begin(), rounds.end());
      if (!round || out.size() > most_product)
        return whole;
      if (i < max && !multiply(rounds, *round))
        return whole;
    }
    return out;
  }

  static bool multiply(std::vector<word>& words, const std::vector<word>& by) {
    if (by.size() > 1 && words.size() * by.size() > most_product)
      return false;
    std::vector<word> out;
    for (const word& w : words)
      for (const word& more : by) {
        out.push_back(w);
        out.back().insert(out.back().end(), more.begin(), more.end());
      }
    words = std::move(out);
    return true;
  }

  // Puts the bodies of the group's rules where these stand at the ends of words, and the words of what can be empty
  // there before or behind the rule.
  bool replace_group(std::vector<word>& words) const {
    std::size_t replaced = 0;
    for (std::size_t i = 0; i < words.size();) {
      const word w = words[i];
      const auto hides = [&](std::size_t at, std::size_t inner) {
        return w.size() > 1 && !is_self(w[at]) && (is_self(w[inner]) || can_be_empty(w[inner])) &&
               can_be_empty(w[at]) && std::any_of(w.begin(), w.end(), [&](grammar_expr e) { return is_self(e); });
      };
      std::size_t at = w.size();
      bool whole = true;
      if (!w.empty() && replaced < most_group && words.size() <= most_product) {
        at = is_group(w.front()) ? 0 : is_group(w.back()) ? w.size() - 1 : w.size();
        whole = at < w.size();
        if (!whole && hides(0, 1))
          at = 0;
        else if (!whole && hides(w.size() - 1, w.size() - 2))
          at = w.size() - 1;
      }
      if (at == w.size()) {
        ++i;
        continue;
      }
      ++replaced;
      const std::optional<std::vector<word>> body =
          whole ? written_out(builder_.body_of({builder_.at(w[at]).first}), 0) : without_empty(w[at]);
      if (!body)
        return false;
      std::vector<word> made{word(w.begin(), w.begin() + static_cast<std::ptrdiff_t>(at))};
      const std::vector<word> rest{word(w.begin() + static_cast<std::ptrdiff_t>(at) + 1, w.end())};
      if (!multiply(made, *body) || !multiply(made, rest)) {
        ++i;
        continue;
      }
      words[i] = made.front();
      words.insert(words.end(), made.begin() + 1, made.end());
    }
    return true;
  }

  std::optional<operator_form> sorted(const std::vector<word>& words) const {
    operator_form form;
    for (const word& w : words) {
      const bool begins = !w.empty() && is_self(w.front()), ends = !w.empty() && is_self(w.back());
      if (begins && std::all_of(w.begin(), w.end(), [&](grammar_expr e) { return is_self(e); })) {
        if (w.size() > 1)
          form.powers.push_back(w.size());
      } else if (begins && ends) {
        form.operators.emplace_back(w.begin() + 1, w.end() - 1);
      } else if (begins) {
        form.suffixes.emplace_back(w.begin() + 1, w.end());
      } else if (ends) {
        form.prefixes.emplace_back(w.begin(), w.end() - 1);
      } else {
        form.operands.push_back(w);
      }
    }
    // Three in a row are two with one more behind, where two in a row are one.
    std::sort(form.powers.begin(), form.powers.end());
    std::vector<std::size_t> needed;
    for (const std::size_t k : form.powers)
      if (std::none_of(needed.begin(), needed.end(), [&](std::size_t less) { return (k - 1) % (less - 1) == 0; }))
        needed.push_back(k);
    // Others in a row can stand around each other but not around what operators join: these are called.
    if (!form.operators.empty() && !needed.empty() && needed.front() > 2) {
      for (const std::size_t k : needed)
        form.operators.push_back(*std::find_if(words.begin(), words.end(), [&](const word& w) {
          return w.size() == k && std::all_of(w.begin(), w.end(), [&](grammar_expr e) { return is_self(e); });
        }));
      for (auto op = form.operators.end() - static_cast<std::ptrdiff_t>(needed.size()); op != form.operators.end();
           ++op)
        op->resize(op->size() - 2);
      needed.clear();
    }
    form.powers = std::move(needed);
    if (form.powers.empty() && form.operators.empty() && form.prefixes.empty() && form.suffixes.empty())
      return std::nullopt;
    return form;
  }

  const grammar_builder& builder_;
  grammar_rule rule_;
  std::vector<grammar_rule> group_; // others that stand at its ends, and it at theirs
};

} // namespace

std::optional<operator_form> operator_form_of(const grammar_builder& builder, grammar_rule rule) {
  return form_finder(builder, rule).find();
}

} // namespace troupe
