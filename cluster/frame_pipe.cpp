#include "cluster/frame_pipe.hpp"
#include <cstring>

namespace troupe {

std::size_t frame_ring_bytes(std::size_t payload, std::size_t frames) {
  constexpr std::size_t around = 128;                                        // a record's head, its rounding up
  return ring_bytes((frames + 1) * (payload + frame_header_bytes + around)); // one more: what is skipped at the end
}

ring_frame_writer::ring_frame_writer(shared_memory memory, ring_writer writer)
    : memory_(std::move(memory)), writer_(std::move(writer)) {}

result<std::unique_ptr<ring_frame_writer>> ring_frame_writer::open(const std::string& segment) {
  auto memory = shared_memory::open(segment);
  if (!memory)
    return memory.failure();
  // Of a link that has ended the segment may still be there: its reader would take a second writer for the first.
  if (memory->size() >= sizeof(detail::ring_control) &&
      reinterpret_cast<const detail::ring_control*>(memory->data())->writer.taken())
    return error{"in_use", "/dev/shm/" + segment + ": it had its writer"};
  auto writer = ring_writer::attach({memory->data(), memory->size()});
  if (!writer)
    return writer.failure();
  return std::unique_ptr<ring_frame_writer>(new ring_frame_writer(std::move(*memory), std::move(*writer)));
}

result<std::span<std::byte>> ring_frame_writer::reserve(std::size_t bytes, std::chrono::nanoseconds limit) {
  const auto record = writer_.reserve(frame_header_bytes + bytes, limit);
  if (!record)
    return record.failure();
  record_ = *record;
  return record_.subspan(frame_header_bytes);
}

status ring_frame_writer::send(frame_kind kind, std::uint64_t number) {
  const std::span<std::byte> body = record_.subspan(frame_header_bytes);
  frame_header h;
  h.kind = kind;
  h.seq = number;
  h.payload_bytes = static_cast<std::uint32_t>(body.size());
  h.body_crc = frame_body_crc({}, {reinterpret_cast<const std::uint8_t*>(body.data()), body.size()});
  const auto head = encode_header(h);
  std::memcpy(record_.data(), head.data(), head.size());
  writer_.publish();
  return nothing{};
}

ring_frame_reader::ring_frame_reader(shared_memory memory, ring_reader reader)
    : memory_(std::move(memory)), reader_(std::move(reader)) {}

result<std::unique_ptr<ring_frame_reader>> ring_frame_reader::create(const std::string& segment, std::size_t capacity) {
  auto memory = shared_memory::create(segment, capacity);
  if (!memory)
    return memory.failure();
  const std::span<std::byte> bytes(memory->data(), memory->size());
  make_ring(bytes);
  auto reader = ring_reader::attach(bytes);
  if (!reader)
    return reader.failure();
  return std::unique_ptr<ring_frame_reader>(new ring_frame_reader(std::move(*memory), std::move(*reader)));
}

result<frame_view> ring_frame_reader::front(std::chrono::nanoseconds limit) {
  const auto record = reader_.front(limit);
  if (!record)
    return record.failure();
  auto frame = parse_frame({reinterpret_cast<const std::uint8_t*>(record->data()), record->size()});
  if (!frame)
    return error{"damaged", frame.failure().message};
  return frame;
}

} // namespace troupe
