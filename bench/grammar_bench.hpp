// Speed of structured output; goals in structured_output.md §11.2.
#pragma once
#include "bench/harness.hpp"

namespace troupe {

// Per kind of constraint: microseconds of processor time of one thread for compiling and for each mask along the
// accepted texts, in a grammar that is new and in one that has been used; bytes of compiled grammars. The constraints
// are the rows (structured_output case files) of all *.jsonl in the folder that TROUPE_GRAMMAR_CASES names, else of a
// few that are built in. The tokenizer is that of --model.
void bench_grammar(const bench_settings& settings);

} // namespace troupe
