// Byte-pair merging of one piece (tokenizer_recipe.md 1.3 step 5): always the adjacent pair of lowest rank, leftmost on
// ties.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace troupe {

struct merge_rule {
  std::int32_t left, right, merged; // token ids; the rank is the position in the list
};

// Working memory of long pieces, reused from piece to piece by one caller.
struct bpe_scratch {
  struct symbol {
    std::int32_t id; // -1: merged away
    std::int64_t previous, next;
  };
  std::vector<symbol> symbols;
  std::vector<std::uint64_t> heap;
};

// Immutable after construction; any number of threads may encode at once, each with its own scratch.
class bpe {
public:
  static constexpr std::size_t max_merges = std::size_t{1} << 24; // ranks share a 64-bit heap key with positions

  bpe() = default;
  // byte_ids: token id of each byte. merges: no pair twice, at most max_merges.
  bpe(const std::array<std::int32_t, 256>& byte_ids, std::span<const merge_rule> merges);

  // Makes pieces that equal one of these tokens and merge to it come out of one look-up. Changes speed, never ids.
  // bytes_of[i]: bytes of token i, which must outlive this object; empty views are left out.
  void index_whole_pieces(std::span<const std::string_view> bytes_of);

  // Appends the ids of a piece. Any bytes.
  void encode(std::string_view piece, bpe_scratch& scratch, std::vector<std::int32_t>& out) const;

private:
  static constexpr std::uint64_t no_merge = ~std::uint64_t{0};
  static constexpr std::size_t short_piece = 64; // bytes; up to here a scan beats the heap

  struct slot {
    std::uint64_t key, value; // key: left << 32 | right; value: rank << 32 | merged
  };
  struct whole_piece {
    std::uint32_t hash;
    std::int32_t id; // -1: empty slot
  };

  std::uint64_t find(std::int32_t left, std::int32_t right) const;
  std::int32_t find_whole(std::string_view piece) const;
  void encode_short(std::string_view piece, std::vector<std::int32_t>& out) const;
  void encode_long(std::string_view piece, bpe_scratch& scratch, std::vector<std::int32_t>& out) const;

  std::array<std::int32_t, 256> byte_ids_{};
  std::vector<slot> merges_{{no_merge, no_merge}}; // open addressing, a power of two, at most half full
  unsigned merges_shift_ = 63;
  std::vector<whole_piece> whole_;
  std::vector<std::string_view> bytes_of_;
};

} // namespace troupe
