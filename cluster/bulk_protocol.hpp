// What two processes say to one another over a link that may lose, repeat, reorder and damage frames: greeting,
// streams, and their ends (cluster.md §3.10). Two state machines, one for each side of one direction, without sockets,
// threads or clocks; bulk_link puts them on ZeroMQ.
//
// The sender greets with HELLO until the receiver answers with its own: both name their cluster, protocol, build and
// incarnation and either refuses the other; the receiver's says how much credit a stream has. A receiver that gets
// anything else from a sender that it does not know asks it to introduce itself: then one of them was restarted, and
// what was on the way is lost and said to be.
#pragma once
#include "cluster/bulk_channel.hpp"
#include "cluster/bulk_stream.hpp"
#include "cluster/frame.hpp"
#include "runtime/base/result.hpp"
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

namespace troupe {

inline constexpr std::uint32_t bulk_protocol_version = 1;

// A process as others know it.
struct bulk_identity {
  std::string cluster;
  std::uint32_t rank = 0;
  std::uint64_t incarnation = 0;
  std::string build_id;
};

// Text and numbers of a HELLO, as meta.
struct hello_meta {
  std::string cluster;
  std::uint64_t incarnation = 0;
  std::uint32_t protocol = bulk_protocol_version;
  std::string build_id;
  std::uint64_t credit_bytes = 0; // of each stream; the receiver's
  std::string refusal;            // with frame_flag::ended: "code: text"

  template <class Archive> void serialize(Archive& ar) {
    ar(at_most<256>(cluster), incarnation, protocol, at_most<256>(build_id), credit_bytes, at_most<1024>(refusal));
  }
};

// A frame to be put on the wire; lengths and check sums of its header are for whoever does so, but for body_crc of bulk
// frames, which is there.
struct wire_frame {
  frame_header header;
  std::string meta;
  payload_bytes payload;
};
// One that came: a header that was right, and whether its body was.
struct arrived_frame {
  frame_header header;
  bool whole = false;
  std::string meta;
  payload_bytes payload;
};

// On the wire a frame is two parts: header with meta, and payload, which nobody copies.
std::string head_and_meta(const wire_frame& frame);
// Nothing if the header is damaged: then nothing of the frame can be believed.
std::optional<arrived_frame> read_frame(byte_span head_and_meta, payload_bytes payload);

struct bulk_counters {
  std::uint64_t frames_sent = 0, payload_bytes_sent = 0, retransmits = 0, probes = 0;
  std::uint64_t frames_received = 0, payload_bytes_received = 0;
  std::uint64_t bad_frames = 0;    // header or body
  std::uint64_t duplicates = 0;    // dropped
  std::uint64_t out_of_bounds = 0; // dropped: beyond the credit
  std::uint64_t stale_frames = 0;  // dropped: of an older membership
  std::uint64_t nacks = 0;         // sent
  std::uint64_t failed_streams = 0;
  std::uint64_t strangers = 0; // frames of peers that are not in the view, or said so wrongly

  bulk_counters& operator+=(const bulk_counters& other);
};

class outgoing_peer {
public:
  outgoing_peer(bulk_identity self, std::uint32_t rank, std::uint64_t incarnation, const stream_rules& rules)
      : self_(std::move(self)), rank_(rank), incarnation_(incarnation), rules_(rules) {}

  // ---- for its user
  // True: taken. False: no credit, or the peer has not answered yet; later. Failures: see bulk_sender.
  result<bool> offer(const bulk_frame& frame, steady_time now);
  // True: everything of the stream has been acknowledged.
  result<bool> delivered(std::uint64_t stream) const;
  void abandon(std::uint64_t stream, steady_time now);
  void set_mepoch(std::uint64_t mepoch);
  // No more of this peer: every stream fails so.
  void close(error why);

  // ---- for the link
  void arrived(const arrived_frame& frame, steady_time now);
  // The next frame to send, if any; then sent(), or, if it could not be sent, nothing.
  std::optional<wire_frame> next(steady_time now);
  void sent(const wire_frame& frame, steady_time now);
  steady_time due(steady_time now) const; // when to call next() again though nothing happened
  const bulk_counters& counters() const { return counters_; }

private:
  struct notice { // of a failed stream, until the receiver knows
    stream_end why;
    std::uint64_t mepoch;
    steady_time next, give_up;
  };
  void greeted(const arrived_frame& frame, steady_time now);
  void fail(std::uint64_t stream, stream_end why, steady_time now, bool tell);
  void fail_all(stream_end why, steady_time now);
  void look_after_streams(steady_time now);
  frame_header header_of(frame_kind kind, std::uint64_t stream) const;
  wire_frame hello() const;

  bulk_identity self_;
  std::uint32_t rank_;
  std::uint64_t incarnation_; // that the view expects; 0 = any, then the first one that answers
  stream_rules rules_;
  bool open_ = false;
  std::optional<error> closed_;
  steady_time next_hello_{};
  std::uint64_t mepoch_ = 0;
  std::map<std::uint64_t, outgoing_stream> streams_;
  std::map<std::uint64_t, stream_end> failed_; // newest ones
  std::deque<std::uint64_t> failed_order_;
  std::map<std::uint64_t, notice> notices_;
  std::deque<frame_header> probes_;
  std::uint64_t turn_ = 0; // stream that was served last
  bulk_counters counters_;
};

class incoming_peer {
public:
  incoming_peer(bulk_identity self, std::uint32_t rank, std::uint64_t incarnation, const stream_rules& rules,
                std::size_t most_streams)
      : self_(std::move(self)), rank_(rank), incarnation_(incarnation), rules_(rules), most_streams_(most_streams) {}

  // ---- for its user
  std::optional<bulk_arrival> take();
  void set_mepoch(std::uint64_t mepoch);
  bool waiting() const { return !ready_.empty(); }
  bool replying() const { return !replies_.empty() || !answers_.empty(); }

  // ---- for the link
  void arrived(arrived_frame frame);
  std::optional<wire_frame> next();
  void sent(const wire_frame& frame);
  const bulk_counters& counters() const { return counters_; }

private:
  struct ending { // of a stream that is over
    std::uint64_t next_expected, credit;
    std::optional<stream_end> why;
  };
  void greet(const arrived_frame& frame);
  void forget();
  void bulk(arrived_frame frame);
  void end(std::uint64_t stream, std::uint64_t mepoch, stream_end why, bool tell_user);
  void finish(std::uint64_t stream, ending how);
  void refuse(const frame_header& of, stream_end why);
  void report(const frame_header& by, std::uint64_t seq, unsigned attempt);
  void answer(std::uint64_t stream); // with ack and credit
  frame_header header_of(frame_kind kind, std::uint64_t stream, std::uint64_t mepoch) const;

  bulk_identity self_;
  std::uint32_t rank_;
  std::uint64_t incarnation_; // that the view expects; 0 = any
  stream_rules rules_;
  std::size_t most_streams_;
  bool greeted_ = false;
  std::uint64_t known_ = 0; // incarnation that greeted
  std::uint64_t mepoch_ = 0;
  std::map<std::uint64_t, incoming_stream> streams_;
  std::map<std::uint64_t, ending> endings_; // newest ones
  std::deque<std::uint64_t> endings_order_;
  std::deque<bulk_arrival> ready_;
  std::deque<wire_frame> replies_;
  std::map<std::uint64_t, frame_kind> answers_; // streams whose ack or credit is to be sent
  bool reply_next_ = false;                     // whether next() gave out a reply or an answer
  bulk_counters counters_;
};

} // namespace troupe
