#include "actors/spec_verifier.hpp"
#include <algorithm>
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

using self_ptr = spec_verifier_actor::stateful_pointer<spec_verifier_state>;

// The confidences of each sequence's verified drafts stand one after the other. A message whose parts do not fit
// together teaches nothing.
void take_outcomes(group_planner& group, const spec_load& l) {
  std::vector<float> confidences;
  append_f32(l.confidences, confidences);
  std::size_t drafts = 0;
  for (const char n : l.verified)
    drafts += static_cast<unsigned char>(n);
  if (drafts != confidences.size() || l.accepted.size() != l.verified.size())
    return;
  std::span<const float> left = confidences;
  for (std::size_t i = 0; i < l.verified.size(); ++i) {
    const std::size_t n = static_cast<unsigned char>(l.verified[i]);
    group.observe({left.first(n), static_cast<unsigned char>(l.accepted[i])});
    left = left.subspan(n);
  }
}

// Each once: the counters tell how often.
void warn(spec_verifier_state& st, const spec_load& l) {
  if (l.not_finite > 0 && st.not_finite == 0)
    spdlog::warn(
        "event=confidences_not_finite engine={} count={} why=\"the drafter gave confidences that are no finite "
        "numbers; they count as 0 or 1\"",
        l.rank, l.not_finite);
  st.not_finite += l.not_finite;
  if (!st.useless_told && st.group->confidences().useless()) {
    st.useless_told = true;
    spdlog::warn("event=drafter_useless why=\"none of the newest verified drafts was right: the drafter does not "
                 "belong to this model or is broken; nextn 0 goes without it\"");
  }
}

void send_plans(self_ptr self) {
  auto& st = state_of(self);
  std::vector<std::int64_t> rows;
  for (const group_planner::rank_state& r : st.group->ranks())
    rows.push_back(r.total_q);
  for (std::size_t i = 0; i < st.schedulers.size(); ++i) {
    const group_planner::load& last = st.group->ranks()[i].last;
    const scheduler_actor to = std::exchange(st.schedulers[i], {});
    if (to && st.group->advises(static_cast<std::uint32_t>(i)))
      tell(self, to, spec_plan{last.round, last.sequences, rows});
  }
}

void take(self_ptr self, const spec_load& l) {
  auto& st = state_of(self);
  if (l.rank >= st.schedulers.size())
    return;
  take_outcomes(*st.group, l);
  warn(st, l);
  for (const step_observation& o : l.ended)
    st.group->observe(l.rank, o);
  if (l.sequences <= 0)
    return;
  st.schedulers[l.rank] = caf::actor_cast<scheduler_actor>(self->current_sender());
  group_planner::load own{l.round, l.sequences, std::max<std::int64_t>(l.kv_tokens, 0), {}};
  append_f32(l.survivals, own.survivals);
  if (st.group->take(l.rank, std::move(own))) {
    st.group->decide();
    send_plans(self);
  }
}

spec_report report(const spec_verifier_state& st) {
  const group_planner& group = *st.group;
  const calibration& c = group.confidences();
  spec_report r;
  r.decisions = group.decisions();
  r.late = group.late();
  r.drafts = c.drafts();
  r.accepted = c.accepted();
  r.not_finite = st.not_finite;
  r.tokens_per_step = c.tokens_per_step();
  r.positions.assign(c.positions().begin(), c.positions().end());
  r.temperatures = group.suggested_temperatures();
  r.useless = c.useless();
  for (std::uint32_t i = 0; i < group.ranks().size(); ++i) {
    const group_planner::rank_state& s = group.ranks()[i];
    r.ranks.push_back({s.last.round, s.last.sequences, s.total_q, s.cost.slope(), s.cost.sampler_ms(s.last.sequences),
                       s.cost.ms_per_kv_token(), group.times(i)});
  }
  return r;
}

} // namespace

spec_verifier_actor::behavior_type spec_verifier(self_ptr self, const group_settings& settings) {
  state_of(self).group.emplace(settings);
  state_of(self).schedulers.resize(static_cast<std::size_t>(settings.ranks));
  return {
      [=](const spec_load& l) { take(self, l); },
      [=](const spec_query&) { return report(state_of(self)); },
      [=](const stop&) { self->quit(); },
  };
}

} // namespace troupe
