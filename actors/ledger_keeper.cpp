#include "actors/ledger_keeper.hpp"
#include "actors/steady_ms.hpp"
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

using self_ptr = ledger_keeper_actor::stateful_pointer<ledger_keeper_state>;

// What runs goes on, and is computed again if this process ends before it does.
void fail(self_ptr self, const error& why) {
  auto& st = state_of(self);
  st.failed = true;
  spdlog::error("{}", why.message);
  if (st.gateway)
    tell_from_outside(st.gateway, ledger_failed{why});
}

// One sync for all that has come by then: with an interval of 0 for what waits in the mailbox already.
void sync_later(self_ptr self) {
  auto& st = state_of(self);
  const ledger_settings& s = st.setup.ledger->settings;
  if (s.sync != ledger_sync::interval || std::exchange(st.ticking, true))
    return;
  if (s.interval_ms == 0)
    tell(self, self, tick{});
  else
    tell_later(self, std::chrono::milliseconds(s.interval_ms), tick{});
}

status keep_short(ledger_keeper_state& st) {
  ledger_file& file = st.setup.ledger->file;
  if (file.bytes() <= st.compact_at)
    return nothing{};
  if (status s = file.compact(); !s)
    return s;
  st.compact_at = std::max(st.setup.compact_bytes, 2 * file.bytes());
  return nothing{};
}

void write(self_ptr self, const ledger_record& record) {
  auto& st = state_of(self);
  if (st.failed)
    return;
  status s = st.setup.ledger->file.append(record, steady_ms());
  if (s)
    s = keep_short(st);
  if (!s)
    return fail(self, s.failure());
  sync_later(self);
}

void make_durable(self_ptr self) {
  auto& st = state_of(self);
  st.ticking = false;
  if (st.failed)
    return;
  ledger_file& file = st.setup.ledger->file;
  if (const status s = file.tick(steady_ms()); !s)
    return fail(self, s.failure());
  if (file.durable() < file.appended())
    sync_later(self);
}

} // namespace

ledger_keeper_actor::behavior_type ledger_keeper(self_ptr self, const ledger_keeper_setup& setup) {
  state_of(self).setup = setup;
  state_of(self).compact_at = std::max(setup.compact_bytes, 2 * setup.ledger->file.bytes());
  return {
      [=](const ledger_note& n) { write(self, n.record); },
      [=](const ledger_user& u) { state_of(self).gateway = u.gateway; },
      [=](const tick&) { make_durable(self); },
      [=](const stop&) { self->quit(); },
  };
}

} // namespace troupe
