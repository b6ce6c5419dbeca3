// A process's part in an expert group (cluster.md §3.6): the slots that it serves, its links to the other ranks, and
// whether its own steps can be taken. They can while every rank that the newest version of the placement names is
// connected as the process that the version names. When that ends, the engine is told at once; it goes on when it is so
// again and the cluster has heard of the loss, because requests went elsewhere meanwhile.
#pragma once
#include "actors/expert_dispatch.hpp"
#include "actors/placed_experts.hpp"
#include "cluster/peer_links.hpp"
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe {

// Where a process stands in an expert group, and how the group works.
struct expert_group_place {
  std::string cluster, node; // names of shared memory are made of them
  std::string tcp_address{}; // peer_links_setup
  std::shared_ptr<bulk_context> bulk{};
  std::uint64_t incarnation = 0; // of this process
  std::uint32_t first = 0;       // rank in the cluster of the group's rank 0
  std::int32_t ranks = 1, rank = 0;
  std::int32_t min_extra = 0; // redundant experts of a layer, at least
  std::int32_t waves = 2;
  std::chrono::nanoseconds link_delay{0};
  std::chrono::milliseconds answer_limit{30000};
  double copy_bytes_per_s = 2e9; // of experts that are copied to this rank
};

class expert_part {
public:
  expert_part(const expert_group_place& place, std::shared_ptr<placed_experts> experts, const expert_rules& rules);
  ~expert_part();
  expert_part(const expert_part&) = delete;
  expert_part& operator=(const expert_part&) = delete;

  // The backend of this process's engine.
  std::unique_ptr<expert_backend> make_backend(std::int32_t max_rows);

  // on_lost and on_back are called in turns, on any thread, on_lost first and now.
  void start(std::function<void(const std::string& why)> on_lost, std::function<void()> on_back);
  void stop(); // the engine has ended: neither is called any more, links are left

  void set_peers(const std::vector<group_peer>& peers); // the other ranks that are there
  void look();                                          // a version was published
  bool able(bool told);                                 // whether steps can be taken; told: the cluster hears it now

  const expert_group_place& place() const { return place_; }
  const std::shared_ptr<placed_experts>& experts() const { return experts_; }
  const std::shared_ptr<peer_links>& links() const { return links_; }

private:
  std::string missing() const; // empty: steps can be taken
  void lost(const std::string& why);
  void become_unable(const std::string& why);
  void look_again();

  expert_group_place place_;
  std::shared_ptr<placed_experts> experts_;
  expert_rules rules_;
  std::shared_ptr<peer_links> links_;
  std::mutex guard_; // of what follows; held while the engine is told, so that it hears in order
  bool able_ = true, told_ = false;
  std::function<void(const std::string&)> on_lost_;
  std::function<void()> on_back_;
};

} // namespace troupe
