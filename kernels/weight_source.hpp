// Weights as they lie in a checkpoint: what device::pack takes (model.md §10).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace troupe {

enum class weight_format : std::uint8_t {
  f32,
  bf16,
  fp8_block, // e4m3 [rows, cols], scale UE8M0 [ceil(rows/32), ceil(cols/32)]
  fp8_row,   // e4m3 [rows, cols], scale UE8M0 [rows, cols/32]
  mxfp4,     // e2m1 packed [rows, cols/2] (element 2i in the low nibble), scale UE8M0 [rows, cols/32]
};
// owner keeps the bytes alive; without one they only have to live until the call returns.
struct weight_source {
  weight_format format = weight_format::f32;
  std::int64_t rows = 0, cols = 0;
  std::span<const std::byte> data, scale;
  std::shared_ptr<const void> owner;
};
struct expert_source {
  weight_source w1, w3, w2; // [I, H], [I, H], [H, I]
};

} // namespace troupe
