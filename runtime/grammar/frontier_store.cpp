#include "runtime/grammar/frontier_store.hpp"
#include <algorithm>
#include <cstring>
#include <functional>
#include <unordered_map>

namespace troupe {

namespace {

constexpr std::size_t item_work = 8;                  // of an item looked at or put into a frontier, in nodes of a trie
constexpr std::uint32_t most_lean_steps = 8;          // of a frontier; for more it is expanded
constexpr std::size_t large_work = 16 * item_work;    // of an expansion; it is made at once, and made use of
constexpr std::size_t most_behind = 4;                // places looked at for that
constexpr std::uint32_t most_rounds = UINT32_MAX - 1; // longer repetitions than any output count as endless

std::uint64_t hash_of(std::span<const frontier_store::item> items) {
  std::uint64_t h = items.size() * 0x9E3779B97F4A7C15u;
  for (const frontier_store::item& i : items) {
    h = (h ^ i.state) * 0xFF51AFD7ED558CCDu;
    h = (h ^ (h >> 32) ^ i.then) * 0xC4CEB9FE1A85EC53u;
    h = (h ^ (h >> 29) ^ (std::uint64_t{i.low} << 32 | i.high)) * 0x9E3779B97F4A7C15u;
  }
  return h ^ (h >> 31);
}

} // namespace

// Work space of grow(), kept so that growing allocates little.
struct frontier_store::scratch {
  // Set of visited items by generation: clearing costs nothing.
  struct seen_set {
    struct slot {
      item key{};
      std::uint32_t generation = 0;
    };
    std::vector<slot> slots = std::vector<slot>(64);
    std::uint32_t generation = 0;
    std::size_t count = 0;

    void clear() {
      ++generation;
      count = 0;
    }
    bool insert(const item& i) {
      if (2 * ++count > slots.size()) {
        std::vector<slot> old(2 * slots.size());
        old.swap(slots);
        for (const slot& s : old)
          if (s.generation == generation)
            place(s.key);
      }
      return place(i);
    }

  private:
    bool place(const item& i) {
      for (std::size_t at = hash_of({&i, 1}) & (slots.size() - 1);; at = (at + 1) & (slots.size() - 1)) {
        if (slots[at].generation != generation) {
          slots[at] = {i, generation};
          return true;
        }
        if (slots[at].key == i)
          return false;
      }
    }
  };

  seen_set seen;
  std::vector<item> pending;
  std::vector<scan> scans;
  bool can_end = false;
  // Rules called from here, and behind what.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> called; // rank and rule; a heap, the smallest rank first
  std::vector<std::vector<item>> callers;                      // by rule
  std::vector<std::vector<item>> by_class;                     // targets
  std::vector<item> before;                                    // of the class before
  std::vector<item> joined;
  std::size_t work = 0; // of close() and what follows: items looked at and put together
  // Behind rules that have ended here: large expansions that are taken as they are, and places without one.
  std::vector<const expansion*> known;
  std::vector<frontier> behind;
  std::vector<std::uint32_t> scanned; // by state: the round that marked it
  std::uint32_t round = 0;

  // Whether no state reads both here and there: such readings belong together.
  bool apart() {
    ++round;
    const auto mark = [&](const scan& sc) { return std::exchange(scanned[sc.state], round) != round; };
    return std::all_of(scans.begin(), scans.end(), mark) && std::all_of(known.begin(), known.end(), [&](const auto* k) {
             return std::all_of(k->scans.begin(), k->scans.end(), mark);
           });
  }
};

frontier_store::frontier_store(std::shared_ptr<const rule_network> network, std::size_t max_items,
                               std::size_t max_bytes)
    : network_(std::move(network)), max_items_(max_items), max_bytes_(max_bytes), table_(256),
      scratch_(std::make_unique<scratch>()) {
  scratch_->callers.resize(network_->rules.size());
  scratch_->by_class.resize(network_->byte_of_class.size());
  scratch_->scanned.resize(network_->states());
  std::vector<item> none, end{{text_end, dead_frontier, 0, 0}};
  intern(none); // number 0
  const frontier done = intern(end);
  std::vector<item> any{{any_caller, dead_frontier, 0, 0}};
  open_ = intern(any);
  const rule_network::rule& root = network_->rules[network_->root];
  std::vector<item> first{{root.start, done, 0, 0}};
  if (root.can_be_empty) // a rule that has read nothing does not end by itself
    first.push_back({text_end, dead_frontier, 0, 0});
  start_ = intern(first);
}

frontier_store::~frontier_store() {
  for (auto& chunk : chunks_)
    delete[] chunk.load();
}

void* frontier_store::take(std::size_t bytes) {
  bytes = (bytes + 15) & ~std::size_t{15};
  if (bytes > left_) {
    const std::size_t block = std::max<std::size_t>(bytes, blocks_.empty() ? 8192 : 65536);
    blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(block));
    free_ = blocks_.back().get();
    left_ = block;
    bytes_.fetch_add(block, std::memory_order_relaxed);
  }
  void* p = free_;
  free_ += bytes;
  left_ -= bytes;
  return p;
}

void* frontier_store::allocate(std::size_t bytes) {
  const std::lock_guard hold(growing_);
  return take(bytes);
}

frontier frontier_store::make(const item& only) {
  const std::lock_guard hold(growing_);
  std::vector<item> items;
  add_item(items, only.state, only.then, only.low, only.high);
  return intern(items);
}

frontier frontier_store::detached(frontier f) {
  const std::lock_guard hold(growing_);
  const std::vector<std::uint32_t>& below = network_->uncounted_below;
  std::vector<item> out(items(f).begin(), items(f).end());
  for (item& i : out) {
    i.then = open_;
    if (const std::uint32_t uncounted = below.empty() ? 0 : below[i.state]; uncounted > 0) {
      if (i.high > 0 || i.low >= uncounted)
        continue;
      i.low = i.high = UINT32_MAX;
    }
    i.state = network_->stand_in[i.state];
  }
  return intern(out);
}

// Sorts, joins neighbouring counts and finds or makes the number.
frontier frontier_store::intern(std::vector<item>& items) {
  std::sort(items.begin(), items.end());
  std::size_t kept = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (kept > 0) {
      item& last = items[kept - 1];
      const bool joined = last.state == items[i].state && last.then == items[i].then &&
                          (last == items[i] || (counts(last.state) && items[i].low <= last.high + 1));
      if (joined) {
        last.high = std::max(last.high, items[i].high);
        continue;
      }
    }
    items[kept++] = items[i];
  }
  items.resize(kept);
  if (items.size() > max_items_ || bytes() > max_bytes_) {
    overflowed_.store(true, std::memory_order_relaxed);
    return dead_frontier;
  }
  const std::uint64_t hash = hash_of(items);
  std::size_t slot = hash & (table_.size() - 1);
  for (; table_[slot] != 0; slot = (slot + 1) & (table_.size() - 1)) {
    const std::uint32_t candidate = table_[slot] - 1;
    if (hashes_[candidate] == hash) {
      const auto known = at(candidate).items;
      if (std::equal(known.begin(), known.end(), items.begin(), items.end()))
        return candidate;
    }
  }
  const auto number = static_cast<frontier>(hashes_.size());
  const std::uint32_t place = number + first_chunk;
  if (std::has_single_bit(place)) { // the first node of a chunk
    const std::uint32_t chunk = std::bit_width(place / first_chunk) - 1u;
    if (chunk >= most_chunks) {
      overflowed_.store(true, std::memory_order_relaxed);
      return dead_frontier;
    }
    chunks_[chunk].store(new node[place], std::memory_order_release);
    bytes_.fetch_add(place * sizeof(node), std::memory_order_relaxed);
  }
  auto* copy = static_cast<item*>(take(items.size() * sizeof(item)));
  std::copy(items.begin(), items.end(), copy);
  at(number).items = {copy, items.size()};
  hashes_.push_back(hash);
  count_.store(hashes_.size(), std::memory_order_relaxed);
  bytes_.fetch_add(16, std::memory_order_relaxed);
  table_[slot] = number + 1;
  if (2 * hashes_.size() > table_.size()) {
    std::vector<std::uint32_t> larger(2 * table_.size());
    for (std::uint32_t n = 0; n < hashes_.size(); ++n) {
      std::size_t free_slot = hashes_[n] & (larger.size() - 1);
      while (larger[free_slot] != 0)
        free_slot = (free_slot + 1) & (larger.size() - 1);
      larger[free_slot] = n + 1;
    }
    table_ = std::move(larger);
  }
  return number;
}

bool frontier_store::counts(std::uint32_t state) const {
  return state < any_caller && !network_->edges_of(state).empty() &&
         network_->edges_of(state)[0].kind == rule_network::edge_kind::loop;
}

// Counts beyond the smallest number of rounds of an endless loop are all the same.
void frontier_store::count_loop(const rule_network::loop& l, std::uint64_t& low, std::uint64_t& high) const {
  const std::uint64_t most = l.max >= most_rounds ? std::min<std::uint64_t>(l.min, most_rounds) : l.max;
  low = std::min(low, most);
  high = std::min(high, most);
}

// A place behind a reading: the end of a rule stands for what follows its callers, a loop that is full for its exit.
void frontier_store::add_item(std::vector<item>& to, std::uint32_t state, frontier then, std::uint64_t low,
                              std::uint64_t high) const {
  while (state < any_caller) {
    if (network_->is_end[state]) {
      const auto callers = at(then).items;
      to.insert(to.end(), callers.begin(), callers.end());
      return;
    }
    const auto out = network_->edges_of(state);
    if (out.size() != 1 || out[0].kind != rule_network::edge_kind::loop)
      break;
    const rule_network::loop& l = network_->loops[out[0].what];
    if (l.max < most_rounds && low >= l.max) {
      state = out[0].to;
      low = high = 0;
      continue;
    }
    count_loop(l, low, high);
    break;
  }
  to.push_back({state, then, static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(high)});
}

void frontier_store::visit(std::uint32_t state, frontier then, std::uint64_t low, std::uint64_t high) {
  const item i{state, then, static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(high)};
  if (scratch_->seen.insert(i))
    scratch_->pending.push_back(i);
}

void frontier_store::call(std::uint32_t rule, std::uint32_t state, frontier then, std::uint64_t low,
                          std::uint64_t high) {
  std::vector<item>& callers = scratch_->callers[rule];
  if (callers.empty()) {
    scratch_->called.emplace_back(network_->rules[rule].rank, rule);
    std::push_heap(scratch_->called.begin(), scratch_->called.end(), std::greater{});
  }
  add_item(callers, state, then, low, high);
}

// Calls the values that can come behind those used.
void frontier_store::pick(const rule_network::edge& e, frontier then, std::uint64_t used) {
  const rule_network::distinct& d = network_->distincts[e.what];
  for (std::uint64_t open = e.reads ? d.which.inner(used) : d.which.last(used); open != 0; open &= open - 1) {
    const std::uint64_t with = e.reads ? used | (open & -open) : 0; // the set ends with the list
    call(d.values[static_cast<std::size_t>(std::countr_zero(open))], e.to, then, with & UINT32_MAX, with >> 32);
  }
}

// Calls what may be read where these marks are put, if it may.
void frontier_store::mark(const rule_network::edge& e, frontier then, std::uint64_t marks) {
  const rule_network::marked& m = network_->marks[e.what];
  if (const std::optional<std::uint64_t> with = m.marks.behind(marks))
    call(m.rule, e.to, then, *with & UINT32_MAX, *with >> 32);
}

// All states that can be reached from f without reading anything, in two phases. First those in rules that had begun
// before: where such a rule ends, its callers go on. Then the rules that begin here, callers before callees, since what
// follows a rule must be complete before its number is known; they cannot end without a reading, as the empty word of a
// called rule is a step over the call. What goes on behind an ended rule is taken as it is known if it is large: the
// same members of an object stand behind every number of blanks.
void frontier_store::close(frontier f) {
  scratch& s = *scratch_;
  std::size_t work = 0;
  close_from(f, true);
  if (s.work > large_work && !s.behind.empty()) {
    work = s.work;
    for (const frontier then : std::vector(s.behind)) {
      if (expanded(then) != nullptr)
        continue;
      close_from(then, false);
      work += grow_closed(then).work;
    }
    close_from(f, true);
  }
  if (!s.known.empty() && !s.apart())
    close_from(f, false);
  s.work += work;
}

void frontier_store::close_from(frontier f, bool take_known) {
  using edge_kind = rule_network::edge_kind;
  scratch& s = *scratch_;
  s.seen.clear();
  s.scans.clear();
  s.called.clear();
  s.known.clear();
  s.behind.clear();
  s.can_end = false;
  s.work = 0;
  const rule_network& net = *network_;
  for (const item& i : at(f).items)
    visit(i.state, i.then, i.low, i.high);
  while (!s.pending.empty()) {
    const item i = s.pending.back();
    s.pending.pop_back();
    s.work += item_work;
    if (i.state == text_end) {
      s.can_end = true;
      continue;
    }
    if (i.state == any_caller)
      continue;
    if (net.is_end[i.state]) {
      const expansion* known = take_known ? expanded(i.then) : nullptr;
      if (known != nullptr && known->work > large_work && s.known.size() < most_behind) {
        if (std::find(s.known.begin(), s.known.end(), known) == s.known.end())
          s.known.push_back(known);
        s.can_end |= known->can_end;
        continue;
      }
      if (known == nullptr && s.behind.size() < most_behind)
        s.behind.push_back(i.then);
      for (const item& caller : at(i.then).items)
        visit(caller.state, caller.then, caller.low, caller.high);
      continue;
    }
    bool scans = false;
    for (const rule_network::edge& e : net.edges_of(i.state)) {
      switch (e.kind) {
      case edge_kind::free:
        visit(e.to, i.then, 0, 0);
        break;
      case edge_kind::bytes:
      case edge_kind::tokens:
        scans = true;
        break;
      case edge_kind::call: // with a set, if the state holds one
        call(e.what, e.to, i.then, i.low, i.high);
        if (net.rules[e.what].can_be_empty && !e.reads)
          visit(e.to, i.then, 0, 0);
        break;
      case edge_kind::pick:
        pick(e, i.then, i.low | std::uint64_t{i.high} << 32);
        break;
      case edge_kind::mark:
        mark(e, i.then, i.low | std::uint64_t{i.high} << 32);
        break;
      case edge_kind::leave:
        if (net.marks[e.what].marks.behind(i.low | std::uint64_t{i.high} << 32))
          visit(e.to, i.then, 0, 0);
        break;
      case edge_kind::loop: {
        const rule_network::loop& l = net.loops[e.what];
        if (i.high >= std::min<std::uint64_t>(l.min, most_rounds))
          visit(e.to, i.then, 0, 0);
        if (l.max >= most_rounds || i.low < l.max)
          call(l.body, i.state, i.then, std::uint64_t{i.low} + 1, std::min(std::uint64_t{i.high} + 1, l.max));
        break;
      }
      }
    }
    if (scans)
      s.scans.push_back({i.state, i.then});
  }
  while (!s.called.empty()) {
    std::pop_heap(s.called.begin(), s.called.end(), std::greater{});
    const std::uint32_t rule = s.called.back().second;
    s.called.pop_back();
    s.joined.swap(s.callers[rule]);
    s.work += item_work * (s.joined.size() + net.rules[rule].opening.size());
    const frontier then = intern(s.joined);
    s.joined.clear();
    if (then == dead_frontier)
      continue; // too many items
    for (const std::uint32_t state : net.rules[rule].opening) {
      bool scans = false;
      for (const rule_network::edge& e : net.edges_of(state)) {
        if (e.kind == edge_kind::bytes || e.kind == edge_kind::tokens)
          scans = true;
        else if (e.kind == edge_kind::call)
          call(e.what, e.to, then, 0, 0);
        else if (e.kind == edge_kind::pick)
          pick(e, then, 0);
        else if (e.kind == edge_kind::mark)
          mark(e, then, 0);
        else if (e.kind == edge_kind::loop)
          call(net.loops[e.what].body, state, then, 1, 1);
      }
      if (scans)
        s.scans.push_back({state, then});
    }
  }
}

const frontier_store::expansion& frontier_store::grow(frontier f) {
  const std::lock_guard hold(growing_);
  if (const expansion* known = at(f).grown.load(std::memory_order_acquire))
    return *known;
  close(f);
  return grow_closed(f);
}

// What lies behind the known expansions by this class of bytes: the place itself if nothing else does; otherwise its
// items join the others.
frontier frontier_store::behind_known(std::size_t byte_class) {
  std::vector<item>& to = scratch_->by_class[byte_class];
  const auto& known = scratch_->known;
  if (known.size() == 1 && to.empty())
    return known[0]->next[byte_class];
  for (const expansion* k : known) {
    const auto more = items(k->next[byte_class]);
    to.insert(to.end(), more.begin(), more.end());
  }
  return dead_frontier;
}

const frontier_store::expansion& frontier_store::grow_closed(frontier f) {
  scratch& s = *scratch_;
  const rule_network& net = *network_;
  for (const scan& sc : s.scans)
    for (const rule_network::edge& e : net.edges_of(sc.state))
      if (e.kind == rule_network::edge_kind::bytes)
        for (unsigned c = net.class_of[e.low]; c <= net.class_of[e.high]; ++c)
          add_item(s.by_class[c], e.to, sc.then, 0, 0);
  const std::size_t classes = s.by_class.size();
  auto* next = static_cast<frontier*>(take(classes * sizeof(frontier)));
  s.before.clear();
  frontier last = dead_frontier; // where `before` is
  for (std::size_t c = 0; c < classes; ++c) {
    const frontier only = behind_known(c);
    std::vector<item>& to = s.by_class[c];
    s.work += 1 + item_work * to.size();
    if (only == dead_frontier && to != s.before) { // neighbours are often alike
      s.before = to;
      last = to.empty() ? dead_frontier : intern(to);
    }
    next[c] = only != dead_frontier ? only : last;
    to.clear();
  }
  for (const expansion* k : s.known)
    s.scans.insert(s.scans.end(), k->scans.begin(), k->scans.end());
  auto* scans = static_cast<scan*>(take(s.scans.size() * sizeof(scan)));
  std::copy(s.scans.begin(), s.scans.end(), scans);
  auto* made = new (take(sizeof(expansion)))
      expansion{next, {scans, s.scans.size()}, s.can_end, static_cast<std::uint32_t>(s.work)};
  at(f).grown.store(made, std::memory_order_release);
  return *made;
}

frontier frontier_store::grow_lean(frontier f, std::uint8_t byte_class, mask_work& work) {
  {
    const std::lock_guard hold(growing_);
    node& n = at(f);
    const lean_step* known = n.steps.load(std::memory_order_relaxed);
    for (const lean_step* s = known; s != nullptr; s = s->older)
      if (s->byte_class == byte_class)
        return s->to; // another thread was faster
    if (known == nullptr || known->number < most_lean_steps) {
      close(f);
      scratch& s = *scratch_;
      if (s.work > large_work) {
        const expansion& made = grow_closed(f);
        work.add(made.work);
        return made.next[byte_class];
      }
      std::vector<item>& to = s.by_class[byte_class];
      const unsigned char byte = network_->byte_of_class[byte_class];
      for (const scan& sc : s.scans)
        for (const rule_network::edge& e : network_->edges_of(sc.state))
          if (e.kind == rule_network::edge_kind::bytes && e.low <= byte && byte <= e.high)
            add_item(to, e.to, sc.then, 0, 0);
      const frontier only = behind_known(byte_class);
      work.add(s.work + 1 + item_work * to.size());
      const frontier next = to.empty() ? only : intern(to);
      to.clear();
      n.steps.store(new (take(sizeof(lean_step)))
                        lean_step{known, next, byte_class, known != nullptr ? known->number + 1 : 1},
                    std::memory_order_release);
      return next;
    }
  }
  return expand(f, work).next[byte_class];
}

frontier frontier_store::read_token(frontier f, std::int32_t id, std::string_view text) {
  const frontier as_text = text.empty() ? dead_frontier : read(f, text);
  if (!network_->has_token_edges)
    return as_text;
  const expansion& here = expand(f);
  std::vector<item> items;
  const std::lock_guard hold(growing_);
  for (const scan& s : here.scans)
    for (const rule_network::edge& e : network_->edges_of(s.state)) {
      if (e.kind != rule_network::edge_kind::tokens)
        continue;
      const rule_network::token_list& list = network_->token_lists[e.what];
      const bool listed = std::binary_search(list.ids.begin(), list.ids.end(), id);
      if (list.except ? !listed && !text.empty() : listed)
        add_item(items, e.to, s.then, 0, 0);
    }
  if (items.empty())
    return as_text;
  const auto also = at(as_text).items;
  items.insert(items.end(), also.begin(), also.end());
  return intern(items);
}

frontier frontier_store::copy_to(frontier_store& other, frontier f) const {
  // Continuations first; they form no circles, and none is deeper than the text is long.
  std::unordered_map<frontier, frontier> done{{dead_frontier, dead_frontier}};
  std::vector<frontier> pending{f};
  while (!pending.empty()) {
    const frontier now = pending.back();
    bool ready = true;
    for (const item& i : at(now).items)
      if (!done.contains(i.then)) {
        pending.push_back(i.then);
        ready = false;
      }
    if (!ready)
      continue;
    pending.pop_back();
    if (done.contains(now))
      continue;
    std::vector<item> items(at(now).items.begin(), at(now).items.end());
    for (item& i : items)
      i.then = done[i.then];
    const std::lock_guard hold(other.growing_);
    done.emplace(now, other.intern(items));
  }
  return done[f];
}

} // namespace troupe
