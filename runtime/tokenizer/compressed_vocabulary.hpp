// Compressed token ids, which the Engram layers hash (tokenizer_recipe.md 1.7, model.md 8): tokens whose texts are
// equal after normalisation share one id.
#pragma once
#include "runtime/tokenizer/tokenizer.hpp"
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace troupe {

// Compressed id of each vocabulary id; new ids are dealt in order of first appearance, from 0.
std::vector<std::int32_t> derive_compressed_vocabulary(const tokenizer& t);

// Reads a shipped table (little-endian int32, one per vocabulary id). Throws config_error if the file cannot be read,
// has another size than vocab_size entries, or is not dealt in order of first appearance.
std::vector<std::int32_t> read_compressed_vocabulary(const std::string& path, std::int32_t vocab_size);

// The table of a checkpoint folder: its engram_compressed_ids.i32 if there is one, else derived. Throws config_error
// also if the number of distinct ids is not the configured engram_compressed_vocab_size, since every Engram row would
// be wrong.
std::vector<std::int32_t> compressed_vocabulary(const tokenizer& t, const std::string& checkpoint_folder,
                                                std::int32_t configured_size);

// Number of distinct ids of such a table.
std::int32_t distinct_ids(std::span<const std::int32_t> table);

} // namespace troupe
