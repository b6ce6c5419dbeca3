// Context-parallel ranks that are processes: each shows the others the rows that they need where they meet
// (cluster/meeting.hpp). Rows that do not fit there at once travel in pieces.
#pragma once
#include "cluster/meeting.hpp"
#include "runtime/model/context_group.hpp"
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

class context_processes final : public context_group {
public:
  // on_lost: the group has ended; called, on the thread that finds it out, before that thread's call fails.
  context_processes(std::shared_ptr<meeting> place, std::chrono::milliseconds limit,
                    std::function<void(const std::string& why)> on_lost);
  int rank() const override { return static_cast<int>(place_->rank()); }
  int ranks() const override { return static_cast<int>(place_->ranks()); }
  void meet(std::uint64_t number) override;
  void gather(stream& s, dev_ptr<const std::byte> mine, std::int64_t row_bytes, std::span<const context_run> runs,
              dev_ptr<std::byte> all) override;
  void abandon(const std::string& why) override;

private:
  template <class F> void each_run(std::span<const context_run> runs, std::int32_t first, std::int32_t rows, F&& f);
  [[noreturn]] void give_up(const std::string& why);

  std::shared_ptr<meeting> place_;
  std::chrono::milliseconds limit_;
  std::function<void(const std::string&)> on_lost_;
  std::vector<std::int32_t> packed_; // [ranks] rows of the runs gone through
};

} // namespace troupe
