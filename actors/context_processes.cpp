#include "actors/context_processes.hpp"
#include "runtime/base/device_error.hpp"
#include <algorithm>

namespace troupe {

context_processes::context_processes(std::shared_ptr<meeting> place, std::chrono::milliseconds limit,
                                     std::function<void(const std::string&)> on_lost)
    : place_(std::move(place)), limit_(limit), on_lost_(std::move(on_lost)), packed_(place_->ranks()) {}

void context_processes::give_up(const std::string& why) {
  place_->end(why);
  on_lost_(why);
  throw device_error("context-parallel rank " + std::to_string(rank()) + " of " + std::to_string(ranks()) +
                     " cannot go on: " + why);
}

void context_processes::meet(std::uint64_t number) {
  if (const auto all = place_->meet(number, limit_); !all)
    give_up(all.failure().message);
}

// A rank shows its rows packed, in the order of the runs. Calls f with the part of every run that lies in
// the piece [first, first + rows) of its rank's rows, and where that is in the piece.
template <class F>
void context_processes::each_run(std::span<const context_run> runs, std::int32_t first, std::int32_t rows, F&& f) {
  packed_.assign(packed_.size(), 0);
  for (const context_run& r : runs) {
    std::int32_t& before = packed_[static_cast<std::size_t>(r.rank)];
    const std::int32_t from = std::max(before, first), to = std::min(before + r.rows, first + rows);
    if (from < to)
      f(context_run{r.rank, r.from + from - before, r.to + from - before, to - from}, from - first);
    before += r.rows;
  }
}

void context_processes::gather(stream& s, dev_ptr<const std::byte> mine, std::int64_t row_bytes,
                               std::span<const context_run> runs, dev_ptr<std::byte> all) {
  const auto piece = static_cast<std::int32_t>(
      std::min<std::int64_t>(static_cast<std::int64_t>(place_->place_bytes()) / row_bytes, 1 << 30));
  if (piece == 0)
    give_up("a row of " + std::to_string(row_bytes) + " bytes is more than a rank may show at once");
  const auto bytes = [&](std::int32_t rows) { return static_cast<std::size_t>(rows * row_bytes); };
  packed_.assign(packed_.size(), 0);
  for (const context_run& r : runs)
    packed_[static_cast<std::size_t>(r.rank)] += r.rows;
  const std::int32_t most = std::ranges::max(packed_), own = packed_[static_cast<std::size_t>(rank())];
  for (std::int32_t first = 0; first < most; first += piece) {
    std::byte* const shown = place_->mine(bytes(std::clamp(own - first, 0, piece))).data();
    each_run(runs, first, piece, [&](const context_run& r, std::int32_t at) {
      if (r.rank != rank())
        return;
      s.to_host(shown + bytes(at), mine + r.from * row_bytes, bytes(r.rows));
      s.copy(all + r.to * row_bytes, mine + r.from * row_bytes, bytes(r.rows));
    });
    s.synchronise();
    meet(static_cast<std::uint64_t>(row_bytes));
    each_run(runs, first, piece, [&](const context_run& r, std::int32_t at) {
      if (r.rank == rank())
        return;
      const auto theirs = place_->shown(static_cast<std::size_t>(r.rank));
      if (theirs.size() < bytes(at + r.rows))
        give_up("rank " + std::to_string(r.rank) + " shows less than its rows");
      s.to_device(all + r.to * row_bytes, theirs.data() + bytes(at), bytes(r.rows));
    });
  }
}

void context_processes::abandon(const std::string& why) {
  const std::string text = "context-parallel rank " + std::to_string(rank()) + ": " + why;
  place_->end(text);
  on_lost_(text);
}

} // namespace troupe
