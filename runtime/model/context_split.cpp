#include "runtime/model/context_split.hpp"
#include "runtime/base/check.hpp"

namespace troupe {
namespace {

constexpr std::int32_t least_block_rows = 16;

constexpr std::int32_t block_rows(std::int32_t rows, std::int32_t ranks) {
  return (rows + 2 * ranks - 1) / (2 * ranks);
}

} // namespace

bool context_split_pays(std::span<const std::int32_t> rows, int ranks) {
  std::int64_t all = 0, places = 0;
  for (const std::int32_t q : rows) {
    all += q;
    places += 2 * block_rows(q, ranks);
  }
  return ranks > 1 && all >= std::int64_t{2} * ranks * least_block_rows && places * ranks <= 2 * all;
}

context_split::context_split(int ranks) : ranks_(ranks), rows_(static_cast<std::size_t>(ranks)) {
  TROUPE_CHECK(ranks >= 1, "a context-parallel group without ranks");
}

std::span<const std::int32_t> context_split::mirror_index(int rank) const {
  const auto n = static_cast<std::size_t>(places_);
  return std::span(mirror_).subspan(static_cast<std::size_t>(rank) * n, n);
}

void context_split::assign(std::span<const std::int32_t> rows) {
  places_ = 0;
  std::int32_t step_rows = 0;
  for (const std::int32_t q : rows) {
    TROUPE_CHECK(q >= 1, "a sequence without rows");
    places_ += 2 * block_rows(q, ranks_);
    step_rows += q;
  }
  mirror_.clear(), dense_.clear();
  reverse_.assign(static_cast<std::size_t>(step_rows), -1);
  for (std::int32_t rank = 0; rank < ranks_; ++rank) {
    auto& own = rows_[static_cast<std::size_t>(rank)];
    own.clear();
    std::int32_t first = 0;
    for (const std::int32_t q : rows) {
      const std::int32_t length = block_rows(q, ranks_);
      for (const std::int32_t block : {rank, 2 * ranks_ - 1 - rank})
        for (std::int32_t l = length * block; l < length * (block + 1); ++l) {
          if (l < q)
            reverse_[static_cast<std::size_t>(first + l)] = static_cast<std::int32_t>(mirror_.size());
          mirror_.push_back(l < q ? first + l : -1);
          dense_.push_back(static_cast<std::int32_t>(own.size()));
          if (l < q)
            own.push_back(first + l);
        }
      first += q;
    }
  }
  const context_run all{0, 0, 0, step_rows};
  find(std::span(&all, 1), runs_);
}

void context_split::find(std::span<const context_run> rows, std::vector<context_run>& out) const {
  out.clear();
  for (const context_run& r : rows)
    for (std::int32_t i = 0; i < r.rows; ++i) {
      const context_run one = row(r.from + i, r.to + i);
      if (!out.empty() && out.back().rank == one.rank && out.back().from + out.back().rows == one.from &&
          out.back().to + out.back().rows == one.to)
        ++out.back().rows;
      else
        out.push_back(one);
    }
}

context_run context_split::row(std::int32_t step_row, std::int32_t to) const {
  const std::int32_t place = reverse_[static_cast<std::size_t>(step_row)];
  return {place / places_, dense_[static_cast<std::size_t>(place)], to, 1};
}

} // namespace troupe
