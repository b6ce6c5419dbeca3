#include "cluster/plan_bytes.hpp"
#include "cluster/params_bytes.hpp"
#include "runtime/base/crc32c.hpp"
#include <cereal/archives/portable_binary.hpp>
#include <cstring>
#include <exception>
#include <istream>
#include <ostream>

namespace troupe {

// Bindings name every field: one that is added and forgotten here does not compile. Any change of fields is a new
// plan_version.
template <class Archive, class Tag, class Rep> void serialize(Archive& a, strong_id<Tag, Rep>& v) {
  a(v.value);
}
template <class Archive> void serialize(Archive& a, sequence_spec& v) {
  auto& [id, request, params, seed, prompt_tokens, eos, logit_rows] = v;
  a(id, request, params, seed, prompt_tokens, eos, logit_rows);
}
template <class Archive> void serialize(Archive& a, slot_copy& v) {
  auto& [from, to] = v;
  a(from, to);
}
template <class Archive> void serialize(Archive& a, block_copy& v) {
  auto& [from, to] = v;
  a(from, to);
}
template <class Archive> void serialize(Archive& a, image_part& v) {
  auto& [first, blocks, state] = v;
  a(first, blocks, state);
}
template <class Archive> void save(Archive& a, const image_arrival& v) {
  const auto& [first, blocks, state, bytes] = v;
  a(first, blocks, state, *bytes);
}
template <class Archive> void load(Archive& a, image_arrival& v) {
  auto& [first, blocks, state, bytes] = v;
  const auto read = std::make_shared<image_bytes>();
  a(first, blocks, state, *read);
  bytes = read;
}
template <class Archive> void serialize(Archive& a, planned_sequence& v) {
  auto& [spec, slot, start, slack, rows, drafts, limit, first_token, first_block, blocks, history, sample, propose,
         next, first_mask] = v; // the spec travels apart
  a(slot, start, slack, rows, drafts, limit, first_token, first_block, blocks, history, sample, propose, next,
    first_mask);
}
template <class Archive> void serialize(Archive& a, step_plan& v) {
  auto& [number, kind, share, sequences, tokens, blocks, history, restores, block_copies, snapshots, arrivals,
         departures, image_blocks, mask_words, masks, mask_rows] = v;
  a(number, kind, share, sequences, tokens, blocks, history, restores, block_copies, snapshots, arrivals, departures,
    image_blocks, mask_words, masks, mask_rows);
}

namespace {

constexpr std::uint32_t plan_version = 1;
constexpr std::int32_t most_slots = 1 << 24; // of state: a larger number is damage

struct plan_head {
  std::uint32_t version = plan_version, crc = 0;
};

std::shared_ptr<const sequence_spec>& spec_of(specs_by_slot& specs, const planned_sequence& s) {
  const auto at = static_cast<std::size_t>(s.slot.value);
  if (specs.size() <= at)
    specs.resize(at + 1);
  return specs[at];
}

// [first, first + count) of `all`.
template <class T> bool inside(std::int32_t first, std::int64_t count, const std::vector<T>& all) {
  return first >= 0 && count >= 0 && first + count <= std::ssize(all);
}

// Whether it points inside itself only.
bool sound(const step_plan& p) {
  for (const planned_sequence& s : p.sequences)
    if (s.slot.value < 0 || s.slot.value > most_slots || s.rows < 1 || s.drafts < 0 || s.drafts >= s.rows ||
        !inside(s.first_token, s.rows, p.tokens) || !inside(s.first_block, s.blocks, p.blocks) ||
        !inside(s.history, 0, p.history) ||
        (s.first_mask >= 0 && !inside(s.first_mask, std::int64_t{s.drafts} + 1, p.mask_rows)))
      return false;
  for (const image_part& i : p.departures)
    if (!inside(i.first_block, i.blocks, p.image_blocks))
      return false;
  for (const image_arrival& i : p.arrivals)
    if (!inside(i.first_block, i.blocks, p.image_blocks))
      return false;
  for (const std::int32_t m : p.mask_rows)
    if (m >= 0 && !inside(0, (std::int64_t{m} + 1) * p.mask_words, p.masks))
      return false;
  return p.kind == step_kind::prefill || p.kind == step_kind::decode;
}

error damaged(const std::string& what) {
  return {"damaged", "a step plan: " + what};
}

} // namespace

byte_span plan_writer::write(const step_plan& plan) {
  std::string& bytes = bytes_.data;
  bytes.assign(sizeof(plan_head), '\0');
  std::ostream out(&bytes_);
  cereal::PortableBinaryOutputArchive archive(out);
  archive(plan);
  for (const planned_sequence& s : plan.sequences) {
    auto& known = spec_of(known_, s);
    const bool is_new = known != s.spec;
    archive(is_new);
    if (is_new)
      archive(*s.spec);
    known = s.spec;
  }
  const byte_span all(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  const plan_head head{plan_version, crc32c(all.subspan(sizeof(plan_head)))};
  std::memcpy(bytes.data(), &head, sizeof head);
  return all;
}

status plan_reader::read(byte_span bytes, step_plan& plan) {
  plan_head head;
  if (bytes.size() < sizeof head)
    return damaged("cut short");
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.version != plan_version)
    return error{"version", "a step plan of version " + std::to_string(head.version) + ", this build reads version " +
                                std::to_string(plan_version) + "; run the same build everywhere"};
  const byte_span body = bytes.subspan(sizeof head);
  if (crc32c(body) != head.crc)
    return damaged("its check sum is wrong");
  try {
    detail::in_bytes buffer(body);
    std::istream in(&buffer);
    cereal::PortableBinaryInputArchive archive(in);
    archive(plan);
    if (!sound(plan))
      return damaged("it points outside itself");
    for (planned_sequence& s : plan.sequences) {
      auto& known = spec_of(known_, s);
      bool is_new = false;
      archive(is_new);
      if (is_new) {
        const auto spec = std::make_shared<sequence_spec>();
        archive(*spec);
        known = spec;
      }
      if (!known)
        return damaged("a sequence that nobody has heard of");
      s.spec = known;
    }
    if (buffer.left() != 0)
      return damaged("something stands behind it");
  } catch (const std::exception& e) { // cut short, or a length that no memory holds
    return damaged(e.what());
  }
  return nothing{};
}

} // namespace troupe
