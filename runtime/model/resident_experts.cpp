#include "runtime/model/resident_experts.hpp"
#include "runtime/base/check.hpp"
#include "runtime/model/weights.hpp"
#include <algorithm>
#include <array>
#include <numeric>
#include <string>

namespace troupe {

namespace {

using parts = std::array<std::span<const std::byte>, 6>;

parts parts_of(const expert_source& e) {
  return {e.w1.data, e.w1.scale, e.w2.data, e.w2.scale, e.w3.data, e.w3.scale};
}

std::size_t bytes_of(const parts& p) {
  return std::accumulate(p.begin(), p.end(), std::size_t{0},
                         [](std::size_t sum, std::span<const std::byte> s) { return sum + s.size(); });
}

} // namespace

struct resident_experts::impl {
  std::shared_ptr<const checkpoint> source;
  std::shared_ptr<device> dev; // before what it made
  std::vector<std::shared_ptr<expert_set>> layers;
  buffer identity; // int32 [slots of the rank]

  expert_source expert(std::int32_t layer, std::int32_t e) const {
    return expert_sources(source, "layers." + std::to_string(layer) + ".", e, 1).front();
  }
};

resident_experts::resident_experts(std::shared_ptr<const checkpoint> source, std::shared_ptr<device> dev,
                                   const expert_placement& p, std::int32_t rank)
    : impl_(new impl{std::move(source), std::move(dev), {}, {}}) {
  std::vector<expert_source> slots(static_cast<std::size_t>(p.slots_per_rank));
  for (std::int32_t layer = 0; layer < p.layers; ++layer) {
    const auto first = static_cast<std::size_t>(layer * p.slots() + rank * p.slots_per_rank);
    for (std::size_t i = 0; i < slots.size(); ++i)
      slots[i] = impl_->expert(layer, std::max(p.expert_of[first + i], 0));
    impl_->layers.push_back(impl_->dev->pack_experts(slots));
  }
  std::vector<std::int32_t> numbers(slots.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  impl_->identity = impl_->dev->allocate(numbers.size() * sizeof(std::int32_t), "expert slots");
  auto s = impl_->dev->make_stream();
  s->to_device(impl_->identity.as<std::byte>(), numbers.data(), numbers.size() * sizeof(std::int32_t));
  s->synchronise();
}
resident_experts::~resident_experts() = default;

void resident_experts::run(stream& s, std::int32_t layer, experts_args args) const {
  args.set = impl_->layers[static_cast<std::size_t>(layer)].get();
  args.slot_of = impl_->identity.as<const std::int32_t>();
  impl_->dev->ops().experts(s, args);
}

void resident_experts::replace(std::int32_t layer, std::int32_t slot, std::span<const std::byte> bytes) {
  expert_source e = impl_->expert(layer, 0); // of these shapes and formats
  if (bytes.size() != bytes_of(parts_of(e)))
    throw device_error("an expert of layer " + std::to_string(layer) + " has " + std::to_string(bytes_of(parts_of(e))) +
                       " bytes, not " + std::to_string(bytes.size()));
  for (weight_source* w : {&e.w1, &e.w2, &e.w3}) {
    w->owner.reset();
    for (std::span<const std::byte>* part : {&w->data, &w->scale}) {
      const std::size_t size = part->size();
      *part = bytes.first(size);
      bytes = bytes.subspan(size);
    }
  }
  impl_->dev->replace_expert(*impl_->layers[static_cast<std::size_t>(layer)], slot, e);
}

std::size_t resident_experts::expert_bytes(std::int32_t layer) const {
  return bytes_of(parts_of(impl_->expert(layer, 0)));
}

std::size_t resident_experts::read(std::int32_t layer, std::int32_t expert, std::size_t offset,
                                   std::span<std::byte> to) const {
  std::size_t copied = 0;
  for (std::span<const std::byte> part : parts_of(impl_->expert(layer, expert))) {
    const std::size_t skipped = std::min(offset, part.size());
    offset -= skipped;
    part = part.subspan(skipped);
    part = part.first(std::min(part.size(), to.size() - copied));
    std::copy(part.begin(), part.end(), to.begin() + static_cast<std::ptrdiff_t>(copied));
    copied += part.size();
  }
  return copied;
}

sha256_digest resident_experts::digest(std::int32_t layer, std::int32_t expert) const {
  sha256 sum;
  for (const std::span<const std::byte> part : parts_of(impl_->expert(layer, expert)))
    sum.update(std::span(reinterpret_cast<const std::uint8_t*>(part.data()), part.size()));
  return sum.finish();
}

device& resident_experts::dev() const {
  return *impl_->dev;
}

} // namespace troupe
