// Streams of made frames and the check of what arrives of them, for tests of every carrier.
#pragma once
#include "cluster/bulk_channel.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace troupe::test {

// Frame `seq` of `count` in a stream; its content follows from both numbers.
inline bulk_frame made_frame(std::uint64_t stream, std::uint64_t seq, std::uint64_t count, std::size_t largest,
                             std::uint64_t mepoch = 1) {
  std::uint64_t state = stream * 1'000'003 + seq + 1;
  const auto random = [&state] { // splitmix64: a frame costs less to make than to send
    std::uint64_t z = state += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  };
  std::vector<std::uint8_t> payload(random() % (largest + 1));
  for (std::size_t at = 0; at < payload.size(); at += 8) {
    const std::uint64_t word = random();
    std::memcpy(payload.data() + at, &word, std::min<std::size_t>(8, payload.size() - at));
  }
  bulk_frame frame{.kind = frame_kind::kv_chunk,
                   .last = seq + 1 == count,
                   .mepoch = mepoch,
                   .stream = stream,
                   .step_or_offset = seq * 7,
                   .meta = "frame " + std::to_string(seq) + std::string(random() % 50, 'x'),
                   .payload = own(std::move(payload))};
  frame.body_crc = frame_body_crc(bytes_of(frame.meta), frame.payload.bytes);
  return frame;
}

// Takes arrivals and fails the test for whatever is not the next frame of its stream.
class arrival_check {
public:
  arrival_check(std::uint64_t count, std::size_t largest) : count_(count), largest_(largest) {}

  void take(const bulk_arrival& a) {
    progress& p = streams_[a.frame.stream];
    BOOST_REQUIRE(!p.failed);
    if (a.failure) {
      BOOST_REQUIRE(p.next < count_);
      p.failed = true;
      return;
    }
    const bulk_frame want = made_frame(a.frame.stream, p.next, count_, largest_, a.frame.mepoch);
    const bool right = a.frame.seq == p.next && a.frame.last == want.last && a.frame.meta == want.meta &&
                       a.frame.step_or_offset == want.step_or_offset &&
                       std::ranges::equal(a.frame.payload.bytes, want.payload.bytes);
    BOOST_REQUIRE_MESSAGE(right, "stream " << a.frame.stream << ": frame " << a.frame.seq << " where " << p.next
                                           << " was due, or with other contents");
    ++p.next;
  }
  bool complete(std::uint64_t stream) const {
    const auto p = streams_.find(stream);
    return p != streams_.end() && p->second.next == count_;
  }
  bool failed(std::uint64_t stream) const {
    const auto p = streams_.find(stream);
    return p != streams_.end() && p->second.failed;
  }
  std::uint64_t arrived(std::uint64_t stream) const {
    const auto p = streams_.find(stream);
    return p == streams_.end() ? 0 : p->second.next;
  }

private:
  struct progress {
    std::uint64_t next = 0;
    bool failed = false;
  };
  std::uint64_t count_;
  std::size_t largest_;
  std::map<std::uint64_t, progress> streams_;
};

} // namespace troupe::test
