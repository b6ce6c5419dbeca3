// What this machine can do at best with the instruction set in use: the roofline of bench/kernels_bench.cpp.
#pragma once
#include <cstddef>
#include <cstdint>

namespace troupe::cpu {

// Runs `rounds` rounds of independent fused multiply-adds in registers; returns how many fp32 ones were done.
// sink takes a result, so that nothing is left out.
std::int64_t probe_fma(std::int64_t rounds, float* sink);
// Reads n bytes once, n a multiple of 1024, aligned to 64.
void probe_read(const std::byte* from, std::size_t n, std::uint32_t* sink);

} // namespace troupe::cpu
