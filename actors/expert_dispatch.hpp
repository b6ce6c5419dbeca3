// Steps of an engine whose routed experts are spread over the processes of a group (cluster.md §1.5, §3.10): its rows
// go to the ranks that hold their experts, contributions come back to their own places. Who computed one, and in which
// order they come, changes no bit of it.
//
// The work of a layer is cut into waves of slots: while this rank computes its own part of a wave, the rows of the next
// are on their way to the others and the contributions of the last come back; what comes later has the shared expert's
// time. With one wave nothing overlaps: rows go, contributions come, then this rank computes its own.
#pragma once
#include "actors/expert_server.hpp"
#include "cluster/peer_links.hpp"
#include "runtime/model/runner.hpp"
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe {

struct expert_dispatch_setup {
  expert_rules rules;
  std::int32_t rank = 0, ranks = 1;
  std::int32_t max_rows = 0; // of a step
  std::int32_t waves = 2;
  std::size_t frame_bytes = 0; // of peer_links_setup
  std::size_t frames_out = 0;  // likewise
  std::chrono::nanoseconds link_delay{0};
  std::chrono::milliseconds limit{30000}; // that contributions may take
  // The step cannot be computed because of another rank: said before it fails.
  std::function<void(const std::string& why)> on_lost;
};

// One thread at a time. Throws device_error when another rank is lost, refuses rows or is late; the step is void then,
// and later ones may be tried.
class expert_dispatch final : public expert_backend {
public:
  expert_dispatch(expert_dispatch_setup setup, std::shared_ptr<placed_experts> experts,
                  std::shared_ptr<peer_links> links);
  ~expert_dispatch() override;

  void begin_step() override;
  void end_step() noexcept override;
  void run(stream& s, int layer, experts_args args) override;
  void finish(stream& s) override;

private:
  struct routed {        // a (row, choice) pair for another rank
    std::int32_t at = 0; // row * k + choice
    rows_entry entry;    // without its row
  };
  struct flight { // a question that waits for its answer
    std::uint64_t number = 0;
    std::size_t wave = 0, first = 0, count = 0; // in outlet::waves
    bool void_ = false;                         // of a step that failed: nobody wants it
  };
  struct outlet {                    // to one rank
    std::shared_ptr<peer_link> link; // during a step
    std::uint64_t link_number = 0;
    std::vector<std::vector<routed>> waves; // of this layer
    std::size_t wave = 0, next = 0;         // what is sent next
    std::vector<flight> out;                // oldest first, at most frames_out
  };

  [[noreturn]] void lose(const std::string& why);
  void stage(stream& s, const experts_args& args);
  void route(int layer, const experts_args& args);
  void send_waves(int layer, std::size_t waves);
  bool send_one(int layer, outlet& o, std::int32_t to);
  void compute_own(stream& s, int layer, const experts_args& args, std::size_t wave);
  // Takes answers that are there, or waits for one of this rank. False: nothing came within the limit.
  bool take(stream& s, const experts_args& args, outlet& o, std::int32_t from, std::chrono::nanoseconds limit);
  void take_all(stream& s, int layer, const experts_args& args);

  expert_dispatch_setup setup_;
  std::shared_ptr<placed_experts> experts_;
  std::shared_ptr<peer_links> links_;
  shared_version version_; // of the step under way
  experts_args args_;      // of the layer under way
  int layer_ = -1;         // likewise; -1 = there is none
  std::uint64_t next_number_ = 1;
  std::size_t most_rows_, most_entries_; // of a question
  std::vector<outlet> outlets_;          // [ranks]
  buffer own_there_;                     // int32 [max_rows, k]
  // Of the layer under way; kept for their memory.
  std::vector<std::int32_t> expert_;           // [rows, k]
  std::vector<float> weight_, x_;              // [rows, k], [rows, hidden]
  std::vector<std::vector<std::int32_t>> own_; // [waves] slots [rows, k], -1 = not here
  std::vector<bool> any_own_;                  // [waves]
  std::vector<float> values_;                  // of one answer
  std::vector<rows_entry> entries_;            // of one question
  std::vector<std::int32_t> question_rows_;    // of the step, in one question
};

} // namespace troupe
