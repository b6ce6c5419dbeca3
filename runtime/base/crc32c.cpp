#include "runtime/base/crc32c.hpp"
#include <array>
#include <cstring>
#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace troupe {

namespace {

// table[k][b]: what byte b adds when k more bytes follow in the same word of eight.
constexpr std::array<std::array<std::uint32_t, 256>, 8> make_tables() {
  std::array<std::array<std::uint32_t, 256>, 8> table{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t v = b;
    for (int bit = 0; bit < 8; ++bit)
      v = (v >> 1) ^ ((v & 1) != 0 ? 0x82F63B78U : 0U);
    table[0][b] = v;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::uint32_t b = 0; b < 256; ++b)
      table[k][b] = (table[k - 1][b] >> 8) ^ table[0][table[k - 1][b] & 0xFF];
  return table;
}
constexpr auto tables = make_tables();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::span<const std::uint8_t> bytes,
                                                               std::uint32_t before) {
  std::uint64_t v = static_cast<std::uint32_t>(~before);
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    v = _mm_crc32_u64(v, word);
  }
  auto w = static_cast<std::uint32_t>(v);
  for (; i < bytes.size(); ++i)
    w = _mm_crc32_u8(w, bytes[i]);
  return ~w;
}
bool has_instruction() {
  return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__)
__attribute__((target("+crc"))) std::uint32_t by_instruction(std::span<const std::uint8_t> bytes,
                                                             std::uint32_t before) {
  std::uint32_t v = ~before;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    v = __crc32cd(v, word);
  }
  for (; i < bytes.size(); ++i)
    v = __crc32cb(v, bytes[i]);
  return ~v;
}
bool has_instruction() {
  return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}
#else
std::uint32_t by_instruction(std::span<const std::uint8_t> bytes, std::uint32_t before) {
  return crc32c_by_tables(bytes, before);
}
bool has_instruction() {
  return false;
}
#endif

} // namespace

std::uint32_t crc32c_by_tables(std::span<const std::uint8_t> bytes, std::uint32_t before) {
  std::uint32_t v = ~before;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    const std::uint8_t* p = bytes.data() + i;
    v = tables[7][(v ^ p[0]) & 0xFF] ^ tables[6][((v >> 8) ^ p[1]) & 0xFF] ^ tables[5][((v >> 16) ^ p[2]) & 0xFF] ^
        tables[4][(v >> 24) ^ p[3]] ^ tables[3][p[4]] ^ tables[2][p[5]] ^ tables[1][p[6]] ^ tables[0][p[7]];
  }
  for (; i < bytes.size(); ++i)
    v = (v >> 8) ^ tables[0][(v ^ bytes[i]) & 0xFF];
  return ~v;
}

bool crc32c_in_hardware() {
  static const bool yes = has_instruction();
  return yes;
}

std::uint32_t crc32c(std::span<const std::uint8_t> bytes, std::uint32_t before) {
  return crc32c_in_hardware() ? by_instruction(bytes, before) : crc32c_by_tables(bytes, before);
}

} // namespace troupe
