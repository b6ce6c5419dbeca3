// One stream of bulk frames between two processes as two state machines without sockets, threads or clocks: what is
// sent and sent again, what is delivered, acknowledged, missing (cluster.md §3.10, §3.11). A stream is delivered
// exactly once and in order, or it fails, and then it fails on both sides.
//
// Rules. A frame stays with the sender until it is acknowledged. The receiver acknowledges with the next number that it
// expects and the credit: how many bytes of the stream it takes in all. A frame that comes too early is kept and the
// gap reported (nack); a damaged one is reported; one that came before is dropped and acknowledged. A frame goes out
// again only for a nack, at most three times. Where nothing moves the sender asks (probe, its pauses growing), and the
// receiver says what is missing: that finds lost tails and lost answers. A receiver that does not even answer probes
// fails the stream after a limit.
#pragma once
#include "cluster/bulk_channel.hpp"
#include "cluster/frame.hpp"
#include "runtime/base/result.hpp"
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace troupe {

using steady_time = std::chrono::steady_clock::time_point;

struct stream_rules {
  std::uint64_t credit_bytes = std::uint64_t{64} << 20; // that a stream may have on the way or waiting for its reader
  std::uint32_t frames_ahead = 4096;                    // frames that may be out without an acknowledgement
  std::uint32_t most_retransmits = 3;                   // of one frame
  std::chrono::milliseconds probe_after{50};            // first pause; each further one is twice as long,
  std::chrono::milliseconds probe_most{1000};           // up to this
  std::chrono::milliseconds silent_limit{5000};         // without a sign from the receiver
};

// Why a stream ended early; travels in step_or_offset of a nack with frame_flag::ended.
enum class stream_end : std::uint64_t {
  damaged = 1, // a frame was sent as often as it may be
  stale_epoch, // the stream belongs to an older membership
  silent,      // the receiver did not answer
  refused,     // too many streams, or one that the receiver has forgotten
  closed,      // one side gave it up
};
error error_of(stream_end why, std::uint64_t stream);

// Bytes of a frame as credit counts them.
inline std::uint64_t credited_bytes(const bulk_frame& frame) {
  return frame_header_bytes + frame.meta.size() + frame.payload.bytes.size();
}

class outgoing_stream {
public:
  outgoing_stream(std::uint64_t stream, std::uint64_t mepoch, const stream_rules& rules)
      : stream_(stream), mepoch_(mepoch), rules_(rules), credit_(rules.credit_bytes), pause_(rules.probe_after) {}

  std::uint64_t mepoch() const { return mepoch_; }
  // Whether the sender holds no more than one credit's worth with this frame; else its user waits.
  bool takes(std::uint64_t bytes) const { return held_ == 0 || held_ + bytes <= rules_.credit_bytes; }
  // Frames in their order; nothing may come after one with `last`.
  void add(bulk_frame frame, steady_time now);

  // What goes out next: a frame that was reported missing, else the next new one that the credit covers.
  struct departure {
    bulk_frame frame;
    unsigned attempt = 0; // how often it was sent before; 3 for more
  };
  std::optional<departure> next() const;
  void sent(std::uint64_t seq, steady_time now); // it went out
  bool idle() const { return frames_.empty(); }  // everything is acknowledged
  bool last_added() const { return last_added_; }
  bool ended() const { return idle() && last_added_; }

  void acknowledged(std::uint64_t next_expected, std::uint64_t credit, steady_time now);
  // `attempt`: of the copy that was damaged, 0 for a gap; `probe`: the number of the probe that is answered, or 0.
  void missing(std::uint64_t seq, unsigned attempt, std::uint64_t probe, steady_time now);
  void heard(steady_time now) { heard_ = now; }
  // When poke() should be called next; none while everything is acknowledged.
  std::optional<steady_time> due() const;
  // Whether a probe is to go out now, with sent_frames().
  bool poke(steady_time now);
  std::uint64_t sent_frames() const { return base_ + out_; }
  std::uint64_t probes() const { return probes_; } // number of the newest one

  void fail(stream_end why) { failed_ = failed_ ? failed_ : why; }
  std::optional<stream_end> failed() const { return failed_; }

private:
  struct entry {
    bulk_frame frame;
    std::uint64_t bytes = 0;
    std::uint32_t again = 0;  // times it was, or is to be, sent again
    bool wanted = false;      // reported missing, and not yet sent again
    std::uint64_t probes = 0; // probes before its newest copy
  };

  std::uint64_t stream_, mepoch_;
  stream_rules rules_;
  std::deque<entry> frames_;     // not acknowledged: those that are out, then those that wait
  std::uint64_t base_ = 0;       // number of the first of them
  std::size_t out_ = 0;          // how many of them are out
  std::uint64_t held_ = 0;       // bytes of frames_
  std::uint64_t sent_bytes_ = 0; // of the stream, from its start, without repetitions
  std::uint64_t credit_;
  bool last_added_ = false;
  std::uint64_t probes_ = 0;
  steady_time heard_{}, asked_{};
  std::chrono::milliseconds pause_;
  std::optional<stream_end> failed_;
};

class incoming_stream {
public:
  incoming_stream(std::uint64_t mepoch, const stream_rules& rules)
      : mepoch_(mepoch), rules_(rules), credit_(rules.credit_bytes) {}

  std::uint64_t mepoch() const { return mepoch_; }

  enum class verdict { kept, duplicate, out_of_bounds };
  struct outcome {
    verdict what = verdict::kept;
    std::vector<bulk_frame> deliver;    // in order
    std::vector<std::uint64_t> missing; // to be reported
  };
  outcome take(bulk_frame frame);
  // A frame whose header was right and whose body was not: whether to report it.
  bool damaged(std::uint64_t seq) const;
  // The sender has sent so many frames: which of them are missing.
  std::vector<std::uint64_t> probed(std::uint64_t sent_frames) const;

  // The reader is done with a frame. True: worth telling the sender.
  bool consumed(std::uint64_t bytes);
  std::uint64_t next_expected() const { return expected_; }
  std::uint64_t credit() const { return credit_; }
  void told() { told_ = credit_; } // the sender was told of credit()
  bool complete() const { return complete_; }

private:
  std::uint64_t mepoch_;
  stream_rules rules_;
  std::uint64_t expected_ = 0;
  std::map<std::uint64_t, bulk_frame> early_; // beyond a gap
  std::uint64_t held_ = 0;                    // bytes of early_ and of what was delivered and not consumed
  std::uint64_t seen_ = 0;                    // behind the newest frame that came; gaps before it were reported
  std::uint64_t credit_, told_ = 0;
  bool complete_ = false;
};

} // namespace troupe
