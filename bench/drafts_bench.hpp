// What drafts gain and cost in a whole engine, and how often they are right.
#pragma once
#include "bench/harness.hpp"

namespace troupe {

// So many of the questions that the embedded model was trained on, from number `first` on; 64 in a row are all
// different.
std::vector<generation_request> trained_questions(int count, int first = 0);

// Greedy decoding of questions that the embedded model was trained on, at 1 to 64 streams: without drafts, with every
// draft of blocks of 1 to K verified, and by confidence. All engines live in this process and take short turns, each
// round with other questions, so that other work on the machine hits them alike; ratios compare the turns of one round.
// A last line for each number of streams compares by confidence with no drafts and with the best fixed length.
// settings.seconds shares the time out among the numbers of streams: as many rounds as fit, but at least three.
void bench_drafts(const bench_settings& settings);

// Sampling at temperature 1, all drafts of every block verified: how often the draft at each position of a block is
// right where those before it were, beside the share that the coupled rule foretells from the target's and the
// drafter's logits of the same rows (coupled_agreement), the standard deviation of their difference, and what the
// rejection rule would accept.
void bench_acceptance(const bench_settings& settings);

} // namespace troupe
