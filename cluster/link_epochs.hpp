// By which epoch frames between a process and the other workers go (cluster.md §3.4): the one that took in the younger
// of the two. It stays the same while both live, so that a view that changes neither ends no stream, and what is left
// of a process that is over is older than what is heard.
#pragma once
#include "cluster/control_messages.hpp"
#include <map>

namespace troupe {

struct link_epoch {
  std::uint64_t send = 0;  // of frames to that rank
  std::uint64_t floor = 0; // older ones from there are refused
};

class link_epochs {
public:
  explicit link_epochs(std::uint64_t incarnation) : self_(incarnation) {}

  // A view that will be, perhaps: so that what others send as soon as it counts is not older than what they expect.
  void prepare(const view& v);
  // A view that counts. One that does not name a process says nothing of it.
  void commit(const view& v);

  const std::map<std::uint32_t, link_epoch>& of_ranks() const { return of_ranks_; }

private:
  std::uint64_t self_, since_ = 0;               // since_: of this process
  std::map<std::uint32_t, std::uint64_t> there_; // by rank, incarnations
  std::map<std::uint32_t, link_epoch> of_ranks_;
};

} // namespace troupe
