#include "runtime/kv/kv_cache.hpp"
#include "runtime/base/check.hpp"
#include "runtime/kv/chain_hash.hpp"
#include <algorithm>

namespace troupe {

namespace {

constexpr std::size_t block_ids = tokens_per_kv_block;

} // namespace

// What an admission needs and shares. A hit shares path_ and restores its last node; a fork shares its parent's blocks.
struct kv_cache::demand {
  std::int32_t parent = -1;  // index of the forked sequence
  std::int32_t shared = 0;   // blocks
  std::int32_t idle = 0;     // of them, held by the cache alone
  std::int32_t total = 0;    // blocks of the table
  std::int32_t computed = 0; // positions: of the hit, or where it forks
  std::int32_t cached = 0;   // positions whose blocks are cached, with a snapshot or not
  std::int32_t prompt = 0;   // tokens
};

kv_cache::kv_cache(const kv_cache_settings& settings)
    : blocks_(settings.blocks), slots_(settings.slots), index_(settings.blocks, settings.hash_mask),
      snapshot_slots_(settings.snapshot_slots), numerics_id_(settings.numerics_id), model_id_(settings.model_id) {}

void kv_cache::turn(const kv_want& want, kv_got& got) {
  got.clear();
  ++turn_;
  ++counts_.turns;
  std::span<const std::int32_t> ids(want.ids);
  for (const kv_want::publication& p : want.publish) {
    const std::size_t count = static_cast<std::size_t>(p.blocks) * block_ids;
    TROUPE_CHECK(p.blocks >= 0 && count <= ids.size(), "a publication comes with 128 ids per block");
    publish(known(p.id), ids.first(count));
    ids = ids.subspan(count);
  }
  for (const sequence_id id : want.release)
    release(id);
  for (const kv_want::growth& g : want.grow)
    got.grow.push_back(grow(g, got));
  for (const kv_want::snapshot& s : want.snapshots)
    got.snapshots.push_back(by_id_.find(s.id) < 0 ? slot_id{} : snapshot(s));
  bool full = false;
  for (const kv_want::admission& a : want.admit) {
    kv_got::admitted given;
    given.outcome = fit::later;
    if (!full)
      given = admit(a, got);
    full = given.outcome != fit::ok;
    counts_.deferred += given.outcome == fit::later ? 1 : 0;
    got.admit.push_back(given);
  }
  got.free_blocks = blocks_.free_count() + index_.idle();
  got.free_slots = slots_.free_count() + index_.snapshots();
}

kv_cache::sequence& kv_cache::known(sequence_id id) {
  const std::int32_t at = by_id_.find(id);
  TROUPE_CHECK(at >= 0, "a KV turn names a sequence that holds nothing");
  return sequences_[static_cast<std::size_t>(at)];
}

std::span<const block_id> kv_cache::table(sequence_id id) const {
  const std::int32_t at = by_id_.find(id);
  return at < 0 ? std::span<const block_id>() : sequences_[static_cast<std::size_t>(at)].table;
}

kv_cache::sequence& kv_cache::new_sequence(sequence_id id) {
  TROUPE_CHECK(by_id_.find(id) < 0, "a sequence is admitted once");
  if (free_sequences_.empty()) {
    free_sequences_.push_back(static_cast<std::int32_t>(sequences_.size()));
    sequences_.emplace_back();
  }
  const std::int32_t at = free_sequences_.back();
  free_sequences_.pop_back();
  by_id_.insert(id, at);
  sequence& s = sequences_[static_cast<std::size_t>(at)];
  s.id = id;
  s.live = true;
  s.since = turn_;
  return s;
}

void kv_cache::move_end(sequence& s, cache_node to) {
  if (s.end.value != 0)
    index_.add_end(s.end, -1);
  if (to.value != 0)
    index_.add_end(to, 1);
  s.end = to;
}

// --- publication -----------------------------------------------------------------------------------------------------

void kv_cache::publish(sequence& s, std::span<const std::int32_t> ids) {
  TROUPE_CHECK(s.published + ids.size() / block_ids <= s.table.size(), "only blocks of its table are published");
  for (; !ids.empty(); ids = ids.subspan(block_ids)) {
    const block_id own = s.table[static_cast<std::size_t>(s.published)];
    s.chain = chain_next(s.chain, ids.first(block_ids));
    cache_node n = index_.find(s.end, s.chain, ids.first(block_ids), s.salt);
    if (n.value == 0) {
      n = index_.insert(s.end, s.chain, ids.first(block_ids), s.salt, own);
      blocks_.pin(own);
      ++counts_.published_blocks;
    } else if (index_.block_of(n) != own) {
      ++counts_.duplicate_blocks;
      if (index_.idle(n)) // two equal blocks, and nobody uses the older one
        replace(n, own);
    }
    index_.touch(n, ++stamp_);
    move_end(s, n);
    ++s.published;
    keep_snapshot(s);
  }
  s.frozen = std::max(s.frozen, s.published);
}

void kv_cache::keep_snapshot(sequence& s) {
  const std::int32_t at = s.published * tokens_per_kv_block;
  const auto found =
      std::find_if(s.snapshots.begin(), s.snapshots.end(), [&](const unfilled& u) { return u.at == at; });
  if (found == s.snapshots.end())
    return;
  const unfilled done = *found;
  s.snapshots.erase(found);
  --unfilled_;
  if (index_.snapshot_of(s.end).value != 0) {
    index_.touch_snapshot(s.end, ++stamp_, index_.restored_in(s.end));
    slots_.release(std::span(&done.slot, 1));
    ++counts_.snapshots_dropped;
    return;
  }
  index_.attach(s.end, done.slot, ++stamp_);
  ++counts_.snapshots_kept;
  if (!done.rolling)
    return;
  drop_rolling(s);
  s.rolling = s.end;
  s.rolling_slot = done.slot;
  s.rolling_generation = slots_.generation(done.slot);
}

void kv_cache::drop_rolling(sequence& s) {
  if (s.rolling.value != 0 && index_.snapshot_of(s.rolling) == s.rolling_slot &&
      slots_.generation(s.rolling_slot) == s.rolling_generation) {
    const slot_id old = index_.detach(s.rolling);
    slots_.release(std::span(&old, 1));
  }
  s.rolling = {};
}

// --- release and growth ----------------------------------------------------------------------------------------------

void kv_cache::release(sequence_id id) {
  const std::int32_t at = by_id_.find(id);
  if (at < 0)
    return;
  sequence& s = sequences_[static_cast<std::size_t>(at)];
  move_end(s, {});
  ++stamp_;
  blocks_.release(s.table);
  for (const block_id b : s.table)
    if (const cache_node n = index_.node_of(b); n.value != 0) {
      index_.touch(n, stamp_);
      index_.set_idle(n, blocks_.references(b) == 1);
    }
  for (const unfilled& u : s.snapshots)
    slots_.release(std::span(&u.slot, 1));
  unfilled_ -= static_cast<std::int32_t>(s.snapshots.size());
  counts_.snapshots_dropped += s.snapshots.size();
  slots_.release(std::span(&s.slot, 1));
  s.table.clear();
  s.snapshots.clear();
  s.salt.reset();
  s.live = false;
  s.rolling = {};
  s.published = s.frozen = 0;
  by_id_.erase(id);
  free_sequences_.push_back(at);
}

kv_got::blocks_at kv_cache::grow(const kv_want::growth& g, kv_got& got) {
  sequence& s = known(g.id);
  kv_got::blocks_at given{.first = static_cast<std::int32_t>(got.blocks.size())};
  const std::int32_t have = static_cast<std::int32_t>(s.table.size()), more = g.blocks - have;
  TROUPE_CHECK(have == s.frozen || blocks_.references(s.table.back()) == 1, "a block that is written has one owner");
  if (more <= 0)
    return given;
  if (!has_room(more)) {
    given.outcome = fit::later;
    ++counts_.deferred;
    return given;
  }
  make_room(more);
  blocks_.allocate(more, s.table);
  got.blocks.insert(got.blocks.end(), s.table.end() - more, s.table.end());
  given.count = more;
  return given;
}

// --- snapshots and slots ---------------------------------------------------------------------------------------------

slot_id kv_cache::snapshot(const kv_want::snapshot& w) {
  sequence& s = known(w.id);
  TROUPE_CHECK(w.at % tokens_per_kv_block == 0, "a snapshot lies at a multiple of 128");
  const bool twice =
      std::any_of(s.snapshots.begin(), s.snapshots.end(), [&](const unfilled& u) { return u.at == w.at; });
  if (twice || w.at <= s.published * tokens_per_kv_block || unfilled_ >= snapshot_slots_ || !slot_to_be_had()) {
    ++counts_.snapshots_refused;
    return {};
  }
  const slot_id slot = take_slot();
  s.snapshots.push_back({w.at, slot, w.rolling});
  ++unfilled_;
  return slot;
}

// A snapshot that this turn restores from must outlive the step, and all younger ones are then such.
bool kv_cache::slot_to_be_had() const {
  const cache_node oldest = index_.oldest_snapshot();
  return slots_.free_count() > 0 || (oldest.value != 0 && index_.restored_in(oldest) != turn_);
}

slot_id kv_cache::take_slot() {
  if (slots_.free_count() == 0)
    evict_snapshot(index_.oldest_snapshot());
  return slots_.allocate_one();
}

void kv_cache::evict_snapshot(cache_node n) {
  const slot_id slot = index_.detach(n);
  slots_.release(std::span(&slot, 1));
  ++counts_.snapshots_evicted;
}

// --- admission -------------------------------------------------------------------------------------------------------

kv_got::admitted kv_cache::admit(const kv_want::admission& a, kv_got& got) {
  kv_got::admitted given;
  given.first = static_cast<std::int32_t>(got.blocks.size());
  demand d;
  given.outcome = judge(a, d);
  if (given.outcome != fit::ok)
    return given;
  sequence& s = new_sequence(a.id);
  share(s, a, d);
  make_room(d.total - d.shared);
  blocks_.allocate(d.total - d.shared, s.table);
  given.computed = d.computed;
  give_state(s, a, d, given);
  std::int32_t at = 0;
  if (a.snapshot_interval >= 0)
    at = next_snapshot(d.computed, d.prompt, a.snapshot_interval, a.own_rows,
                       a.checkpoints ? std::span(*a.checkpoints) : std::span<const std::int32_t>());
  if (at > 0 && d.cached > d.computed) {
    given.parts_at = d.cached;
    at = std::min(at, d.cached);
  }
  if (at > 0 && at <= d.computed + a.rows) {
    given.snapshot = snapshot({a.id, at, false});
    given.snapshot_at = at;
  }
  given.count = static_cast<std::int32_t>(s.table.size());
  got.blocks.insert(got.blocks.end(), s.table.begin(), s.table.end());
  count_admission(a, d);
  return given;
}

// Whether it can be served in this turn, and with what.
fit kv_cache::judge(const kv_want::admission& a, demand& d) {
  d.prompt = a.prompt ? static_cast<std::int32_t>(a.prompt->size()) : 0;
  const std::int32_t least = std::max(blocks_for(d.prompt), blocks_for(a.fork_at));
  if (least >= blocks_.size() || slots_.size() < 2)
    return fit::never;
  if (a.fork_of.value != 0 && (d.parent = by_id_.find(a.fork_of)) < 0)
    return fit::never;
  if (!slot_to_be_had() || !find_sources(a, d))
    return fit::later;
  d.total = blocks_for(std::max({a.fork_at, d.computed, std::min(d.computed + a.rows, d.prompt)}));
  const std::int32_t needed = std::max(d.total, least) - d.shared + a.room;
  return needed <= blocks_.free_count() + index_.idle() - d.idle ? fit::ok : fit::later;
}

// Its slot, and what to copy into it and into its first own block.
void kv_cache::give_state(sequence& s, const kv_want::admission& a, const demand& d, kv_got::admitted& given) {
  const cache_node hit = path_.empty() ? cache_node{} : path_.back();
  if (slot_to_be_had()) {
    s.slot = take_slot();
  } else { // the snapshot of the hit is the only slot that is left: it becomes the sequence's own
    s.slot = index_.detach(hit);
    ++counts_.snapshots_evicted;
  }
  given.slot = s.slot;
  if (hit.value != 0)
    given.restore_from = index_.snapshot_of(hit);
  if (d.parent >= 0 && a.fork_at > 0) {
    const sequence& parent = sequences_[static_cast<std::size_t>(d.parent)];
    given.restore_from = parent.slot;
    if (a.fork_at % tokens_per_kv_block != 0)
      given.copy_from = parent.table[static_cast<std::size_t>(d.shared)];
  }
}

void kv_cache::count_admission(const kv_want::admission& a, const demand& d) {
  ++counts_.admitted;
  if (d.parent >= 0) {
    ++counts_.forks;
  } else if (a.hit_limit > 0 && a.prompt) {
    ++counts_.lookups;
    counts_.queried_tokens += a.prompt->size();
    counts_.hits += d.shared > 0 ? 1 : 0;
    counts_.hit_tokens += static_cast<std::uint64_t>(d.computed);
  }
}

// What the new sequence can share; false: not in this turn.
bool kv_cache::find_sources(const kv_want::admission& a, demand& d) {
  path_.clear();
  if (d.parent < 0) {
    find_hit(a, d);
    return true;
  }
  const sequence& parent = sequences_[static_cast<std::size_t>(d.parent)];
  TROUPE_CHECK(blocks_for(a.fork_at) <= static_cast<std::int32_t>(parent.table.size()),
               "a fork lies inside its parent");
  d.shared = a.fork_at / tokens_per_kv_block;
  d.computed = a.fork_at;
  return parent.since != turn_; // its own state is only copied in the step that follows
}

void kv_cache::find_hit(const kv_want::admission& a, demand& d) {
  if (!a.prompt || a.hit_limit < tokens_per_kv_block)
    return;
  const std::shared_ptr<const std::string> salt = a.salt && !a.salt->empty() ? a.salt : nullptr;
  std::span<const std::int32_t> ids(*a.prompt);
  ids = ids.first(std::min(ids.size(), static_cast<std::size_t>(a.hit_limit)));
  std::uint64_t chain = chain_start(numerics_id_, model_id_, salt ? *salt : std::string());
  std::size_t hit = 0;
  cache_node n;
  for (; ids.size() >= block_ids; ids = ids.subspan(block_ids)) {
    chain = chain_next(chain, ids.first(block_ids));
    n = index_.find(n, chain, ids.first(block_ids), salt);
    if (n.value == 0)
      break;
    path_.push_back(n);
    if (index_.snapshot_of(n).value != 0)
      hit = path_.size();
  }
  d.cached = static_cast<std::int32_t>(path_.size()) * tokens_per_kv_block;
  path_.resize(hit);
  d.shared = static_cast<std::int32_t>(hit);
  d.computed = d.shared * tokens_per_kv_block;
  for (const cache_node shared : path_)
    d.idle += index_.idle(shared) ? 1 : 0;
}

void kv_cache::share(sequence& s, const kv_want::admission& a, const demand& d) {
  s.frozen = d.shared;
  if (d.parent >= 0) {
    sequence& parent = sequences_[static_cast<std::size_t>(d.parent)];
    parent.frozen = std::max(parent.frozen, d.shared);
    s.table.assign(parent.table.begin(), parent.table.begin() + d.shared);
    s.salt = parent.salt;
    s.published = std::min(parent.published, d.shared);
    cache_node end = parent.end;
    while (index_.depth_of(end) > s.published)
      end = index_.parent_of(end);
    move_end(s, end);
    for (const block_id b : s.table)
      blocks_.pin(b);
  } else {
    if (a.salt && !a.salt->empty())
      s.salt = a.salt;
    ++stamp_;
    for (const cache_node n : path_) {
      s.table.push_back(index_.block_of(n));
      blocks_.pin(s.table.back());
      index_.set_idle(n, false);
    }
    s.published = d.shared;
    if (!path_.empty()) {
      move_end(s, path_.back());
      index_.touch_snapshot(path_.back(), stamp_, turn_);
    }
  }
  s.chain =
      s.end.value != 0 ? index_.hash_of(s.end) : chain_start(numerics_id_, model_id_, s.salt ? *s.salt : std::string());
}

// --- eviction --------------------------------------------------------------------------------------------------------

// Frees blocks until this many are free; has_room() said that it can be done.
void kv_cache::make_room(std::int32_t blocks) {
  while (blocks_.free_count() < blocks)
    evict_one();
}

void kv_cache::evict_one() {
  const cache_node n = index_.victim();
  if (n.value == 0) {
    reclaim_duplicates();
    return;
  }
  if (index_.ends(n) > 0) {
    // A running sequence made the same block and goes on publishing behind it: its own takes the place.
    const sequence* heir = nullptr;
    for (const sequence& s : sequences_)
      if (s.live && s.end == n && (heir == nullptr || s.id < heir->id))
        heir = &s;
    TROUPE_CHECK(heir != nullptr, "some sequence's published prefix ends here");
    replace(n, heir->table[static_cast<std::size_t>(heir->published) - 1]);
    return;
  }
  if (index_.snapshot_of(n).value != 0)
    evict_snapshot(n);
  const block_id b = index_.block_of(n);
  index_.erase(n);
  blocks_.release(std::span(&b, 1));
  ++counts_.evicted_blocks;
}

// `own` holds the same ids; the block that stood for the node, used by nobody, becomes free.
void kv_cache::replace(cache_node n, block_id own) {
  const block_id old = index_.block_of(n);
  index_.rebind(n, own);
  blocks_.pin(own);
  blocks_.release(std::span(&old, 1));
  index_.set_idle(n, false);
}

// Idle nodes without victims among them have running sequences below: those sequences made equal blocks of their own,
// as they would else use the cached ones. Theirs take the place, in order of ids, the deepest first.
void kv_cache::reclaim_duplicates() {
  const std::int32_t before = blocks_.free_count();
  std::vector<const sequence*> live;
  for (const sequence& s : sequences_)
    if (s.live)
      live.push_back(&s);
  std::sort(live.begin(), live.end(), [](const sequence* a, const sequence* b) { return a->id < b->id; });
  for (const sequence* s : live) {
    cache_node n = s->end;
    for (std::size_t i = s->table.size(); i-- > static_cast<std::size_t>(s->published);)
      if (index_.node_of(s->table[i]).value != 0) { // published by the sequence that it was forked from
        n = index_.node_of(s->table[i]);
        break;
      }
    for (; n.value != 0; n = index_.parent_of(n))
      if (index_.idle(n))
        replace(n, s->table[static_cast<std::size_t>(index_.depth_of(n)) - 1]);
  }
  TROUPE_CHECK(blocks_.free_count() > before, "idle cached blocks can be freed");
}

// --- observation -----------------------------------------------------------------------------------------------------

kv_statistics kv_cache::statistics() const {
  kv_statistics s = counts_;
  s.cached_blocks = index_.cached();
  s.cached_idle_blocks = index_.idle();
  s.cached_snapshots = index_.snapshots();
  s.used_blocks = blocks_.used_count() - index_.idle();
  s.used_slots = slots_.used_count() - index_.snapshots();
  return s;
}

bool kv_cache::conserved() const {
  std::size_t live = 0;
  std::int32_t waiting = 0;
  for (const sequence& s : sequences_) {
    if (!s.live)
      continue;
    ++live;
    waiting += static_cast<std::int32_t>(s.snapshots.size());
    if (index_.depth_of(s.end) != s.published || s.frozen < s.published ||
        s.frozen > static_cast<std::int32_t>(s.table.size()) || slots_.references(s.slot) != 1)
      return false;
    for (std::size_t i = static_cast<std::size_t>(s.frozen); i < s.table.size(); ++i)
      if (blocks_.references(s.table[i]) != 1) // may be written
        return false;
  }
  return live == by_id_.size() && waiting == unfilled_ && references_agree() && index_.consistent();
}

bool kv_cache::references_agree() const {
  std::vector<std::int32_t> of_block(static_cast<std::size_t>(blocks_.size())),
      of_slot(static_cast<std::size_t>(slots_.size())), ends(static_cast<std::size_t>(blocks_.size()));
  for (const sequence& s : sequences_) {
    if (!s.live)
      continue;
    for (const block_id b : s.table)
      ++of_block[static_cast<std::size_t>(b.value)];
    ++of_slot[static_cast<std::size_t>(s.slot.value)];
    for (const unfilled& u : s.snapshots)
      ++of_slot[static_cast<std::size_t>(u.slot.value)];
    ++ends[static_cast<std::size_t>(s.end.value)];
  }
  std::int32_t used_blocks = 0, used_slots = 0;
  for (std::int32_t b = 1; b < blocks_.size(); ++b) {
    const cache_node n = index_.node_of(block_id{b});
    const std::int32_t tables = of_block[static_cast<std::size_t>(b)], all = tables + (n.value != 0 ? 1 : 0);
    if (all != blocks_.references(block_id{b}) || (n.value != 0 && index_.idle(n) != (tables == 0)) ||
        (n.value != 0 && index_.ends(n) != ends[static_cast<std::size_t>(n.value)]))
      return false;
    if (n.value != 0 && index_.snapshot_of(n).value != 0)
      ++of_slot[static_cast<std::size_t>(index_.snapshot_of(n).value)];
    used_blocks += all > 0 ? 1 : 0;
  }
  for (std::int32_t s = 1; s < slots_.size(); ++s) {
    if (of_slot[static_cast<std::size_t>(s)] != slots_.references(slot_id{s}) ||
        of_slot[static_cast<std::size_t>(s)] > 1)
      return false;
    used_slots += of_slot[static_cast<std::size_t>(s)];
  }
  return used_blocks == blocks_.used_count() && used_slots == slots_.used_count() && of_block[0] == 0 &&
         of_slot[0] == 0;
}

} // namespace troupe
