// Speculation inside a step (kernels/plain/drafts.hpp) by one thread.
#pragma once
#include "kernels/ops.hpp"

namespace troupe::reference {

void share_drafts(const share_drafts_args& a);
void lay_out_rows(const lay_out_rows_args& a);
void verify_drafts(const verify_drafts_args& a);
void lay_out_drafts(const lay_out_drafts_args& a);
void keep_drafts(const keep_drafts_args& a);

} // namespace troupe::reference
