#include "kernels/reference/cache.hpp"

#include "kernels/plain/cache.hpp"
#include "kernels/reference/alone.hpp"
#include "kernels/reference/records.hpp"
#include <cstring>

namespace troupe::reference {

void encode(const encode_args& a, int begin, int end) {
  alone t;
  for (int i = begin; i < end; ++i)
    plain::encode_row(t, a, i);
}

void ring_commit(const ring_commit_args& a, int begin, int end) {
  const std::int64_t bytes = record_bytes(a.ring.format, a.ring.dim);
  for (int i = begin; i < end; ++i)
    if (std::byte* to = plain::ring_place(a, i))
      std::memcpy(to, a.records.raw() + i * bytes, static_cast<std::size_t>(bytes));
}

void block_store(const block_store_args& a, int begin, int end) {
  alone t;
  for (int i = begin; i < end; ++i)
    plain::block_store_row(t, a, i);
}

TROUPE_FMA_CLONES
void compress(const compress_args& a, int begin, int end) {
  alone t;
  for (int b = begin; b < end; ++b)
    plain::compress_block(t, a, b);
}

} // namespace troupe::reference
