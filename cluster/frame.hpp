// Frames of the data plane (cluster.md §3.10): 64 bytes of header, meta (a struct in cereal's portable binary form),
// raw payload. Whoever reads one may be handed anything: parsing never throws, and allocates no more than a frame may
// hold.
#pragma once
#include "runtime/base/result.hpp"
#include <array>
#include <cereal/archives/portable_binary.hpp>
#include <cereal/cereal.hpp>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <istream>
#include <ostream>
#include <span>
#include <streambuf>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

inline constexpr std::size_t frame_header_bytes = 64;
inline constexpr std::size_t frame_meta_bytes_max = std::size_t{64} << 10;
inline constexpr std::size_t frame_payload_bytes_max = std::size_t{4} << 20;

enum class frame_kind : std::uint8_t {
  a2a_dispatch = 1,
  a2a_combine = 2,
  kv_chunk = 3,
  expert_chunk = 4,
  weight_chunk = 5,
  ack = 6,    // receiver to sender: seq = next expected, step_or_offset = credit (bytes of the stream, from its start)
  nack = 7,   // receiver to sender: seq is missing or damaged, step_or_offset = the probe that is answered, or 0; with
              // `ended` the stream has failed, by either side
  credit = 8, // as ack, when only the credit changed
  hello = 9,
  probe = 10, // sender to receiver: seq = frames sent so far, step_or_offset = its number; asks for ack and for nacks
};
bool carries_bulk(frame_kind kind); // the first five

namespace frame_flag {
inline constexpr std::uint8_t last = 1;       // of its stream
inline constexpr std::uint8_t retransmit = 2; // sent before
inline constexpr std::uint8_t ended = 4;   // on nack and hello: no more of this; step_or_offset says why (stream_end)
inline constexpr std::uint8_t unknown = 8; // on hello: who are you? introduce yourself again
inline constexpr std::uint8_t all = 63;    // with two bits for the attempt
inline constexpr int attempt_shift =
    4; // on bulk frames: how often it was sent before, 3 for more; on nack: of the damaged one
} // namespace frame_flag

// Byte order on the wire is little endian. meta_bytes stands where §3.10 has a reserved word: a receiver that gets the
// frame as one piece has to know where the payload begins.
struct frame_header {
  frame_kind kind = frame_kind::hello;
  std::uint8_t flags = 0;
  std::uint64_t mepoch = 0, stream = 0, seq = 0;
  std::uint32_t src = 0, dst = 0; // ranks
  std::uint64_t step_or_offset = 0;
  std::uint32_t payload_bytes = 0, meta_bytes = 0;
  std::uint32_t body_crc = 0; // CRC-32C of meta, then payload

  bool has(std::uint8_t flag) const { return (flags & flag) != 0; }
  unsigned attempt() const { return flags >> frame_flag::attempt_shift; }
  friend bool operator==(const frame_header&, const frame_header&) = default;
};

using byte_span = std::span<const std::uint8_t>;
inline byte_span bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

std::uint32_t frame_body_crc(byte_span meta, byte_span payload);
// Header on the wire with its own CRC. Lengths and body_crc are taken as they stand.
std::array<std::uint8_t, frame_header_bytes> encode_header(const frame_header& header);

// A header that is whole and allowed: own CRC, magic, version, kind, flags, lengths. Failure: "bad_frame".
result<frame_header> parse_header(byte_span bytes);

// Views into the bytes that were parsed.
struct frame_view {
  frame_header header;
  byte_span meta, payload;
};
// A frame that came as one piece, or as header with meta and, apart, payload. Failures: "bad_frame" (nothing of it can
// be believed), "bad_body" (the header is right, the body is not).
result<frame_view> parse_frame(byte_span bytes);
result<frame_view> parse_frame(byte_span header_and_meta, byte_span payload);
// That the body is the one of which the header speaks; "bad_body" if not.
status check_body(const frame_view& frame);

// A list or text in a meta struct: cereal makes room for as many as the bytes claim, this for no more than Max.
template <std::size_t Max, class List> struct limited {
  List& items;

  template <class Archive> void save(Archive& ar) const {
    ar(cereal::make_size_tag(static_cast<cereal::size_type>(items.size())));
    ar(cereal::binary_data(items.data(), items.size() * sizeof(*items.data())));
  }
  template <class Archive> void load(Archive& ar) {
    cereal::size_type n = 0;
    ar(cereal::make_size_tag(n));
    if (n > Max)
      throw cereal::Exception("a list of " + std::to_string(n) + " items, at most " + std::to_string(Max) +
                              " are allowed");
    items.resize(static_cast<std::size_t>(n));
    ar(cereal::binary_data(items.data(), items.size() * sizeof(*items.data())));
  }
};
template <std::size_t Max, class List> limited<Max, List> at_most(List& items) {
  return {items};
}

namespace detail {

// cereal wants streams; these two stand for bytes that are there already.
class out_bytes : public std::streambuf {
public:
  std::string data;

protected:
  std::streamsize xsputn(const char* p, std::streamsize n) override {
    data.append(p, static_cast<std::size_t>(n));
    return n;
  }
  int_type overflow(int_type c) override {
    data.push_back(static_cast<char>(c));
    return c;
  }
};
class in_bytes : public std::streambuf {
public:
  explicit in_bytes(byte_span bytes) {
    auto* start = const_cast<char*>(reinterpret_cast<const char*>(bytes.data())); // only read
    setg(start, start, start + bytes.size());
  }
  std::size_t left() const { return static_cast<std::size_t>(egptr() - gptr()); }
};

} // namespace detail

// A struct with cereal's serialize() as meta. Failure ("too_large"): more than 64 KiB.
template <class Meta> result<std::string> encode_meta(Meta meta) {
  detail::out_bytes bytes;
  std::ostream stream(&bytes);
  cereal::PortableBinaryOutputArchive archive(stream, cereal::PortableBinaryOutputArchive::Options::LittleEndian());
  archive(meta);
  if (bytes.data.size() > frame_meta_bytes_max)
    return error{"too_large", "meta of " + std::to_string(bytes.data.size()) + " bytes; a frame takes " +
                                  std::to_string(frame_meta_bytes_max)};
  return std::move(bytes.data);
}

// Failure ("bad_meta"): cut short, too long, or with a list above its limit.
template <class Meta> result<Meta> decode_meta(byte_span bytes) {
  if (bytes.size() > frame_meta_bytes_max)
    return error{"bad_meta", "meta of " + std::to_string(bytes.size()) + " bytes; a frame takes " +
                                 std::to_string(frame_meta_bytes_max)};
  try {
    detail::in_bytes buffer(bytes);
    std::istream stream(&buffer);
    cereal::PortableBinaryInputArchive archive(stream);
    Meta meta;
    archive(meta);
    if (buffer.left() != 0)
      return error{"bad_meta", std::to_string(buffer.left()) + " bytes of meta are left over"};
    return meta;
  } catch (const std::exception& e) {
    return error{"bad_meta", std::string("meta does not decode: ") + e.what()};
  }
}

} // namespace troupe
