// From sequence ids to small stable indices, for look-ups in every step: open addressing, no allocation while the
// number of members stays below what it has been.
#pragma once
#include "runtime/base/ids.hpp"
#include <cstdint>
#include <utility>
#include <vector>

namespace troupe {

class sequence_map {
public:
  // Index of the id, -1 if it is no member.
  std::int32_t find(sequence_id id) const {
    for (std::size_t i = home(id);; i = (i + 1) & mask())
      if (cells_[i].index < 0 || cells_[i].id == id)
        return cells_[i].index;
  }

  // The id must not be a member.
  void insert(sequence_id id, std::int32_t index) {
    if (4 * (size_ + 1) > cells_.size())
      grow();
    place({id, index});
    ++size_;
  }

  void erase(sequence_id id) {
    std::size_t hole = home(id);
    while (cells_[hole].index >= 0 && cells_[hole].id != id)
      hole = (hole + 1) & mask();
    if (cells_[hole].index < 0)
      return;
    --size_;
    // What stands behind the hole moves into it unless its home lies between: every member stays reachable.
    for (std::size_t i = (hole + 1) & mask(); cells_[i].index >= 0; i = (i + 1) & mask())
      if (((i - home(cells_[i].id)) & mask()) >= ((i - hole) & mask()))
        cells_[hole] = cells_[i], hole = i;
    cells_[hole] = {};
  }

  std::size_t size() const { return size_; }

private:
  struct cell {
    sequence_id id;
    std::int32_t index = -1;
  };
  std::size_t mask() const { return cells_.size() - 1; }
  std::size_t home(sequence_id id) const {
    return static_cast<std::size_t>((id.value * 0x9e3779b97f4a7c15) >> 32) & mask();
  }
  void place(cell c) {
    std::size_t i = home(c.id);
    while (cells_[i].index >= 0)
      i = (i + 1) & mask();
    cells_[i] = c;
  }
  void grow() {
    std::vector<cell> old(2 * cells_.size());
    old.swap(cells_);
    for (const cell& c : old)
      if (c.index >= 0)
        place(c);
  }

  std::vector<cell> cells_ = std::vector<cell>(16);
  std::size_t size_ = 0;
};

} // namespace troupe
