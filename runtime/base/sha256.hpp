// SHA-256 (FIPS 180-4): seeds of requests without one, file identities, prefix chains.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

using sha256_digest = std::array<std::uint8_t, 32>;

class sha256 {
public:
  void update(std::span<const std::uint8_t> bytes);
  void update(std::string_view bytes);
  void update_u64(std::uint64_t v); // eight bytes, little endian
  // Closes the message. The object must not be updated afterwards.
  sha256_digest finish();

private:
  void block(const std::uint8_t* p);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> pending_{};
  std::uint64_t length_ = 0; // bytes so far
};

sha256_digest sha256_of(std::string_view bytes);
std::string to_hex(const sha256_digest& digest);

} // namespace troupe
