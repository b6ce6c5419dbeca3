#include "kernels/reference/drafts.hpp"

#include "kernels/plain/drafts.hpp"
#include "kernels/reference/alone.hpp"

namespace troupe::reference {

void share_drafts(const share_drafts_args& a) {
  alone t;
  plain::share_drafts(t, a);
}

void lay_out_rows(const lay_out_rows_args& a) {
  for (std::int64_t i = 0; i < a.map.rows; ++i)
    plain::lay_out_row(a, i);
}

void verify_drafts(const verify_drafts_args& a) {
  for (std::int64_t s = 0; s < a.map.sequences; ++s)
    plain::verify_sequence(a, s);
}

void lay_out_drafts(const lay_out_drafts_args& a) {
  for (std::int64_t i = 0; i < std::int64_t{a.sequences} * a.state.block; ++i)
    plain::lay_out_draft_row(a, i);
}

void keep_drafts(const keep_drafts_args& a) {
  alone t;
  for (std::int64_t s = 0; s < a.sequences; ++s) {
    plain::keep_draft(a, s);
    plain::keep_draft_logits(t, a, s);
  }
}

} // namespace troupe::reference
