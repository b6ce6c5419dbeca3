// Instruction sets of the cpu kernels. Every source of this folder includes this header before Highway, so that all of
// them agree: AVX-512, AVX2, SSE4 or NEON, chosen at run time, and Highway's one-lane form as the floor.
#pragma once
#define TROUPE_UNUSED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_EMU128)
// The address sanitizer's checks in every unrolled step cost the compiler minutes and gigabytes: it gets small blocks
// and fewer instruction sets, whose addresses follow the same formulas.
#if defined(__SANITIZE_ADDRESS__)
#define TROUPE_SMALL_BLOCKS 1
#define HWY_DISABLED_TARGETS (TROUPE_UNUSED_TARGETS | HWY_AVX3 | HWY_SSE4)
#else
#define TROUPE_SMALL_BLOCKS 0
#define HWY_DISABLED_TARGETS TROUPE_UNUSED_TARGETS
#endif
// Of lambdas: their bodies must end up in the loop around them, where the vectors they name are registers.
#define TROUPE_INLINED __attribute__((always_inline))
