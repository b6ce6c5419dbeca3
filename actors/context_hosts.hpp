// A process's part in an engine whose context-parallel ranks run on several hosts: what it tells the others of itself,
// which travels in the views of the membership, and what it has to do with them. Ranks meet over ZeroMQ. Steps go from
// rank 0 to a board on each host: on its own directly, on another over one TCP connection to the first of the ranks
// there, which holds that board for all of them.
#pragma once
#include "actors/context_place.hpp"
#include "actors/step_carriers.hpp"
#include "cluster/control_messages.hpp"
#include "cluster/meeting_links.hpp"
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

class context_hosts {
public:
  explicit context_hosts(const context_place& place) : place_(place) {} // on_several_nodes()

  // First, one of these two. Of rank 0, with what all ranks have to know before they load. Throws config_error.
  void lead(const std::string& shape);
  // Of the others, with those that the cluster knows: what rank 0 gave; nothing: none waits for this rank now. Throws
  // config_error.
  std::optional<std::string> join(const std::vector<member_entry>& known);

  // Then, once. Throws config_error.
  std::shared_ptr<meeting> open_meeting(const std::shared_ptr<bulk_context>& bulk);
  std::vector<std::shared_ptr<step_carrier>> carriers(); // of rank 0
  std::optional<step_board_executor> take_orders();      // of the others
  context_entry entry() const;                           // once the meeting is open

  void be_ready();          // this rank would take steps; the others hear it once its own get everywhere
  void hear(const view& v); // on any thread
  // Connects what is there, one host a call, and looks after it; called now and then by one thread. Why the group is to
  // end, beside what the meeting says; empty: it is not.
  std::string look();
  void end(); // on any thread: no step is sent any more, and none waited for

private:
  struct other_host { // of rank 0
    std::int32_t first = 0;
    std::shared_ptr<steps_by_link> steps;
    std::string why_not; // it is not connected, as was logged
  };
  std::vector<std::int32_t> ranks_beside(std::int32_t rank) const;
  std::string board_name() const;
  step_board make_board(std::size_t ranks) const;
  bool take_place();
  bool link_next();
  bool link_to(other_host& o);

  const context_place place_;
  std::uint64_t group_ = 0;   // the incarnation of its rank 0
  std::string shape_, token_; // of rank 0; of who has a server
  std::vector<std::shared_ptr<step_carrier>> carriers_;
  std::shared_ptr<steps_by_board> beside_; // of rank 0, to the ranks of its own host
  std::vector<other_host> others_;         // not changed once it leads
  std::size_t tried_ = 0;                  // of them, the last that was to be connected; the looking thread's
  std::optional<step_link_server> server_; // of the first rank of a host without rank 0
  std::optional<step_board_executor> orders_;
  std::shared_ptr<meeting_links> meeting_;

  std::mutex guard_;                     // of what follows
  std::map<std::int32_t, member> known_; // ranks of this group that are there
  std::string why_;                      // it has ended, as a view told
  bool ready_ = false, told_ready_ = false;
};

} // namespace troupe
