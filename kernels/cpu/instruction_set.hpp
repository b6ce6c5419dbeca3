// Which SIMD instruction set the cpu kernels use: the best one the machine has, unless a test or a measurement asks for
// another. The bits of every result are the same with all of them.
#pragma once
#include <string>
#include <vector>

namespace troupe::cpu {

// Of those compiled in, the names this machine can run, best first: "AVX3" (AVX-512), "AVX2", "SSE4", "NEON", "SCALAR".
std::vector<std::string> instruction_sets();
std::string instruction_set(); // the one in use

// Switches all threads of the process to one of instruction_sets(); with "" back to the best. Must not run beside
// kernels.
void use_instruction_set(const std::string& name);

} // namespace troupe::cpu
