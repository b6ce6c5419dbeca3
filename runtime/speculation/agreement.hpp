// How often a coupled draft is right (speculation.md §7.6): the target's law p and the drafter's law d draw with the
// same Gumbel noise, and agree where their noisy maxima are the same token.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

// Probability that both draw the same token: sum over x of 1 / sum over y of max(p_y / p_x, d_y / d_x). Two rows of
// finite logits at temperature 1, equally long.
double coupled_agreement(std::span<const float> target, std::span<const float> draft);

// Share of mass that both laws have in common, 1 - TV: what the rejection rule accepts.
double common_mass(std::span<const float> target, std::span<const float> draft);

} // namespace troupe
