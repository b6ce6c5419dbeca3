// The hash of a token prefix in whole blocks, as a chain: start, then one link per 128 ids. The same values on every
// node and in every build, so that one node can name to another what it has cached. Never proof of equality: whoever
// finds something by such a hash compares the ids.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace troupe {

// Of the empty prefix. Blocks of another numerics id, model or tenant are other blocks.
std::uint64_t chain_start(std::string_view numerics_id, std::string_view model_id, std::string_view salt);
// Of the prefix that `before` stands for with the ids of one more block behind it.
std::uint64_t chain_next(std::uint64_t before, std::span<const std::int32_t> ids);

} // namespace troupe
