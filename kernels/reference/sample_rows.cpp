#include "kernels/reference/sample_rows.hpp"

#include <algorithm>

namespace troupe::reference {

void sample_rows(const sample_rows_args& a, int begin, int end, sample_scratch& scratch) {
  const auto list = [](auto pointer, std::int64_t first, std::int32_t count) {
    return std::span(count > 0 ? pointer.raw() + first : nullptr, static_cast<std::size_t>(std::max(count, 0)));
  };
  const std::int32_t mask_words = (a.vocab + 31) / 32;
  for (int i = begin; i < end; ++i) {
    const sample_row_params& p = a.params.raw()[i];
    sample_args row;
    row.logits = list(a.logits, std::int64_t{i} * a.vocab, a.vocab);
    row.temperature = p.temperature;
    row.top_p = p.top_p;
    row.top_k = p.top_k;
    row.min_p = p.min_p;
    row.seed = p.seed;
    row.position = p.position;
    row.logit_bias = list(a.bias, p.first_bias, p.biases);
    row.blacklist = list(a.blacklist, 0, a.blacklisted);
    row.mask = list(a.masks, std::int64_t{p.mask} * mask_words, p.mask >= 0 ? mask_words : 0);
    row.suppressed = list(a.suppressed, p.first_suppressed, p.suppressed);
    row.forced = p.forced;
    row.logprob = p.logprob != 0;
    row.processed = p.processed != 0;
    row.top_logprobs = std::min(p.top_logprobs, a.max_top);
    const std::span top(a.max_top > 0 ? a.top.raw() + std::int64_t{i} * a.max_top : nullptr,
                        static_cast<std::size_t>(std::max(a.max_top, 0)));
    std::ranges::fill(top, std::pair<std::int32_t, float>(-1, -9999.0f));
    const sample_result r = sample_row(row, scratch, top);
    plain::put_sample(a, i, r);
  }
}

} // namespace troupe::reference
