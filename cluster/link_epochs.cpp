#include "cluster/link_epochs.hpp"
#include <algorithm>

namespace troupe {

void link_epochs::prepare(const view& v) {
  for (const member_entry& e : v.members)
    if (e.who.incarnation == self_)
      since_ = e.since;
  for (const member_entry& e : v.members)
    if (e.who.role == member_role::worker && !is_over(e.state)) {
      there_[e.who.rank] = e.who.incarnation;
      of_ranks_[e.who.rank].send = std::max(since_, e.since);
    }
}

void link_epochs::commit(const view& v) {
  prepare(v);
  for (const member_entry& e : v.members)
    if (e.who.role == member_role::worker && there_[e.who.rank] == e.who.incarnation)
      of_ranks_[e.who.rank].floor = is_over(e.state) ? v.mepoch : of_ranks_[e.who.rank].send;
}

} // namespace troupe
