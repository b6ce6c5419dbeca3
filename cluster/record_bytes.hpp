// Values as bytes for files: cereal's portable binary form, which is the same on every machine, with a check sum.
#pragma once
#include "runtime/base/crc32c.hpp"
#include <cereal/archives/portable_binary.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/variant.hpp>
#include <cereal/types/vector.hpp>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

namespace troupe {

inline std::uint32_t crc32c_of(std::string_view bytes, std::uint32_t before = 0) {
  return crc32c({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, before);
}

inline void append_u32(std::string& out, std::uint32_t v) { // little endian
  for (int shift = 0; shift < 32; shift += 8)
    out.push_back(static_cast<char>(v >> shift & 0xff));
}

inline std::uint32_t u32_at(std::string_view bytes, std::size_t at) {
  std::uint32_t v = 0;
  for (int i = 3; i >= 0; --i)
    v = v << 8 | static_cast<std::uint8_t>(bytes[at + static_cast<std::size_t>(i)]);
  return v;
}

template <class T> std::string to_bytes(const T& value) {
  std::ostringstream out;
  {
    cereal::PortableBinaryOutputArchive archive(out);
    archive(value);
  }
  return std::move(out).str();
}

// Nothing unless the bytes are one such value and no more.
template <class T> std::optional<T> from_bytes(std::string_view bytes) {
  try {
    std::istringstream in{std::string(bytes)};
    T value;
    {
      cereal::PortableBinaryInputArchive archive(in);
      archive(value);
    }
    if (in.peek() != std::istringstream::traits_type::eof())
      return std::nullopt;
    return value;
  } catch (const std::exception&) { // cut short, or a length that no memory holds
    return std::nullopt;
  }
}

} // namespace troupe
