#include "runtime/tokenizer/streaming.hpp"
#include "runtime/tokenizer/utf8.hpp"
#include <utility>

namespace troupe {

std::string streaming_decoder::push(std::int32_t id) {
  if (skip_special_ && tokenizer_->is_special(id))
    return {};
  held_.append(tokenizer_->bytes(id));
  return incomplete_tail(held_) == 0 ? flush() : std::string{};
}

std::string streaming_decoder::flush() {
  return replace_invalid_utf8(std::exchange(held_, {}));
}

std::string streaming_decoder::pending() const {
  return replace_invalid_utf8(held_);
}

} // namespace troupe
