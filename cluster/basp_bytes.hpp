// What comes in over a connection to a port of CAF, looked at before CAF 0.17 does. That makes room for whatever length
// a header names, up to 4 GiB, before it knows who speaks; reads a greeting that is not there; and closes without a
// word what it cannot read.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe {

class basp_bytes {
public:
  // The first message is the greeting of a client; of the others the largest that this program sends is far smaller.
  static constexpr std::uint32_t longest_greeting = 1 << 16, longest_message = 1 << 30;

  // Who has a key that is no node's speaks for no process but its own: CAF would pass on what names another.
  void refuse_routed() { routes_ = false; }

  // The next bytes. Null, or what is wrong with them: then the connection is to be closed.
  const char* take(std::span<const std::uint8_t> bytes);
  bool inside_a_message() const { return have_ > 0 || left_ > 0; }

private:
  const char* judge();

  std::array<std::uint8_t, 32> header_{};
  std::size_t have_ = 0;   // of the header
  std::uint32_t left_ = 0; // of what it announced
  bool greeted_ = false, routes_ = true;
};

} // namespace troupe
