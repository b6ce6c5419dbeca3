// Instruction sets of the cpu kernels. Every source of this folder includes this header before Highway, so that all of
// them agree: AVX-512, AVX2, SSE4 or NEON, chosen at run time, and Highway's one-lane form as the floor.
#pragma once
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_EMU128)
// Of lambdas: their bodies must end up in the loop around them, where the vectors they name are registers.
#define TROUPE_INLINED __attribute__((always_inline))
