#include "cluster/bulk_channel.hpp"
#include <algorithm>
#include <cstring>
#include <utility>

namespace troupe {

const char* name_of(traffic_class c) {
  switch (c) {
  case traffic_class::a2a:
    return "a2a";
  case traffic_class::kv:
    return "kv";
  case traffic_class::weight:
    return "weight";
  }
  return "unknown";
}

payload_bytes own(std::vector<std::uint8_t> bytes) {
  const auto kept = std::make_shared<const std::vector<std::uint8_t>>(std::move(bytes));
  return {*kept, kept};
}

result<std::string> channel_segment(const std::string& cluster, const std::string& node, std::uint32_t from,
                                    std::uint32_t to, traffic_class c) {
  return segment_name(cluster, node, std::to_string(from), std::to_string(to) + "." + name_of(c));
}

result<shared_memory> make_ring_channel(const std::string& name, std::size_t capacity) {
  auto memory = shared_memory::create(name, ring_bytes(capacity));
  if (memory)
    make_ring({memory->data(), memory->size()});
  return memory;
}

// ---- sender

ring_sender::ring_sender(shared_memory memory, ring_writer writer, std::uint32_t src, std::uint32_t dst)
    : memory_(std::move(memory)), writer_(std::move(writer)), src_(src), dst_(dst) {}

result<std::unique_ptr<ring_sender>> ring_sender::attach(const std::string& name, std::uint32_t src,
                                                         std::uint32_t dst) {
  auto memory = shared_memory::open(name);
  if (!memory)
    return memory.failure();
  auto writer = ring_writer::attach({memory->data(), memory->size()});
  if (!writer)
    return writer.failure();
  return std::unique_ptr<ring_sender>(new ring_sender(std::move(*memory), std::move(*writer), src, dst));
}

frame_header ring_sender::header_of(const bulk_frame& frame, std::uint64_t seq) const {
  frame_header h;
  h.kind = frame.kind;
  h.flags = frame.last ? frame_flag::last : std::uint8_t{0};
  h.mepoch = frame.mepoch;
  h.stream = frame.stream;
  h.seq = seq;
  h.src = src_;
  h.dst = dst_;
  h.step_or_offset = frame.step_or_offset;
  h.meta_bytes = static_cast<std::uint32_t>(frame.meta.size());
  h.payload_bytes = static_cast<std::uint32_t>(frame.payload.bytes.size());
  h.body_crc = frame_body_crc(bytes_of(frame.meta), frame.payload.bytes);
  return h;
}

status ring_sender::send(bulk_frame frame, std::chrono::milliseconds limit) {
  if (!carries_bulk(frame.kind) || frame.meta.size() > frame_meta_bytes_max ||
      frame.payload.bytes.size() > frame_payload_bytes_max)
    return error{carries_bulk(frame.kind) ? "too_large" : "bad_options",
                 "stream " + std::to_string(frame.stream) + ": a frame of kind " +
                     std::to_string(static_cast<int>(frame.kind)) + " with " + std::to_string(frame.meta.size()) +
                     " + " + std::to_string(frame.payload.bytes.size()) + " bytes cannot be sent"};
  const std::lock_guard lock(guard_);
  const auto known = streams_.find(frame.stream);
  const std::uint64_t mepoch = known == streams_.end() ? frame.mepoch : known->second.mepoch;
  if (mepoch < mepoch_ || frame.mepoch != mepoch)
    return error{"stale_epoch", "stream " + std::to_string(frame.stream) + " belongs to membership " +
                                    std::to_string(mepoch) + ", the present one is " + std::to_string(mepoch_)};
  if (known != streams_.end() && known->second.abandoned)
    return error{"closed", "stream " + std::to_string(frame.stream) + " was given up"};
  const frame_header header = header_of(frame, known == streams_.end() ? 0 : known->second.next);
  const auto head = encode_header(header);
  if (const auto written = writer_.write({head, bytes_of(frame.meta), frame.payload.bytes}, limit); !written)
    return written.failure().code == "timed_out" ? error{"no_credit", "the ring stayed full"} : written.failure();
  if (frame.last)
    streams_.erase(frame.stream);
  else
    streams_[frame.stream] = {header.seq + 1, frame.mepoch, writer_.position(), false};
  return nothing{};
}

status ring_sender::wait_delivered(std::uint64_t stream, std::chrono::milliseconds limit) {
  const std::lock_guard lock(guard_);
  const auto known = streams_.find(stream);
  // Of one that has ended nothing is kept: all that was written so far includes it.
  const auto read = writer_.wait_read(known != streams_.end() ? known->second.end : writer_.position(), limit);
  return read ? status(nothing{}) : read.failure();
}

void ring_sender::abandon(std::uint64_t stream) {
  const std::lock_guard lock(guard_);
  const auto known = streams_.find(stream);
  if (known == streams_.end() || std::exchange(known->second.abandoned, true))
    return;
  frame_header h =
      header_of({.mepoch = known->second.mepoch, .stream = stream, .meta = {}, .payload = {}}, known->second.next);
  h.kind = frame_kind::nack;
  h.flags = frame_flag::ended;
  const auto head = encode_header(h);
  (void)writer_.write({head}, std::chrono::seconds(1)); // if the ring stays full, its reader is no longer there
}

void ring_sender::set_mepoch(std::uint64_t mepoch) {
  const std::lock_guard lock(guard_);
  mepoch_ = mepoch;
  std::erase_if(streams_, [mepoch](const auto& s) { return s.second.mepoch < mepoch; });
}

// ---- receiver

ring_receiver::ring_receiver(shared_memory memory, ring_reader reader)
    : memory_(std::move(memory)), reader_(std::move(reader)) {}

result<std::unique_ptr<ring_receiver>> ring_receiver::attach(const std::string& name) {
  auto memory = shared_memory::open(name);
  if (!memory)
    return memory.failure();
  auto reader = ring_reader::attach({memory->data(), memory->size()});
  if (!reader)
    return reader.failure();
  return std::unique_ptr<ring_receiver>(new ring_receiver(std::move(*memory), std::move(*reader)));
}

void ring_receiver::set_mepoch(std::uint64_t mepoch) {
  mepoch_ = mepoch;
  std::erase_if(streams_, [mepoch](const auto& s) { return s.second.mepoch < mepoch; });
}

result<bulk_arrival> ring_receiver::receive(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto record = reader_.front(end - std::chrono::steady_clock::now());
    if (!record)
      return record.failure();
    auto arrival = take({reinterpret_cast<const std::uint8_t*>(record->data()), record->size()});
    reader_.pop();
    if (!arrival)
      return arrival.failure();
    if (*arrival)
      return std::move(**arrival);
  }
}

// A frame is copied out before it is looked at: memory that both processes can write cannot change in between.
result<std::optional<bulk_arrival>> ring_receiver::take(byte_span record) {
  const auto kept = std::make_shared<const std::vector<std::uint8_t>>(record.begin(), record.end());
  const auto header = parse_header(*kept);
  const bool given_up = header && header->kind == frame_kind::nack && header->has(frame_flag::ended);
  if (!header || (!given_up && !carries_bulk(header->kind)))
    return error{"damaged", header ? "a frame in the ring carries nothing" : header.failure().message};
  if (header->mepoch < mepoch_) {
    ++stale_;
    return std::optional<bulk_arrival>();
  }
  bulk_arrival a;
  a.frame.stream = header->stream;
  a.frame.mepoch = header->mepoch;
  open_stream& s = streams_.try_emplace(header->stream, open_stream{0, header->mepoch, false}).first->second;
  const auto frame = parse_frame(*kept);
  const bool right = frame && header->seq == s.next && !given_up;
  if (given_up)
    a.failure = error{"closed", "stream " + std::to_string(header->stream) + " was given up by its sender"};
  else if (!s.failed && !right)
    a.failure = error{"stream_failed",
                      "stream " + std::to_string(header->stream) + ": " +
                          (frame ? "frame " + std::to_string(header->seq) + " instead of " + std::to_string(s.next)
                                 : frame.failure().message)};
  const bool known_as_failed = std::exchange(s.failed, s.failed || !right);
  ++s.next;
  if (header->has(frame_flag::last) || given_up)
    streams_.erase(header->stream);
  if (known_as_failed)
    return std::optional<bulk_arrival>();
  if (a.failure)
    return std::optional(std::move(a));
  a.frame.kind = header->kind;
  a.frame.last = header->has(frame_flag::last);
  a.frame.seq = header->seq;
  a.frame.step_or_offset = header->step_or_offset;
  a.frame.src = header->src;
  a.frame.dst = header->dst;
  a.frame.body_crc = header->body_crc;
  a.frame.meta.assign(reinterpret_cast<const char*>(frame->meta.data()), frame->meta.size());
  a.frame.payload = {frame->payload, kept};
  return std::optional(std::move(a));
}

} // namespace troupe
