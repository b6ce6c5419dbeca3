#include "actors/kv_manager.hpp"

namespace troupe {

namespace {

grant answer_to(kv_book& book, const reserve& r) {
  grant g;
  g.msg_id = r.head.msg_id;
  g.sequence = r.sequence;
  const fit f = book.reserve(sequence_id{r.sequence}, r.blocks);
  g.code = f == fit::ok ? ack_code::ok : f == fit::later ? ack_code::busy : ack_code::too_large;
  if (f != fit::ok)
    return g;
  const kv_holding& h = *book.find(sequence_id{r.sequence});
  for (const block_id b : h.blocks) {
    g.blocks.push_back(b.value);
    g.gens.push_back(book.blocks().generation(b));
  }
  g.state = h.slot.value;
  return g;
}

} // namespace

kv_manager_actor::behavior_type kv_manager(kv_manager_actor::stateful_pointer<kv_manager_state> self,
                                           std::int32_t blocks, std::int32_t slots) {
  state_of(self).book = kv_book(blocks, slots);
  return {
      [=](const reserve& r) { return answer_to(state_of(self).book, r); },
      [=](const release& r) {
        state_of(self).book.release(sequence_id{r.sequence});
        return ack{r.head.msg_id, ack_code::ok, {}};
      },
      [=](const kv_query&) {
        const kv_book& b = state_of(self).book;
        return kv_report{b.blocks().size(), b.blocks().free_count(),
                         b.slots().size(),  b.slots().free_count(),
                         b.owners(),        b.conserved()};
      },
      [=](const stop&) { self->quit(); },
  };
}

} // namespace troupe
