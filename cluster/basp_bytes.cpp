#include "cluster/basp_bytes.hpp"
#include "cluster/caf.hpp"
#include <algorithm>

namespace troupe {

namespace {

using message_type = caf::io::basp::message_type;
static_assert(caf::io::basp::header_size == 32);

} // namespace

const char* basp_bytes::take(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    if (left_ > 0) {
      const std::size_t n = std::min<std::size_t>(left_, bytes.size());
      left_ -= static_cast<std::uint32_t>(n);
      bytes = bytes.subspan(n);
      continue;
    }
    const std::size_t n = std::min(header_.size() - have_, bytes.size());
    std::copy_n(bytes.begin(), n, header_.begin() + static_cast<std::ptrdiff_t>(have_));
    bytes = bytes.subspan(n);
    have_ += n;
    if (have_ < header_.size())
      return nullptr;
    have_ = 0;
    if (const char* wrong = judge())
      return wrong;
  }
  return nullptr;
}

const char* basp_bytes::judge() {
  const auto type = static_cast<message_type>(header_[0]);
  std::uint32_t length = 0;
  for (std::size_t i = 4; i < 8; ++i)
    length = length << 8 | header_[i];
  if (!greeted_ && type != message_type::client_handshake)
    return "it does not begin with a greeting";
  if (type == message_type::server_handshake || type > message_type::heartbeat) // a server's never comes in
    return "a message of no known kind";
  if (type == message_type::routed_message && !routes_)
    return "a message for another process, from a key that is no node's";
  if (type == message_type::client_handshake && length == 0) // CAF would read what is not there
    return "a greeting without a word";
  if (length > (greeted_ ? longest_message : longest_greeting))
    return "a message that is too long";
  greeted_ = true;
  left_ = length;
  return nullptr;
}

} // namespace troupe
