#include "actors/placement.hpp"

namespace troupe {

namespace {

void add_steps(placement_state& st, const load& l) {
  const std::vector<std::uint32_t> counts = unpack_u32(l.counts);
  const std::size_t one = static_cast<std::size_t>(st.current.layers) * static_cast<std::size_t>(st.current.experts);
  if (one == 0 || counts.size() != one * l.steps)
    return; // another model's counts
  for (std::size_t s = 0; s < l.steps; ++s)
    st.window.add(std::span(counts).subspan(s * one, one));
}

slot_table table_of(const placement_state& st) {
  slot_table t;
  t.pver = st.current.version;
  t.ranks = st.current.ranks;
  t.layers = st.current.layers;
  t.experts = st.current.experts;
  t.slots_per_rank = st.current.slots_per_rank;
  t.expert_of = st.current.expert_of;
  t.steps_seen = st.window.steps_ever();
  t.rows = st.window.sums();
  t.balancedness = st.window.balancedness(st.current);
  return t;
}

} // namespace

placement_actor::behavior_type placement(placement_actor::stateful_pointer<placement_state> self, std::int32_t layers,
                                         std::int32_t experts, std::int32_t ranks) {
  state_of(self).current = initial_placement(layers, experts, ranks);
  state_of(self).window = load_window(layers, experts, load_window_steps);
  return {
      [=](const load& l) {
        add_steps(state_of(self), l);
        if (const auto& pass_on = state_of(self).reader.take)
          pass_on(l);
      },
      [=](const load_reader& r) { state_of(self).reader = r; },
      [=](const slots&) { return table_of(state_of(self)); },
      [=](const stop&) { self->quit(); },
  };
}

} // namespace troupe
