// What masks of allowed tokens cost a device's sampler; goal in structured_output.md §8.
#pragma once
#include "bench/harness.hpp"

namespace troupe {

// Rows of 129,280 logits, drawn from without masks, with a mask each, and where the same masks were written into them
// before, in turn, on --device; masks that are random and half dense, mostly zero and mostly one. Beside what masks
// cost (the second less the third): a pass that reads, masks and writes the rows. On a host device that is one in
// place, by vectors; elsewhere a copy of the rows within the device's memory, which moves the bytes of such a pass and
// computes nothing.
void bench_masks(const bench_settings& settings);

} // namespace troupe
