#include "cluster/bulk_protocol.hpp"
#include <algorithm>
#include <utility>

namespace troupe {

namespace {

constexpr std::chrono::milliseconds hello_every{200};
constexpr std::size_t remembered = 4096;     // streams that are over
constexpr std::size_t replies_max = 100'000; // frames reported missing and not yet sent: a bound, never reached by ours

std::string number(std::uint64_t n) {
  return std::to_string(n);
}

// Why a process that greets so is not one of ours; empty if it is.
std::string refusal_of(const bulk_identity& self, const hello_meta& other, std::uint64_t expected_incarnation) {
  if (other.cluster != self.cluster)
    return "wrong_cluster: this is cluster " + self.cluster + ", not " + other.cluster;
  if (other.protocol != bulk_protocol_version)
    return "version_mismatch: protocol " + number(bulk_protocol_version) + " here, " + number(other.protocol) +
           " there";
  if (other.build_id != self.build_id)
    return "version_mismatch: build " + self.build_id + " here, " + other.build_id + " there";
  if (expected_incarnation != 0 && other.incarnation != expected_incarnation)
    return "stale_incarnation: the view has incarnation " + number(expected_incarnation) + ", this is " +
           number(other.incarnation);
  return {};
}

error error_of_refusal(const std::string& refusal) {
  const std::size_t colon = refusal.find(": ");
  return colon == std::string::npos ? error{"refused", refusal}
                                    : error{refusal.substr(0, colon), refusal.substr(colon + 2)};
}

// Remembers a key in the order of coming; the oldest goes when there are too many.
template <class Map, class Value>
void remember(Map& map, std::deque<std::uint64_t>& order, std::uint64_t key, Value value) {
  if (map.insert_or_assign(key, std::move(value)).second)
    order.push_back(key);
  for (; order.size() > remembered; order.pop_front())
    map.erase(order.front());
}

} // namespace

bulk_counters& bulk_counters::operator+=(const bulk_counters& o) {
  frames_sent += o.frames_sent;
  payload_bytes_sent += o.payload_bytes_sent;
  retransmits += o.retransmits;
  probes += o.probes;
  frames_received += o.frames_received;
  payload_bytes_received += o.payload_bytes_received;
  bad_frames += o.bad_frames;
  duplicates += o.duplicates;
  out_of_bounds += o.out_of_bounds;
  stale_frames += o.stale_frames;
  nacks += o.nacks;
  failed_streams += o.failed_streams;
  strangers += o.strangers;
  return *this;
}

std::string head_and_meta(const wire_frame& frame) {
  frame_header h = frame.header;
  h.meta_bytes = static_cast<std::uint32_t>(frame.meta.size());
  h.payload_bytes = static_cast<std::uint32_t>(frame.payload.bytes.size());
  if (!carries_bulk(h.kind))
    h.body_crc = frame_body_crc(bytes_of(frame.meta), frame.payload.bytes);
  const auto head = encode_header(h);
  std::string text(reinterpret_cast<const char*>(head.data()), head.size());
  return text += frame.meta;
}

std::optional<arrived_frame> read_frame(byte_span first, payload_bytes payload) {
  const auto header = parse_header(first);
  if (!header)
    return std::nullopt;
  const byte_span meta = first.subspan(frame_header_bytes);
  arrived_frame frame;
  frame.header = *header;
  frame.whole = bool(check_body({*header, meta, payload.bytes}));
  if (frame.whole) {
    frame.meta.assign(reinterpret_cast<const char*>(meta.data()), meta.size());
    frame.payload = std::move(payload);
  }
  return frame;
}

// ---- sender

frame_header outgoing_peer::header_of(frame_kind kind, std::uint64_t stream) const {
  frame_header h;
  h.kind = kind;
  h.stream = stream;
  h.src = self_.rank;
  h.dst = rank_;
  h.mepoch = mepoch_;
  return h;
}

wire_frame outgoing_peer::hello() const {
  hello_meta meta{
      .cluster = self_.cluster, .incarnation = self_.incarnation, .build_id = self_.build_id, .refusal = {}};
  auto text = encode_meta(std::move(meta)); // a few hundred bytes
  return {header_of(frame_kind::hello, 0), text ? std::move(*text) : std::string(), {}};
}

result<bool> outgoing_peer::offer(const bulk_frame& frame, steady_time now) {
  if (closed_)
    return *closed_;
  if (const auto known = failed_.find(frame.stream); known != failed_.end())
    return error_of(known->second, frame.stream);
  if (frame.mepoch < mepoch_)
    return error_of(stream_end::stale_epoch, frame.stream);
  if (!open_)
    return false;
  const std::uint64_t bytes = credited_bytes(frame);
  if (bytes > rules_.credit_bytes)
    return error{"too_large", "stream " + number(frame.stream) + ": a frame of " + number(bytes) +
                                  " bytes; the receiver grants a stream " + number(rules_.credit_bytes)};
  auto known = streams_.find(frame.stream);
  if (known == streams_.end())
    known = streams_.try_emplace(frame.stream, frame.stream, frame.mepoch, rules_).first;
  outgoing_stream& s = known->second;
  if (frame.mepoch != s.mepoch() || s.last_added())
    return error{"bad_options", "stream " + number(frame.stream) + ": all its frames are of one membership, and none " +
                                    "comes behind the last"};
  if (!s.takes(bytes))
    return false;
  s.add(frame, now);
  return true;
}

result<bool> outgoing_peer::delivered(std::uint64_t stream) const {
  if (const auto known = failed_.find(stream); known != failed_.end())
    return error_of(known->second, stream);
  const auto known = streams_.find(stream);
  if (known == streams_.end() || known->second.idle())
    return true;
  return closed_ ? result<bool>(*closed_) : result<bool>(false);
}

void outgoing_peer::set_mepoch(std::uint64_t mepoch) {
  mepoch_ = mepoch;
  for (auto s = streams_.begin(); s != streams_.end();) {
    const auto [id, stale] = std::pair(s->first, s->second.mepoch() < mepoch);
    ++s;
    if (stale)
      fail(id, stream_end::stale_epoch, {}, false); // the receiver drops them by itself
  }
}

void outgoing_peer::abandon(std::uint64_t stream, steady_time now) {
  fail(stream, stream_end::closed, now, true);
}

void outgoing_peer::close(error why) {
  closed_ = std::move(why);
  streams_.clear();
  notices_.clear();
  probes_.clear();
}

void outgoing_peer::fail(std::uint64_t stream, stream_end why, steady_time now, bool tell) {
  const auto known = streams_.find(stream);
  if (known == streams_.end())
    return;
  if (tell)
    notices_.insert_or_assign(stream, notice{why, known->second.mepoch(), now, now + rules_.silent_limit});
  streams_.erase(known);
  remember(failed_, failed_order_, stream, why);
  ++counters_.failed_streams;
}

void outgoing_peer::fail_all(stream_end why, steady_time now) {
  while (!streams_.empty())
    fail(streams_.begin()->first, why, now, false);
}

void outgoing_peer::greeted(const arrived_frame& frame, steady_time now) {
  const auto meta = decode_meta<hello_meta>(bytes_of(frame.meta));
  if (!meta)
    return;
  if (frame.header.has(frame_flag::ended))
    return close(error_of_refusal(meta->refusal));
  if (const std::string wrong = refusal_of(self_, *meta, incarnation_); !wrong.empty())
    return close(error_of_refusal(wrong));
  if (frame.header.has(frame_flag::unknown)) { // it has nothing of what was sent to it
    if (open_)
      fail_all(stream_end::refused, now);
    open_ = false;
    next_hello_ = now;
    return;
  }
  if (open_)
    return;
  incarnation_ = meta->incarnation;
  rules_.credit_bytes = meta->credit_bytes;
  open_ = true;
}

void outgoing_peer::arrived(const arrived_frame& frame, steady_time now) {
  const frame_header& h = frame.header;
  if (!frame.whole || h.src != rank_ || h.dst != self_.rank) {
    ++(frame.whole ? counters_.strangers : counters_.bad_frames);
    return;
  }
  if (h.kind == frame_kind::hello)
    return greeted(frame, now);
  if (h.kind == frame_kind::nack && h.has(frame_flag::ended)) {
    if (notices_.erase(h.stream) == 0)
      fail(h.stream, static_cast<stream_end>(h.step_or_offset), now, false);
    return;
  }
  const auto known = streams_.find(h.stream);
  if (known == streams_.end())
    return;
  outgoing_stream& s = known->second;
  if (h.kind == frame_kind::ack || h.kind == frame_kind::credit)
    s.acknowledged(h.seq, h.step_or_offset, now);
  else if (h.kind == frame_kind::nack)
    s.missing(h.seq, h.attempt(), h.step_or_offset, now);
  if (s.failed())
    fail(h.stream, *s.failed(), now, true);
  else if (s.ended())
    streams_.erase(known);
}

void outgoing_peer::look_after_streams(steady_time now) {
  for (auto at = streams_.begin(); at != streams_.end();) {
    auto& [id, s] = *at;
    ++at;
    if (s.poke(now)) {
      frame_header h = header_of(frame_kind::probe, id);
      h.mepoch = s.mepoch();
      h.seq = s.sent_frames();
      h.step_or_offset = s.probes();
      probes_.push_back(h);
    } else if (s.failed()) {
      fail(id, *s.failed(), now, true);
    }
  }
}

std::optional<wire_frame> outgoing_peer::next(steady_time now) {
  if (closed_)
    return std::nullopt;
  if (!open_)
    return now >= next_hello_ ? std::optional(hello()) : std::nullopt;
  look_after_streams(now);
  for (auto n = notices_.begin(); n != notices_.end();) {
    if (now >= n->second.give_up) {
      n = notices_.erase(n);
      continue;
    }
    if (now >= n->second.next) {
      frame_header h = header_of(frame_kind::nack, n->first);
      h.mepoch = n->second.mepoch;
      h.flags = frame_flag::ended;
      h.step_or_offset = static_cast<std::uint64_t>(n->second.why);
      return wire_frame{h, {}, {}};
    }
    ++n;
  }
  if (!probes_.empty())
    return wire_frame{probes_.front(), {}, {}};
  // Streams in turn, so that a long one does not hold up the others.
  auto at = streams_.upper_bound(turn_);
  for (std::size_t n = 0; n < streams_.size(); ++n, ++at) {
    if (at == streams_.end())
      at = streams_.begin();
    auto departing = at->second.next();
    if (!departing)
      continue;
    const bulk_frame& f = departing->frame;
    frame_header h = header_of(f.kind, f.stream);
    h.mepoch = f.mepoch;
    h.seq = f.seq;
    h.flags = static_cast<std::uint8_t>((f.last ? frame_flag::last : 0) |
                                        (departing->attempt > 0 ? frame_flag::retransmit : 0) |
                                        (departing->attempt << frame_flag::attempt_shift));
    h.step_or_offset = f.step_or_offset;
    h.body_crc = f.body_crc;
    return wire_frame{h, std::move(departing->frame.meta), std::move(departing->frame.payload)};
  }
  return std::nullopt;
}

void outgoing_peer::sent(const wire_frame& frame, steady_time now) {
  const frame_header& h = frame.header;
  if (h.kind == frame_kind::hello) {
    next_hello_ = now + hello_every;
  } else if (h.kind == frame_kind::probe) {
    if (!probes_.empty())
      probes_.pop_front();
    ++counters_.probes;
  } else if (h.kind == frame_kind::nack) {
    if (const auto n = notices_.find(h.stream); n != notices_.end())
      n->second.next = now + hello_every;
  } else {
    turn_ = h.stream;
    ++counters_.frames_sent;
    counters_.payload_bytes_sent += frame.payload.bytes.size();
    counters_.retransmits += h.has(frame_flag::retransmit) ? 1 : 0;
    if (const auto s = streams_.find(h.stream); s != streams_.end())
      s->second.sent(h.seq, now);
  }
}

steady_time outgoing_peer::due(steady_time now) const {
  steady_time first = now + std::chrono::hours(1);
  if (closed_)
    return first;
  if (!open_)
    return next_hello_;
  for (const auto& [id, s] : streams_)
    if (const auto d = s.due())
      first = std::min(first, *d);
  for (const auto& [id, n] : notices_)
    first = std::min(first, n.next);
  return first;
}

// ---- receiver

frame_header incoming_peer::header_of(frame_kind kind, std::uint64_t stream, std::uint64_t mepoch) const {
  frame_header h;
  h.kind = kind;
  h.stream = stream;
  h.mepoch = mepoch;
  h.src = self_.rank;
  h.dst = rank_;
  return h;
}

std::optional<bulk_arrival> incoming_peer::take() {
  if (ready_.empty())
    return std::nullopt;
  bulk_arrival a = std::move(ready_.front());
  ready_.pop_front();
  if (a.failure)
    return a;
  if (const auto s = streams_.find(a.frame.stream); s != streams_.end() && s->second.consumed(credited_bytes(a.frame)))
    answers_.try_emplace(a.frame.stream, frame_kind::credit);
  return a;
}

void incoming_peer::set_mepoch(std::uint64_t mepoch) {
  mepoch_ = mepoch;
  std::erase_if(streams_, [mepoch](const auto& s) { return s.second.mepoch() < mepoch; });
  counters_.stale_frames += static_cast<std::uint64_t>(
      std::erase_if(ready_, [mepoch](const bulk_arrival& a) { return a.frame.mepoch < mepoch; }));
}

void incoming_peer::forget() {
  for (auto& [id, s] : streams_)
    ready_.push_back({{.mepoch = s.mepoch(), .stream = id, .meta = {}, .payload = {}},
                      error{"peer_gone", "stream " + number(id) + ": rank " + number(rank_) + " was started anew"}});
  streams_.clear();
  endings_.clear();
  endings_order_.clear();
  answers_.clear();
}

void incoming_peer::greet(const arrived_frame& frame) {
  const auto meta = decode_meta<hello_meta>(bytes_of(frame.meta));
  hello_meta mine{.cluster = self_.cluster,
                  .incarnation = self_.incarnation,
                  .build_id = self_.build_id,
                  .credit_bytes = rules_.credit_bytes,
                  .refusal = meta ? refusal_of(self_, *meta, incarnation_)
                                  : "version_mismatch: the greeting is of another form"};
  frame_header h = header_of(frame_kind::hello, 0, mepoch_);
  if (!mine.refusal.empty()) {
    h.flags = frame_flag::ended;
    ++counters_.strangers;
  } else {
    if (greeted_ && known_ != meta->incarnation)
      forget();
    greeted_ = true;
    known_ = meta->incarnation;
  }
  if (auto text = encode_meta(std::move(mine)))
    replies_.push_back({h, std::move(*text), {}});
}

void incoming_peer::arrived(arrived_frame frame) {
  const frame_header h = frame.header;
  if (h.src != rank_ || h.dst != self_.rank) {
    ++counters_.strangers;
    return;
  }
  if (!frame.whole)
    ++counters_.bad_frames;
  if (h.kind == frame_kind::hello)
    return frame.whole ? greet(frame) : void();
  if (!greeted_) {
    ++counters_.strangers;
    frame_header who = header_of(frame_kind::hello, 0, mepoch_);
    who.flags = frame_flag::unknown;
    if (auto text = encode_meta(hello_meta{
            .cluster = self_.cluster, .incarnation = self_.incarnation, .build_id = self_.build_id, .refusal = {}}))
      replies_.push_back({who, std::move(*text), {}});
    return;
  }
  if (const auto over = endings_.find(h.stream); over != endings_.end()) {
    counters_.duplicates += carries_bulk(h.kind) ? 1 : 0;
    if (over->second.why || (h.kind == frame_kind::nack && h.has(frame_flag::ended)))
      return refuse(h, over->second.why.value_or(stream_end::closed));
    frame_header done = header_of(frame_kind::ack, h.stream, h.mepoch);
    done.seq = over->second.next_expected;
    done.step_or_offset = over->second.credit;
    replies_.push_back({done, {}, {}});
    return;
  }
  if (h.mepoch < mepoch_) {
    ++counters_.stale_frames;
    return refuse(h, stream_end::stale_epoch);
  }
  if (h.kind == frame_kind::nack && h.has(frame_flag::ended)) {
    const auto why = static_cast<stream_end>(h.step_or_offset);
    end(h.stream, h.mepoch, why, true);
    return refuse(h, why); // so that the sender need not say it again
  }
  if (replies_.size() > replies_max)
    return;
  if (carries_bulk(h.kind))
    return bulk(std::move(frame));
  if (h.kind == frame_kind::probe && frame.whole) {
    if (!streams_.contains(h.stream) && streams_.size() >= most_streams_)
      return refuse(h, stream_end::refused);
    const auto s = streams_.try_emplace(h.stream, h.mepoch, rules_).first; // all of it so far may be lost
    for (const std::uint64_t seq : s->second.probed(h.seq))
      report(h, seq, 0);
    answer(h.stream);
  }
}

void incoming_peer::bulk(arrived_frame frame) {
  const frame_header h = frame.header;
  if (!streams_.contains(h.stream) && streams_.size() >= most_streams_)
    return refuse(h, stream_end::refused);
  const auto known = streams_.try_emplace(h.stream, h.mepoch, rules_).first;
  incoming_stream& s = known->second;
  if (!frame.whole) {
    if (s.damaged(h.seq))
      report(h, h.seq, h.attempt());
    return;
  }
  bulk_frame f{.kind = h.kind,
               .last = h.has(frame_flag::last),
               .mepoch = h.mepoch,
               .stream = h.stream,
               .step_or_offset = h.step_or_offset,
               .src = h.src,
               .dst = h.dst,
               .meta = std::move(frame.meta),
               .payload = std::move(frame.payload),
               .seq = h.seq,
               .body_crc = h.body_crc};
  auto o = s.take(std::move(f));
  counters_.duplicates += o.what == incoming_stream::verdict::duplicate ? 1 : 0;
  counters_.out_of_bounds += o.what == incoming_stream::verdict::out_of_bounds ? 1 : 0;
  for (bulk_frame& d : o.deliver) {
    ++counters_.frames_received;
    counters_.payload_bytes_received += d.payload.bytes.size();
    ready_.push_back({std::move(d), std::nullopt});
  }
  for (const std::uint64_t seq : o.missing)
    report(h, seq, 0);
  answer(h.stream);
}

void incoming_peer::end(std::uint64_t stream, std::uint64_t mepoch, stream_end why, bool tell_user) {
  const auto known = streams_.find(stream);
  const std::uint64_t next = known == streams_.end() ? 0 : known->second.next_expected();
  if (tell_user)
    ready_.push_back({{.mepoch = mepoch, .stream = stream, .meta = {}, .payload = {}}, error_of(why, stream)});
  ++counters_.failed_streams;
  finish(stream, {next, 0, why});
}

void incoming_peer::finish(std::uint64_t stream, ending how) {
  streams_.erase(stream);
  answers_.erase(stream);
  remember(endings_, endings_order_, stream, how);
}

void incoming_peer::refuse(const frame_header& of, stream_end why) {
  frame_header h = header_of(frame_kind::nack, of.stream, of.mepoch);
  h.flags = frame_flag::ended;
  h.seq = of.seq;
  h.step_or_offset = static_cast<std::uint64_t>(why);
  replies_.push_back({h, {}, {}});
}

// `by`: the frame that showed it.
void incoming_peer::report(const frame_header& by, std::uint64_t seq, unsigned attempt) {
  frame_header h = header_of(frame_kind::nack, by.stream, by.mepoch);
  h.seq = seq;
  h.flags = static_cast<std::uint8_t>(attempt << frame_flag::attempt_shift);
  h.step_or_offset = by.kind == frame_kind::probe ? by.step_or_offset : 0;
  replies_.push_back({h, {}, {}});
  ++counters_.nacks;
}

void incoming_peer::answer(std::uint64_t stream) {
  answers_.insert_or_assign(stream, frame_kind::ack);
}

std::optional<wire_frame> incoming_peer::next() {
  reply_next_ = !replies_.empty();
  if (reply_next_)
    return replies_.front();
  while (!answers_.empty()) {
    const auto [stream, kind] = *answers_.begin();
    const auto s = streams_.find(stream);
    if (s == streams_.end()) {
      answers_.erase(answers_.begin());
      continue;
    }
    frame_header h = header_of(kind, stream, s->second.mepoch());
    h.seq = s->second.next_expected();
    h.step_or_offset = s->second.credit();
    return wire_frame{h, {}, {}};
  }
  return std::nullopt;
}

void incoming_peer::sent(const wire_frame& frame) {
  const frame_header& h = frame.header;
  if (reply_next_) {
    replies_.pop_front();
    return;
  }
  answers_.erase(h.stream);
  const auto s = streams_.find(h.stream);
  if (s == streams_.end())
    return;
  s->second.told();
  // Over once it was acknowledged to the end: what remains is to say so again if it is asked.
  if (s->second.complete())
    finish(h.stream, {s->second.next_expected(), s->second.credit(), std::nullopt});
}

} // namespace troupe
