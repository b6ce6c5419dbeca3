#include "actors/voter.hpp"
#include "actors/steady_ms.hpp"
#include "cluster/lease_file.hpp"
#include "runtime/base/result.hpp"
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

using self_ptr = voter_actor::stateful_pointer<voter_process_state>;

// True if the votes are on disk now.
bool write(voter_process_state& st) {
  if (st.setup.file.empty())
    return true;
  const status s = write_lease(st.setup.file, st.votes->state());
  if (!s)
    spdlog::error("event=vote_not_written file={} why=\"{}\"", st.setup.file, s.failure().message);
  return bool(s);
}

caf::result<lease_answer> vote(voter_process_state& st, const lease_ask& a) {
  if (st.votes->note({a.mepoch, a.configuration}))
    write(st);
  const auto answer = st.votes->ask({a.term, a.round, {node_id(a.node), a.incarnation}, a.lease_ms}, steady_ms());
  if (answer.write_first) {
    if (!write(st))
      return caf::make_error(caf::sec::runtime_error, "the vote could not be written");
    st.votes->written();
  }
  const lease_reply& r = answer.reply;
  return lease_answer{r.granted, r.term, r.round, r.voter.value, r.remaining_ms, r.known.mepoch, r.known.config_hash};
}

} // namespace

std::optional<voter_state> kept_votes(const voter_setup& setup) {
  if (setup.file.empty())
    return std::nullopt;
  auto kept = read_lease(setup.file);
  if (!kept)
    throw config_error("", "cluster.state_dir", setup.file, kept.failure().message, "see the message");
  return *kept;
}

voter_actor::behavior_type voter(self_ptr self, const voter_setup& setup, const std::optional<voter_state>& kept) {
  auto& st = state_of(self);
  st.setup = setup;
  st.votes.emplace(setup.node, setup.lease, kept, steady_ms());
  return {
      [=](const lease_ask& a) { return vote(state_of(self), a); },
      [=](const stop&) { self->quit(); },
  };
}

} // namespace troupe
