#include "runtime/kv/prefix_index.hpp"
#include "runtime/base/check.hpp"
#include "runtime/kv/block_pool.hpp"
#include <algorithm>
#include <bit>
#include <utility>

namespace troupe {

void oldest_first::settle(std::size_t at, member m) {
  while (at > 0 && m < heap_[(at - 1) / 2]) {
    heap_[at] = heap_[(at - 1) / 2];
    place_[static_cast<std::size_t>(heap_[at].id)] = static_cast<std::int32_t>(at);
    at = (at - 1) / 2;
  }
  for (std::size_t child = 2 * at + 1; child < heap_.size(); child = 2 * at + 1) {
    if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child])
      ++child;
    if (m < heap_[child])
      break;
    heap_[at] = heap_[child];
    place_[static_cast<std::size_t>(heap_[at].id)] = static_cast<std::int32_t>(at);
    at = child;
  }
  heap_[at] = m;
  place_[static_cast<std::size_t>(m.id)] = static_cast<std::int32_t>(at);
}

void oldest_first::put(std::int32_t id, std::uint64_t used) {
  if (!contains(id)) {
    place_[static_cast<std::size_t>(id)] = static_cast<std::int32_t>(heap_.size());
    heap_.push_back({used, id});
  }
  settle(static_cast<std::size_t>(place_[static_cast<std::size_t>(id)]), {used, id});
}

void oldest_first::drop(std::int32_t id) {
  if (!contains(id))
    return;
  const std::size_t at = static_cast<std::size_t>(place_[static_cast<std::size_t>(id)]);
  place_[static_cast<std::size_t>(id)] = -1;
  const member last = heap_.back();
  heap_.pop_back();
  if (at < heap_.size())
    settle(at, last);
}

prefix_index::prefix_index(std::int32_t blocks, std::uint64_t hash_mask)
    : hash_mask_(hash_mask), nodes_(static_cast<std::size_t>(blocks)),
      ids_(std::make_unique_for_overwrite<std::int32_t[]>(static_cast<std::size_t>(blocks) * tokens_per_kv_block)),
      buckets_(std::bit_ceil(2 * static_cast<std::size_t>(blocks))), of_block_(static_cast<std::size_t>(blocks)),
      useless_(blocks), useful_(blocks), snapshots_(blocks) {
  for (std::int32_t n = blocks - 1; n > 0; --n) {
    nodes_[static_cast<std::size_t>(n)].next = free_;
    free_ = n;
  }
}

std::int32_t* prefix_index::ids_of(cache_node n) const {
  return ids_.get() + static_cast<std::ptrdiff_t>(n.value) * tokens_per_kv_block;
}

cache_node prefix_index::find(cache_node parent, std::uint64_t hash, std::span<const std::int32_t> ids,
                              const std::shared_ptr<const std::string>& salt) const {
  for (cache_node n{buckets_[bucket(hash)]}; n.value != 0; n.value = at(n).next) {
    const node& candidate = at(n);
    if (((candidate.hash ^ hash) & hash_mask_) != 0 || candidate.parent != parent ||
        !std::equal(ids.begin(), ids.end(), ids_of(n)))
      continue;
    if (parent.value != 0 || candidate.salt == salt || (candidate.salt && salt && *candidate.salt == *salt))
      return n;
  }
  return {};
}

cache_node prefix_index::insert(cache_node parent, std::uint64_t hash, std::span<const std::int32_t> ids,
                                const std::shared_ptr<const std::string>& salt, block_id block) {
  TROUPE_CHECK(free_ != 0 && ids.size() == tokens_per_kv_block && node_of(block).value == 0,
               "a cached block has one place in the prefix index");
  const cache_node n{free_};
  node& made = at(n);
  free_ = made.next;
  made = {};
  made.live = true;
  made.hash = hash;
  made.parent = parent;
  made.depth = at(parent).depth + 1;
  made.block = block;
  if (parent.value == 0)
    made.salt = salt;
  std::copy(ids.begin(), ids.end(), ids_of(n));
  made.next = std::exchange(buckets_[bucket(made.hash)], n.value);
  of_block_[static_cast<std::size_t>(block.value)] = n;
  ++at(parent).children;
  file(parent);
  ++cached_;
  return n;
}

void prefix_index::erase(cache_node n) {
  node& gone = at(n);
  TROUPE_CHECK(gone.live && gone.children == 0 && gone.snapshot.value == 0 && gone.ends == 0,
               "only a bare leaf leaves the prefix index");
  std::int32_t* link = &buckets_[bucket(gone.hash)];
  while (*link != n.value)
    link = &nodes_[static_cast<std::size_t>(*link)].next;
  *link = gone.next;
  set_idle(n, false);
  of_block_[static_cast<std::size_t>(gone.block.value)] = {};
  const cache_node parent = gone.parent;
  gone = {};
  gone.next = std::exchange(free_, n.value);
  --cached_;
  --at(parent).children;
  file(parent);
}

void prefix_index::set_idle(cache_node n, bool idle) {
  if (at(n).idle == idle)
    return;
  at(n).idle = idle;
  idle_ += idle ? 1 : -1;
  file(n);
}

void prefix_index::rebind(cache_node n, block_id block) {
  TROUPE_CHECK(node_of(block).value == 0, "a cached block has one place in the prefix index");
  of_block_[static_cast<std::size_t>(at(n).block.value)] = {};
  of_block_[static_cast<std::size_t>(block.value)] = n;
  at(n).block = block;
}

void prefix_index::touch(cache_node n, std::uint64_t stamp) {
  at(n).used = stamp;
  file(n);
}

void prefix_index::attach(cache_node n, slot_id snapshot, std::uint64_t stamp) {
  TROUPE_CHECK(n.value != 0 && at(n).snapshot.value == 0, "a cached prefix has one snapshot");
  at(n).snapshot = snapshot;
  snapshots_.put(n.value, stamp);
  file(n);
}

slot_id prefix_index::detach(cache_node n) {
  const slot_id was = std::exchange(at(n).snapshot, slot_id{});
  snapshots_.drop(n.value);
  file(n);
  return was;
}

void prefix_index::touch_snapshot(cache_node n, std::uint64_t stamp, std::uint64_t turn) {
  snapshots_.put(n.value, stamp);
  at(n).restored_in = turn;
}

void prefix_index::file(cache_node n) {
  const node& x = at(n);
  if (n.value == 0)
    return;
  const bool leaf = x.live && x.idle && x.children == 0;
  if (leaf && x.snapshot.value == 0)
    useless_.put(n.value, x.used);
  else
    useless_.drop(n.value);
  if (leaf && x.snapshot.value != 0)
    useful_.put(n.value, x.used);
  else
    useful_.drop(n.value);
}

bool prefix_index::consistent() const {
  std::vector<std::int32_t> children(nodes_.size());
  std::int32_t live = 0, idle = 0, marked = 0;
  for (std::int32_t i = 1; i < static_cast<std::int32_t>(nodes_.size()); ++i) {
    const node& x = nodes_[static_cast<std::size_t>(i)];
    const bool leaf = x.live && x.idle && x.children == 0;
    if (useless_.contains(i) != (leaf && x.snapshot.value == 0) ||
        useful_.contains(i) != (leaf && x.snapshot.value != 0) || snapshots_.contains(i) != (x.snapshot.value != 0))
      return false;
    if (!x.live)
      continue;
    ++live;
    idle += x.idle ? 1 : 0;
    marked += x.snapshot.value != 0 ? 1 : 0;
    ++children[static_cast<std::size_t>(x.parent.value)];
    if (node_of(x.block) != cache_node{i} || x.depth != at(x.parent).depth + 1 ||
        (x.parent.value != 0 && !at(x.parent).live))
      return false;
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (children[i] != nodes_[i].children)
      return false;
  return live == cached_ && idle == idle_ && marked == snapshots_.size();
}

} // namespace troupe
