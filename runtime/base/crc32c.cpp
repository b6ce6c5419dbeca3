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

// What so many zero bytes make of a check sum: linear in its bits, hence a sum over its four bytes.
constexpr std::size_t lane_bytes = 1024;
using zero_run = std::array<std::array<std::uint32_t, 256>, 4>;
constexpr std::uint32_t after(const zero_run& run, std::uint32_t v) {
  return run[0][v & 0xFF] ^ run[1][(v >> 8) & 0xFF] ^ run[2][(v >> 16) & 0xFF] ^ run[3][v >> 24];
}
constexpr zero_run make_zero_run(std::size_t bytes) {
  std::array<std::uint32_t, 32> of_bit{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    std::uint32_t v = std::uint32_t{1} << bit;
    for (std::size_t n = 0; n < bytes; ++n)
      v = (v >> 8) ^ tables[0][v & 0xFF];
    of_bit[bit] = v;
  }
  zero_run run{};
  for (std::size_t k = 0; k < 4; ++k)
    for (std::size_t b = 0; b < 256; ++b)
      for (std::size_t bit = 0; bit < 8; ++bit)
        run[k][b] ^= (b >> bit & 1) != 0 ? of_bit[8 * k + bit] : 0;
  return run;
}
constexpr zero_run lane_of_zeros = make_zero_run(lane_bytes);

#if defined(__x86_64__)
#define TROUPE_CRC_TARGET __attribute__((target("sse4.2")))
TROUPE_CRC_TARGET inline std::uint32_t with_word(std::uint32_t v, std::uint64_t word) {
  return static_cast<std::uint32_t>(_mm_crc32_u64(v, word));
}
TROUPE_CRC_TARGET inline std::uint32_t with_byte(std::uint32_t v, std::uint8_t byte) {
  return _mm_crc32_u8(v, byte);
}
bool has_instruction() {
  return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__)
#define TROUPE_CRC_TARGET __attribute__((target("+crc")))
TROUPE_CRC_TARGET inline std::uint32_t with_word(std::uint32_t v, std::uint64_t word) {
  return __crc32cd(v, word);
}
TROUPE_CRC_TARGET inline std::uint32_t with_byte(std::uint32_t v, std::uint8_t byte) {
  return __crc32cb(v, byte);
}
bool has_instruction() {
  return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}
#endif

#if defined(TROUPE_CRC_TARGET)
inline std::uint64_t word_at(const std::uint8_t* p) {
  std::uint64_t word = 0;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// The instruction takes three cycles and one may begin in each: three lanes side by side, joined by what the lanes
// behind them would make of zeros.
TROUPE_CRC_TARGET std::uint32_t by_instruction(std::span<const std::uint8_t> bytes, std::uint32_t before) {
  std::uint32_t v = ~before;
  const std::uint8_t* p = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 3 * lane_bytes; left -= 3 * lane_bytes, p += 3 * lane_bytes) {
    std::uint32_t second = 0, third = 0;
    for (std::size_t i = 0; i < lane_bytes; i += 8) {
      v = with_word(v, word_at(p + i));
      second = with_word(second, word_at(p + lane_bytes + i));
      third = with_word(third, word_at(p + 2 * lane_bytes + i));
    }
    v = after(lane_of_zeros, after(lane_of_zeros, v) ^ second) ^ third;
  }
  for (; left >= 8; left -= 8, p += 8)
    v = with_word(v, word_at(p));
  for (; left > 0; --left, ++p)
    v = with_byte(v, *p);
  return ~v;
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
