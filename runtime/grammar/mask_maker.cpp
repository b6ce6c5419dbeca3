#include "runtime/grammar/mask_maker.hpp"
#include "runtime/grammar/near_states.hpp"
#include <algorithm>
#include <bit>
#include <cstring>

namespace troupe {

namespace {

using edge_kind = rule_network::edge_kind;

constexpr std::size_t cheap_walk = 48;          // nodes; masks made with fewer are not kept
constexpr std::size_t listed_ids = 1024;        // kept as a list up to so many
constexpr std::size_t most_loop_items = 8;      // of a frontier that is looked at as a loop
constexpr std::size_t table_work = 3;           // of a node, while a table is made
constexpr std::uint32_t few_children = 4;       // of a node; the place above them is asked about few bytes
constexpr std::size_t few_exits = 2'048;        // of a loop; what more of them read is not worth a trie
constexpr unsigned lead_byte = 0xC2;            // the smallest that begins a character of several bytes
constexpr std::uint32_t more_bytes = 3;         // of a character, behind its first one
constexpr std::uint32_t large_subtree = 16'384; // nodes; worth a table of its own where what follows is a loop

// Counts the nodes of a walk, some at a time. False: the work is spent.
bool counted(std::size_t nodes, mask_work& work) {
  constexpr std::size_t at_once = 32;
  return nodes % at_once != 0 || work.add(at_once);
}

} // namespace

mask_maker::mask_maker(std::shared_ptr<const rule_network> network, std::shared_ptr<const token_vocabulary> vocabulary,
                       table_list known, std::size_t max_items, std::size_t max_bytes)
    : vocabulary_(std::move(vocabulary)), store_(network, max_items, max_bytes), tables_(std::move(known)),
      known_tables_(tables_.size()) {
  for (std::size_t i = 0; i < tables_.size(); ++i)
    known_tables_[i].store(tables_[i].get(), std::memory_order_relaxed);
  for (std::uint32_t s = 0; s < network->stand_in.size(); ++s)
    stand_ins_ |= network->stand_in[s] != s && network->stand_in[s] != rule_network::no_text;
  stand_ins_ |= !network->uncounted_below.empty();
}

// Counted as if it were made here, even if somebody has made it since the grammar was compiled: what others do
// meanwhile must not show. Null: the work is spent.
const loop_table* mask_maker::table(std::int32_t index, mask_work& work) {
  const auto i = static_cast<std::size_t>(index);
  if (const loop_table* known = known_tables_[i].load(std::memory_order_acquire))
    return known;
  if (!work.add(table_work * vocabulary_->trie().size()))
    return nullptr;
  const std::lock_guard hold(tables_lock_);
  tables_[i] = vocabulary_->table_of(store_.network().round_dfas[i]);
  known_tables_[i].store(tables_[i].get(), std::memory_order_release);
  return tables_[i].get();
}

const loop_table* mask_maker::table_below(std::int32_t index, std::uint32_t node, mask_work& work) {
  const std::lock_guard hold(tables_lock_);
  std::shared_ptr<const loop_table>& known = tables_below_[{index, node}];
  if (!known) {
    if (!work.add(table_work * (vocabulary_->trie().end(node) - node)))
      return nullptr;
    known = vocabulary_->table_of(store_.network().round_dfas[static_cast<std::size_t>(index)], node);
  }
  return known.get();
}

std::size_t mask_maker::bytes_of(const table_list& tables) {
  std::size_t sum = 0;
  for (const auto& t : tables)
    if (t)
      sum += t->bytes() / static_cast<std::size_t>(t.use_count());
  return sum;
}

std::size_t mask_maker::table_bytes() {
  const std::lock_guard hold(tables_lock_);
  std::size_t sum = bytes_of(tables_);
  for (const auto& [place, t] : tables_below_)
    sum += t ? t->bytes() / static_cast<std::size_t>(t.use_count()) : 0;
  return sum;
}

void mask_maker::fill(frontier f, std::uint32_t* row, mask_work& work) {
  const std::size_t row_bytes = vocabulary_->words() * 4;
  if (const void* known = store_.attached(f).load(std::memory_order_acquire)) {
    const auto& cached = *static_cast<const cached_mask*>(known);
    if (cached.base != nullptr)
      std::memcpy(row, cached.base, row_bytes);
    else
      std::memset(row, 0, row_bytes);
    for (std::uint32_t i = 0; i < cached.added; ++i)
      set_bit(row, cached.ids[i]);
    work.add(1);
    return;
  }
  std::size_t nodes = 0;
  const std::uint32_t* base = nullptr;
  if (const frontier place = text_place(f); place != dead_frontier) {
    nodes = fill_text(f, place, base, row, work);
  } else if (const auto loop = loop_at(f, work)) {
    const loop_table* known = table(loop->table, work);
    if (known == nullptr)
      return;
    base = known->inside(loop->max == unbounded ? unbounded : loop->max - loop->done);
    std::memcpy(row, base, row_bytes);
    nodes = add_loop(*loop, *known, f, row, work);
  } else if (const frontier usual = usual_target(f, work); usual != dead_frontier) {
    fill(usual, row, work);
    clear_bit(row, vocabulary_->end_token());
    nodes = cheap_walk + walk_differences(f, usual, row, work);
  } else {
    std::memset(row, 0, row_bytes);
    nodes = walk(f, 0, vocabulary_->trie().size(), row, work);
  }
  add_special_bits(f, row, work);
  // what is inside a text rule is kept as a text_mask
  const auto items = store_.items(f);
  if (!work.spent() && nodes > cheap_walk && (items.empty() || items[0].then != store_.open()))
    keep(f, base, row);
}

// Keeps a finished row: as a list of ids if it is short, as few ids over a row that is kept anyway, or whole.
void mask_maker::keep(frontier f, const std::uint32_t* base, const std::uint32_t* row) {
  const std::size_t words = vocabulary_->words();
  std::array<std::int32_t, listed_ids> added;
  std::size_t count = 0;
  bool short_enough = true;
  for (std::size_t w = 0; w < words && short_enough; ++w)
    for (std::uint32_t bits = row[w] & ~(base != nullptr ? base[w] : 0); bits != 0; bits &= bits - 1) {
      short_enough = count < listed_ids;
      if (!short_enough)
        break;
      added[count++] = static_cast<std::int32_t>(32 * w) + std::countr_zero(bits);
    }
  if (!short_enough) {
    auto* copy = static_cast<std::uint32_t*>(store_.allocate(words * 4));
    std::memcpy(copy, row, words * 4);
    base = copy;
    count = 0;
  }
  auto* ids = static_cast<std::int32_t*>(store_.allocate(count * 4));
  std::copy_n(added.begin(), count, ids);
  auto* cached = new (store_.allocate(sizeof(cached_mask))) cached_mask{base, static_cast<std::uint32_t>(count), ids};
  store_.attached(f).store(cached, std::memory_order_release); // if two threads make one, both are right
}

// Where f stands in a text rule: the place that stands in for it, for any caller. Dead: not in one.
frontier mask_maker::text_place(frontier f) {
  const std::vector<std::uint32_t>& stand_in = store_.network().stand_in;
  const auto items = store_.items(f);
  if (stand_in.empty() || items.empty() || items.size() > most_loop_items || items[0].then == store_.open())
    return dead_frontier;
  for (const frontier_store::item& i : items)
    if (i.state >= frontier_store::any_caller || stand_in[i.state] == rule_network::no_text || i.then != items[0].then)
      return dead_frontier;
  return store_.detached(f);
}

// Null: the work is spent.
const mask_maker::text_mask* mask_maker::text_mask_of(frontier place, mask_work& work) {
  {
    const std::lock_guard hold(text_masks_lock_);
    if (const auto known = text_masks_.find(place); known != text_masks_.end())
      return known->second.get();
  }
  // Made outside of the lock; if two threads make one, the first is kept.
  const std::size_t words = vocabulary_->words();
  auto* row = static_cast<std::uint32_t*>(store_.allocate(words * 4));
  fill(place, row, work);
  auto made = std::make_unique<text_mask>(text_mask{row, row, {}});
  if (stand_ins_) {
    auto* near_row = static_cast<std::uint32_t*>(store_.allocate(words * 4));
    std::copy(row, row + words, near_row);
    for (const std::int32_t id : vocabulary_->far().ids())
      clear_bit(near_row, id);
    made->near_row = near_row;
  }
  const token_trie& trie = vocabulary_->quoted();
  const auto& class_of = store_.network().class_of;
  std::array<way_place, most_token_bytes + 1> way;
  way[0] = way_from(place, work);
  std::size_t nodes = 0;
  for (std::uint32_t node = 0; node < trie.size();) {
    if (!counted(++nodes, work))
      break;
    const frontier to = read(way[trie.depth(node) - 1], class_of[trie.byte(node)], work);
    if (to == dead_frontier) {
      node = trie.end(node);
      continue;
    }
    if (trie.children(node) > 0) {
      if (store_.has_ended(to))
        made->ends.push_back(node);
      way[trie.depth(node)] = way_below(trie, node, to, work);
    }
    ++node;
  }
  if (work.spent())
    return nullptr;
  const std::lock_guard hold(text_masks_lock_);
  return text_masks_.emplace(place, std::move(made)).first->second.get();
}

// The mask of f from that of its place: what goes on behind the text depends on the caller, and texts of more than
// near_bytes on the very state.
std::size_t mask_maker::fill_text(frontier f, frontier place, const std::uint32_t*& base, std::uint32_t* row,
                                  mask_work& work) {
  const text_mask* known_inside = text_mask_of(place, work);
  if (known_inside == nullptr)
    return 0;
  const text_mask& inside = *known_inside;
  const auto items = store_.items(f), known = store_.items(place);
  const bool same =
      std::equal(items.begin(), items.end(), known.begin(), known.end(),
                 [](const auto& a, const auto& b) { return a.state == b.state && a.low == b.low && a.high == b.high; });
  base = same ? inside.row : inside.near_row;
  std::copy(base, base + vocabulary_->words(), row);
  std::size_t nodes = cheap_walk + 1;
  const token_trie& quoted = vocabulary_->quoted();
  for (const std::uint32_t node : inside.ends)
    nodes += walk_small(quoted, items[0].then, node + 1, quoted.end(node), same ? UINT32_MAX : near_bytes, row, work);
  if (!same)
    nodes += walk_small(vocabulary_->far(), f, 0, vocabulary_->far().size(), UINT32_MAX, row, work);
  return nodes;
}

// Nodes deeper than `most_depth` are left out.
std::size_t mask_maker::walk_small(const token_trie& trie, frontier from, std::uint32_t node, std::uint32_t end,
                                   std::uint32_t most_depth, std::uint32_t* row, mask_work& work) {
  if (node == end || trie.depth(node) > most_depth)
    return 0;
  return walk_trie(trie, from, node, end, row, work, [&](std::uint32_t at, frontier) {
    return trie.depth(at) == most_depth ? std::optional<std::size_t>(0) : std::nullopt;
  });
}

std::optional<mask_maker::loop_place> mask_maker::loop_at(frontier f, mask_work& work) {
  const auto items = store_.items(f);
  if (items.size() > most_loop_items)
    return std::nullopt;
  const rule_network& net = store_.network();
  std::int32_t tried = -1;
  for (const frontier_store::item& i : items) {
    if (i.state >= frontier_store::any_caller)
      continue;
    for (const rule_network::edge& e : net.edges_of(i.state)) {
      std::int32_t code = -1;
      if (e.kind == edge_kind::loop) {
        const rule_network::loop& l = net.loops[e.what];
        if (l.table >= 0 && items.size() == 1)
          if (const auto place = counted_loop_at(i, e, work))
            return place;
        code = l.max == unbounded && i.low >= l.min ? l.table : -1;
      } else if (e.kind == edge_kind::call && e.to == i.state) {
        code = net.rules[e.what].table;
      } else if (e.kind == edge_kind::mark && e.to == i.state && net.marks[e.what].marks.counts && i.high != 0) {
        code = net.rules[net.marks[e.what].rule].table; // a count that plays no part
      }
      if (code < 0 || code == tried)
        continue;
      if (returns_to(f, net.round_dfas[static_cast<std::size_t>(code)], work))
        return loop_place{code, 0, 0, unbounded, f};
      tried = code;
    }
  }
  return std::nullopt;
}

// A counted loop whose rounds cannot be mistaken for what follows it: no byte begins both.
std::optional<mask_maker::loop_place> mask_maker::counted_loop_at(const frontier_store::item& here,
                                                                  const rule_network::edge& e, mask_work& work) {
  const rule_network& net = store_.network();
  const rule_network::loop& l = net.loops[e.what];
  if (here.low != here.high)
    return std::nullopt;
  // also while the exit is still closed: a token can open it
  const frontier exit = store_.make({e.to, here.then, 0, 0});
  const frontier* behind = store_.expand(exit, work).next;
  for (const byte_dfa::edge& round : net.round_dfas[static_cast<std::size_t>(l.table)].states[0].out)
    for (unsigned byte = round.low; byte <= round.high; ++byte)
      if (behind[net.class_of[byte]] != dead_frontier)
        return std::nullopt;
  return loop_place{l.table, here.low, l.min, l.max, exit};
}

// Whether every word of the code leads from f back to f.
bool mask_maker::returns_to(frontier f, const byte_dfa& round, mask_work& work) {
  std::vector<std::pair<std::uint32_t, frontier>> pending{{0, f}}, seen;
  const rule_network& net = store_.network();
  while (!pending.empty()) {
    const auto at = pending.back();
    pending.pop_back();
    if (std::find(seen.begin(), seen.end(), at) != seen.end())
      continue;
    seen.push_back(at);
    if (seen.size() > 4 * round.states.size())
      return false;
    if (!work.add(round.states[at.first].out.size()))
      return false;
    const frontier* next = store_.expand(at.second, work).next;
    for (const byte_dfa::edge& e : round.states[at.first].out)
      for (unsigned byte = e.low; byte <= e.high; ++byte) {
        if (byte > e.low && net.class_of[byte] == net.class_of[byte - 1])
          continue;
        const frontier to = next[net.class_of[byte]];
        if (round.states[e.target].accepting ? to != f : to == dead_frontier)
          return false;
        if (!round.states[e.target].accepting)
          pending.emplace_back(e.target, to);
      }
  }
  return true;
}

// Where most bytes lead to one and the same loop, for instance from the beginning of a key that must differ from a few
// others: the loop's mask is then a good first guess.
frontier mask_maker::usual_target(frontier f, mask_work& work) {
  const rule_network& net = store_.network();
  if (net.has_token_edges) // the guess would bring bits of its own
    return dead_frontier;
  const frontier* next = store_.expand(f, work).next;
  frontier best = dead_frontier;
  int votes = 0; // the majority, if there is one, survives pairwise cancelling
  for (unsigned b = 0x20; b < 0x7F; ++b) {
    const frontier to = next[net.class_of[b]];
    if (votes == 0)
      best = to;
    votes += to == best ? 1 : -1;
  }
  return best != dead_frontier && best != f && votes > 0 && loop_at(best, work) ? best : dead_frontier;
}

mask_maker::way_place mask_maker::way_below(const token_trie& trie, std::uint32_t node, frontier f, mask_work& work) {
  if (trie.children(node) > few_children)
    return way_from(f, work);
  const frontier_store::expansion* known = store_.expanded(f);
  return {f, known != nullptr ? known->next : nullptr};
}

// Sets the bits of the tokens that leave the loop; those that stay inside are the table's row.
std::size_t mask_maker::add_loop(const loop_place& loop, const loop_table& table, frontier f, std::uint32_t* row,
                                 mask_work& work) {
  const std::uint64_t room = loop.max == unbounded ? unbounded : loop.max - loop.done;
  std::size_t nodes = 0;
  for (const loop_table::early_exit& e : table.early_exits()) {
    const frontier from = store_.read(f, e.before, work);
    if (from != dead_frontier)
      nodes += walk(from, e.node, vocabulary_->trie().end(e.node), row, work);
  }
  const way_place exit = way_from(loop.exit, work);
  for (const unsigned char first : table.rest_bytes()) {
    if (!counted(++nodes, work))
      break;
    if (read(exit, store_.network().class_of[first], work) == dead_frontier)
      continue;
    const auto fits = [&](const loop_table::late_exit& late) {
      return late.rounds <= room && loop.done + late.rounds >= loop.min;
    };
    if (table.late().size() > few_exits)
      add_exits_by_token(loop.exit, table.late(first), fits, row, nodes, work);
    else
      add_exits_by_trie(exit, table, first, fits, row, nodes, work);
  }
  return nodes;
}

// Of tokens that fit; what they read behind the loop is looked up for each by itself.
template <class Fits>
void mask_maker::add_exits_by_token(frontier exit, std::span<const loop_table::late_exit> exits, const Fits& fits,
                                    std::uint32_t* row, std::size_t& nodes, mask_work& work) {
  const auto& class_of = store_.network().class_of;
  for (const loop_table::late_exit& late : exits) {
    if (!fits(late))
      continue;
    frontier to = exit;
    const std::string_view text = vocabulary_->text(late.id);
    for (const char c : text.substr(text.size() - late.rest)) {
      if (!counted(++nodes, work))
        return;
      to = store_.step_lean(to, class_of[static_cast<unsigned char>(c)], work);
      if (to == dead_frontier)
        break;
    }
    if (to != dead_frontier)
      set_bit(row, late.id);
  }
}

// Likewise of those whose rests begin with `first`, by the trie of these rests.
template <class Fits>
void mask_maker::add_exits_by_trie(const way_place& exit, const loop_table& table, unsigned char first,
                                   const Fits& fits, std::uint32_t* row, std::size_t& nodes, mask_work& work) {
  const token_trie& rests = table.rests(first);
  const auto& class_of = store_.network().class_of;
  std::array<way_place, most_token_bytes + 1> way;
  way[0] = exit;
  for (std::uint32_t node = 0; node < rests.size();) {
    if (!counted(++nodes, work))
      break;
    const std::uint32_t depth = rests.depth(node);
    const frontier to = read(way[depth - 1], class_of[rests.byte(node)], work);
    if (to == dead_frontier) {
      node = rests.end(node);
      continue;
    }
    for (std::uint32_t i = rests.first_id(node); i < rests.last_id(node); ++i)
      if (const auto& late = table.late()[static_cast<std::size_t>(rests.ids()[i])]; fits(late))
        set_bit(row, late.id);
    if (rests.children(node) > 0)
      way[depth] = way_below(rests, node, to, work);
    ++node;
  }
}

// Sets the bits of the tokens that end in nodes [node, end), a whole subtree or all; `from` is where the parent is.
// below(node, there) sees every node that is reached and may do what lies below it by itself: then it gives its work.
template <class Below>
std::size_t mask_maker::walk_trie(const token_trie& trie, frontier from, std::uint32_t node, std::uint32_t end,
                                  std::uint32_t* row, mask_work& work, const Below& below) {
  if (node == end)
    return 0;
  std::array<way_place, most_token_bytes + 1> way;
  way[trie.depth(node) - 1] = way_from(from, work);
  const auto& class_of = store_.network().class_of;
  std::size_t nodes = 0;
  while (node < end) {
    if (!counted(++nodes, work))
      break;
    const std::uint32_t depth = trie.depth(node);
    const frontier to = read(way[depth - 1], class_of[trie.byte(node)], work);
    if (to == dead_frontier) {
      node = trie.end(node);
      continue;
    }
    for (std::uint32_t i = trie.first_id(node); i < trie.last_id(node); ++i)
      set_bit(row, trie.ids()[i]);
    if (const std::optional<std::size_t> done = below(node, to)) {
      nodes += *done;
      node = trie.end(node);
      continue;
    }
    if (trie.children(node) > 0)
      way[depth] = way_below(trie, node, to, work);
    ++node;
  }
  return nodes;
}

// In the trie of all tokens. Below the large subtrees, those of the tokens that begin with a blank above all, loops are
// looked up.
std::size_t mask_maker::walk(frontier from, std::uint32_t node, std::uint32_t end, std::uint32_t* row,
                             mask_work& work) {
  const token_trie& trie = vocabulary_->trie();
  return walk_trie(trie, from, node, end, row, work, [&](std::uint32_t at, frontier to) -> std::optional<std::size_t> {
    if (trie.end(at) - at <= large_subtree)
      return std::nullopt;
    const auto loop = loop_at(to, work);
    if (!loop)
      return std::nullopt;
    const loop_table* table = table_below(loop->table, at, work);
    if (table == nullptr)
      return 0;
    const std::uint32_t* inside = table->inside(loop->max == unbounded ? unbounded : loop->max - loop->done);
    for (std::size_t w = 0; w < vocabulary_->words(); ++w)
      row[w] |= inside[w];
    return add_loop(*loop, *table, to, row, work);
  });
}

// Whether no text tells a and b apart, known after so many bytes at most: each of them leads to one and the same place
// from both, or to places that are alike.
bool mask_maker::read_alike(frontier a, frontier b, std::uint32_t bytes, mask_work& work) {
  if (a == b)
    return true;
  if (bytes == 0 || a == dead_frontier || b == dead_frontier)
    return false;
  const frontier *from_a = store_.expand(a, work).next, *from_b = store_.expand(b, work).next;
  const std::size_t classes = store_.network().byte_of_class.size();
  if (!work.add(classes / 8))
    return false;
  for (std::size_t c = 0; c < classes; ++c) {
    const bool again = c > 0 && from_a[c] == from_a[c - 1] && from_b[c] == from_b[c - 1];
    if (!again && !read_alike(from_a[c], from_b[c], bytes - 1, work))
      return false;
  }
  return true;
}

// `row` holds the mask of `base`; makes it that of f by visiting what the two do not read alike.
std::size_t mask_maker::walk_differences(frontier f, frontier base, std::uint32_t* row, mask_work& work) {
  const token_trie& trie = vocabulary_->trie();
  std::array<std::pair<way_place, way_place>, most_token_bytes + 1> way;
  way[0] = {way_from(f, work), way_from(base, work)};
  const auto& class_of = store_.network().class_of;
  std::size_t nodes = 0;
  // Characters of several bytes are read by other rules than those of the loop, but lead to the same places mostly.
  struct {
    frontier to = dead_frontier, guessed = dead_frontier;
    bool alike = true;
  } last;
  const auto alike_behind_lead = [&](frontier to, frontier guessed) {
    if (to != last.to || guessed != last.guessed)
      last = {to, guessed, read_alike(to, guessed, more_bytes, work)};
    return last.alike;
  };
  for (std::uint32_t node = 0; node < trie.size();) {
    if (!counted(++nodes, work))
      break;
    const std::uint32_t depth = trie.depth(node);
    const std::uint8_t c = class_of[trie.byte(node)];
    const frontier to = read(way[depth - 1].first, c, work), guessed = read(way[depth - 1].second, c, work);
    if (to == guessed || (trie.byte(node) >= lead_byte && alike_behind_lead(to, guessed))) {
      node = trie.end(node);
      continue;
    }
    if (to == dead_frontier) {
      for (std::uint32_t i = trie.first_id(node); i < trie.first_id(trie.end(node)); ++i)
        clear_bit(row, trie.ids()[i]);
      node = trie.end(node);
      continue;
    }
    for (std::uint32_t i = trie.first_id(node); i < trie.last_id(node); ++i)
      set_bit(row, trie.ids()[i]);
    if (trie.children(node) > 0)
      way[depth] = {way_below(trie, node, to, work), way_below(trie, node, guessed, work)};
    ++node;
  }
  return nodes;
}

void mask_maker::add_special_bits(frontier f, std::uint32_t* row, mask_work& work) {
  const frontier_store::expansion& here = store_.expand(f, work);
  const rule_network& net = store_.network();
  if (net.has_token_edges)
    for (const frontier_store::scan& s : here.scans)
      for (const rule_network::edge& e : net.edges_of(s.state)) {
        if (e.kind != edge_kind::tokens)
          continue;
        const rule_network::token_list& list = net.token_lists[e.what];
        if (!list.except) {
          for (const std::int32_t id : list.ids)
            set_bit(row, id);
          continue;
        }
        for (const std::int32_t id : vocabulary_->trie().ids())
          if (!std::binary_search(list.ids.begin(), list.ids.end(), id))
            set_bit(row, id);
      }
  if (here.can_end)
    set_bit(row, vocabulary_->end_token());
}

} // namespace troupe
