// Frames and damage to them: what the frame tests, the fuzz target and the relay share.
#pragma once
#include "cluster/frame.hpp"
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace troupe::test {

using byte_vector = std::vector<std::uint8_t>;

// A meta struct with every sort of field that metas have.
struct sample_meta {
  std::uint64_t id = 0;
  std::uint32_t layer = 0;
  std::vector<std::int32_t> rows;
  std::vector<float> weights;
  std::string note;

  template <class Archive> void serialize(Archive& ar) {
    ar(id, layer, at_most<8192>(rows), at_most<1024>(weights), at_most<4096>(note));
  }
  friend bool operator==(const sample_meta&, const sample_meta&) = default;
};

inline byte_vector random_bytes(std::mt19937_64& random, std::size_t size) {
  byte_vector b(size);
  for (auto& x : b)
    x = static_cast<std::uint8_t>(random());
  return b;
}

// Header, meta and payload in one piece, with the lengths and check sums that belong to them.
inline byte_vector whole_frame(frame_header header, byte_span meta, byte_span payload) {
  header.meta_bytes = static_cast<std::uint32_t>(meta.size());
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.body_crc = frame_body_crc(meta, payload);
  const auto head = encode_header(header);
  byte_vector frame(head.begin(), head.end());
  frame.insert(frame.end(), meta.begin(), meta.end());
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

inline frame_header sample_header() {
  frame_header h;
  h.kind = frame_kind::kv_chunk;
  h.flags = frame_flag::last;
  h.mepoch = 0x0102030405060708;
  h.stream = 0x1112131415161718;
  h.seq = 0x2122232425262728;
  h.src = 0x31323334;
  h.dst = 0x41424344;
  h.step_or_offset = 0x5152535455565758;
  return h;
}

// Aborts, with the input, where parsing breaks a promise.
inline void parse_anything(byte_span bytes) {
  const auto broken = [&](const char* what) {
    std::fprintf(stderr, "%s; the input as hexadecimal digits: ", what);
    for (const auto b : bytes)
      std::fprintf(stderr, "%02x", static_cast<unsigned>(b));
    std::fputc('\n', stderr);
    std::abort();
  };
  (void)decode_meta<sample_meta>(bytes);
  const auto frame = parse_frame(bytes);
  if (!frame) {
    if (frame.failure().code.empty() || frame.failure().message.empty())
      broken("a failure without a code or message");
    return;
  }
  if (frame->meta.size() > frame_meta_bytes_max || frame->payload.size() > frame_payload_bytes_max)
    broken("a frame above the limits");
  if (whole_frame(frame->header, frame->meta, frame->payload) != byte_vector(bytes.begin(), bytes.end()))
    broken("a frame that is not what was parsed");
  if (const auto meta = decode_meta<sample_meta>(frame->meta)) {
    const auto again = encode_meta(*meta);
    // The first byte of the other form says big endian: legal, and not what we write.
    if (again && frame->meta[0] == 1 && bytes_of(*again).size() != frame->meta.size())
      broken("meta that encodes to another length");
  }
}

} // namespace troupe::test
