#include "runtime/kv/block_pool.hpp"
#include "runtime/base/check.hpp"

namespace troupe {

template <class Id> id_pool<Id>::id_pool(std::int32_t size) {
  TROUPE_CHECK(size >= 1, "an id pool needs its id 0");
  entries_.resize(static_cast<std::size_t>(size));
  for (std::int32_t id = 1; id < size; ++id)
    entries_[static_cast<std::size_t>(id)].next = id + 1 < size ? id + 1 : 0;
  first_ = size > 1 ? 1 : 0;
  last_ = size - 1;
  free_ = size - 1;
}

template <class Id> const typename id_pool<Id>::entry& id_pool<Id>::entry_of(Id id) const {
  TROUPE_CHECK(id.value > 0 && id.value < size(), "id outside the pool");
  return entries_[static_cast<std::size_t>(id.value)];
}

template <class Id> fit id_pool<Id>::can_allocate(std::int32_t count) const {
  if (count >= size())
    return fit::never;
  return count <= free_ ? fit::ok : fit::later;
}

template <class Id> bool id_pool<Id>::allocate(std::int32_t count, std::vector<Id>& out) {
  if (can_allocate(count) != fit::ok)
    return false;
  for (std::int32_t i = 0; i < count; ++i)
    out.push_back(allocate_one());
  return true;
}

template <class Id> Id id_pool<Id>::allocate_one() {
  if (first_ == 0)
    return Id{};
  const Id id{first_};
  entry& e = entries_[static_cast<std::size_t>(first_)];
  first_ = e.next;
  if (first_ == 0)
    last_ = 0;
  --free_;
  e.next = 0;
  e.references = 1;
  ++e.generation;
  return id;
}

template <class Id> void id_pool<Id>::pin(Id id) {
  entry& e = entry_of(id);
  TROUPE_CHECK(e.references > 0, "pin of a free id");
  ++e.references;
}

template <class Id> void id_pool<Id>::release(std::span<const Id> ids) {
  for (std::size_t i = ids.size(); i-- > 0;) {
    entry& e = entry_of(ids[i]);
    TROUPE_CHECK(e.references > 0, "release of a free id");
    if (--e.references > 0)
      continue;
    if (last_ != 0)
      entries_[static_cast<std::size_t>(last_)].next = ids[i].value;
    else
      first_ = ids[i].value;
    last_ = ids[i].value;
    ++free_;
  }
}

template class id_pool<block_id>;
template class id_pool<slot_id>;

} // namespace troupe
