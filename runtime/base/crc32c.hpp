// CRC-32C (Castagnoli polynomial, reflected 0x82F63B78): checks of frames and records (cluster.md §3.10). It finds
// every error of one to three bits in a frame and every burst of up to 32.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe {

// Of `bytes`, going on from `before`, the value of the bytes in front of them: crc32c(ab) == crc32c(b, crc32c(a)).
// By the processor's own instruction where it has one, else by tables; both give the same value.
std::uint32_t crc32c(std::span<const std::uint8_t> bytes, std::uint32_t before = 0);

// The same by tables, on every processor.
std::uint32_t crc32c_by_tables(std::span<const std::uint8_t> bytes, std::uint32_t before = 0);

// Whether crc32c() uses an instruction of this processor.
bool crc32c_in_hardware();

} // namespace troupe
