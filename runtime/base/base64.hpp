// Base64 (RFC 4648 §4, with padding): bytes inside JSON.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

std::string base64_of(std::span<const std::uint8_t> bytes);

// Nothing unless `text` is exactly what base64_of gives for some bytes.
std::optional<std::vector<std::uint8_t>> bytes_of_base64(std::string_view text);

} // namespace troupe
