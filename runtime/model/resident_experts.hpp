// The routed experts of one expert rank: of every layer the slots that a placement gives it, packed for the device, and
// written anew one by one while others are used. Bytes that leave are those of the checkpoint, whatever the device has
// made of them.
#pragma once
#include "devices/device.hpp"
#include "runtime/base/sha256.hpp"
#include "runtime/experts/placement.hpp"
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

class checkpoint;

class resident_experts {
public:
  // Slots that the placement leaves empty hold something that nobody uses. Throws device_error or config_error.
  resident_experts(std::shared_ptr<const checkpoint> source, std::shared_ptr<device> dev,
                   const expert_placement& placement, std::int32_t rank);
  ~resident_experts();

  // y of the (row, choice) pairs whose entry in args.expert [rows, k] is a slot of this rank, counted from its first
  // one; the others, -1, are left alone. Any number of threads, each with a stream of its own.
  void run(stream& s, std::int32_t layer, experts_args args) const;
  // Writes a slot that nobody uses. Throws device_error, also for a number of bytes that is not expert_bytes().
  void replace(std::int32_t layer, std::int32_t slot, std::span<const std::byte> bytes);

  // An expert of the checkpoint: of w1, w2 and w3 in this order weights, then scales.
  std::size_t expert_bytes(std::int32_t layer) const;
  // Those from `offset` on, as many as fit or are left; how many.
  std::size_t read(std::int32_t layer, std::int32_t expert, std::size_t offset, std::span<std::byte> to) const;
  sha256_digest digest(std::int32_t layer, std::int32_t expert) const;

  device& dev() const;

private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

} // namespace troupe
