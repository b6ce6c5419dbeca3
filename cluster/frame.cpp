#include "cluster/frame.hpp"
#include "runtime/base/crc32c.hpp"
#include <algorithm>
#include <cstring>

namespace troupe {

namespace {

constexpr std::uint32_t magic = 0x50444944;
constexpr std::uint16_t version = 1;

// Places of the fields, in bytes.
constexpr std::size_t at_magic = 0, at_version = 4, at_kind = 6, at_flags = 7, at_mepoch = 8, at_stream = 16,
                      at_seq = 24, at_src = 32, at_dst = 36, at_step = 40, at_payload_bytes = 48, at_body_crc = 52,
                      at_header_crc = 56, at_meta_bytes = 60;

using block = std::array<std::uint8_t, frame_header_bytes>;

template <class T> void put(block& to, std::size_t at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    to[at + i] = static_cast<std::uint8_t>(static_cast<std::uint64_t>(value) >> (8 * i));
}
template <class T> T get(const block& from, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value |= std::uint64_t{from[at + i]} << (8 * i);
  return static_cast<T>(value);
}

error bad(const std::string& why) {
  return error{"bad_frame", "frame: " + why};
}

std::uint32_t crc_of_header(block bytes) {
  put<std::uint32_t>(bytes, at_header_crc, 0);
  return crc32c(bytes);
}

} // namespace

bool carries_bulk(frame_kind kind) {
  return kind >= frame_kind::a2a_dispatch && kind <= frame_kind::weight_chunk;
}

std::uint32_t frame_body_crc(byte_span meta, byte_span payload) {
  return crc32c(payload, crc32c(meta));
}

std::array<std::uint8_t, frame_header_bytes> encode_header(const frame_header& h) {
  block b{};
  put(b, at_magic, magic);
  put(b, at_version, version);
  put(b, at_kind, static_cast<std::uint8_t>(h.kind));
  put(b, at_flags, h.flags);
  put(b, at_mepoch, h.mepoch);
  put(b, at_stream, h.stream);
  put(b, at_seq, h.seq);
  put(b, at_src, h.src);
  put(b, at_dst, h.dst);
  put(b, at_step, h.step_or_offset);
  put(b, at_payload_bytes, h.payload_bytes);
  put(b, at_body_crc, h.body_crc);
  put(b, at_meta_bytes, h.meta_bytes);
  put(b, at_header_crc, crc_of_header(b));
  return b;
}

result<frame_header> parse_header(byte_span bytes) {
  if (bytes.size() < frame_header_bytes)
    return bad(std::to_string(bytes.size()) + " bytes are no header");
  block b{};
  std::memcpy(b.data(), bytes.data(), b.size());
  if (get<std::uint32_t>(b, at_magic) != magic)
    return bad("the magic number is another");
  if (get<std::uint32_t>(b, at_header_crc) != crc_of_header(b))
    return bad("the header's check sum is wrong");
  if (get<std::uint16_t>(b, at_version) != version)
    return bad("version " + std::to_string(get<std::uint16_t>(b, at_version)) + ", not " + std::to_string(version));
  const auto kind = get<std::uint8_t>(b, at_kind);
  if (kind < static_cast<std::uint8_t>(frame_kind::a2a_dispatch) || kind > static_cast<std::uint8_t>(frame_kind::probe))
    return bad("there is no kind " + std::to_string(kind));
  frame_header h;
  h.kind = static_cast<frame_kind>(kind);
  h.flags = get<std::uint8_t>(b, at_flags);
  if ((h.flags & ~frame_flag::all) != 0)
    return bad("there are no flags " + std::to_string(h.flags));
  h.mepoch = get<std::uint64_t>(b, at_mepoch);
  h.stream = get<std::uint64_t>(b, at_stream);
  h.seq = get<std::uint64_t>(b, at_seq);
  h.src = get<std::uint32_t>(b, at_src);
  h.dst = get<std::uint32_t>(b, at_dst);
  h.step_or_offset = get<std::uint64_t>(b, at_step);
  h.payload_bytes = get<std::uint32_t>(b, at_payload_bytes);
  h.body_crc = get<std::uint32_t>(b, at_body_crc);
  h.meta_bytes = get<std::uint32_t>(b, at_meta_bytes);
  if (h.payload_bytes > frame_payload_bytes_max || h.meta_bytes > frame_meta_bytes_max)
    return bad("meta of " + std::to_string(h.meta_bytes) + " and payload of " + std::to_string(h.payload_bytes) +
               " bytes; at most " + std::to_string(frame_meta_bytes_max) + " and " +
               std::to_string(frame_payload_bytes_max) + " are allowed");
  return h;
}

status check_body(const frame_view& frame) {
  if (frame.meta.size() != frame.header.meta_bytes || frame.payload.size() != frame.header.payload_bytes)
    return error{"bad_body", "frame: the body has " + std::to_string(frame.meta.size()) + " + " +
                                 std::to_string(frame.payload.size()) + " bytes, the header announces " +
                                 std::to_string(frame.header.meta_bytes) + " + " +
                                 std::to_string(frame.header.payload_bytes)};
  if (frame_body_crc(frame.meta, frame.payload) != frame.header.body_crc)
    return error{"bad_body", "frame: the body's check sum is wrong"};
  return nothing{};
}

result<frame_view> parse_frame(byte_span bytes) {
  const auto header = parse_header(bytes);
  if (!header)
    return header.failure();
  const byte_span body = bytes.subspan(frame_header_bytes);
  const std::size_t meta = std::min<std::size_t>(header->meta_bytes, body.size());
  const frame_view view{*header, body.first(meta), body.subspan(meta)};
  if (const auto right = check_body(view); !right)
    return right.failure();
  return view;
}

result<frame_view> parse_frame(byte_span header_and_meta, byte_span payload) {
  const auto header = parse_header(header_and_meta);
  if (!header)
    return header.failure();
  const frame_view view{*header, header_and_meta.subspan(frame_header_bytes), payload};
  if (const auto right = check_body(view); !right)
    return right.failure();
  return view;
}

} // namespace troupe
