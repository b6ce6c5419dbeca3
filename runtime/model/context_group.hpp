// The ranks that compute prefill steps together (engine.md §7.5). Every rank runs every step with caches of its own; in
// a step that is shared it computes its part of the rows (context_split.hpp) and gets the records of the others, so
// that all caches hold all rows.
#pragma once
#include "devices/device.hpp"
#include "runtime/model/context_split.hpp"
#include <cstdint>
#include <span>
#include <string>

namespace troupe {

// One rank's view of its group. meet and gather are collective: every rank makes the same calls in the same order. They
// throw device_error when a rank fails, is lost or does not come in time; from then on they always do.
class context_group {
public:
  virtual ~context_group() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // Every rank has come to step `number`.
  virtual void meet(std::uint64_t number) = 0;
  // Rows to .. to+rows of `all` become rows from .. from+rows of the `mine` of the run's rank, for every run; runs are
  // the same on all ranks. On the stream; work queued on it later may overwrite `mine`.
  virtual void gather(stream& s, dev_ptr<const std::byte> mine, std::int64_t row_bytes,
                      std::span<const context_run> runs, dev_ptr<std::byte> all) = 0;
  // This rank cannot go on.
  virtual void abandon(const std::string& why) = 0;
};

} // namespace troupe
