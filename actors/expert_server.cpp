#include "actors/expert_server.hpp"
#include <algorithm>
#include <cstring>
#include <thread>

namespace troupe {

namespace {

using namespace std::chrono_literals;

constexpr auto answer_limit = 5s; // whoever asked has room for its answers

template <class T> std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

class row_server final : public question_server {
public:
  row_server(std::shared_ptr<placed_experts> experts, const expert_rules& rules, std::size_t frame_bytes,
             std::chrono::nanoseconds delay)
      : experts_(std::move(experts)), rules_(rules), delay_(delay), rows_(rules.most_rows(frame_bytes)),
        most_entries_(rules.most_entries(frame_bytes)), stream_(experts_->memory().dev().make_stream()) {
    device& dev = experts_->memory().dev();
    const std::size_t hidden = width(), choices = static_cast<std::size_t>(rules_.k);
    x_there_ = dev.allocate(rows_ * hidden * 4, "rows of other ranks");
    slot_there_ = dev.allocate(rows_ * choices * 4, "rows of other ranks");
    weight_there_ = dev.allocate(rows_ * choices * 4, "rows of other ranks");
    y_there_ = dev.allocate(rows_ * choices * hidden * 4, "contributions to other ranks");
    entries_.reserve(most_entries_);
    place_.reserve(most_entries_);
    used_.resize(rows_);
    slot_.resize(rows_ * choices);
    weight_.resize(rows_ * choices);
    values_.resize(std::max(rows_, most_entries_) * hidden);
  }

  status serve(const frame_view& frame, frame_writer& answers) override {
    const auto q = parse_rows_question(frame.payload, width());
    if (!q)
      return q.failure();
    wait_for_link(q->head.sent_ns, delay_);
    if (q->head.rows > rows_ || q->head.entries > most_entries_)
      return refuse(*q, frame, answers, "more rows than agreed");
    entries_.resize(q->head.entries);
    std::memcpy(entries_.data(), q->entries.data(), q->entries.size());
    const auto layer = static_cast<std::int32_t>(q->head.layer);
    if (const status there = experts_->take(layer, entries_); !there)
      return refuse(*q, frame, answers, there.failure().message);
    std::string failure;
    try {
      if (lay_out(q->head.rows))
        compute(layer, *q);
      else
        failure = "rows without order";
    } catch (const std::exception& e) {
      failure = *e.what() != '\0' ? e.what() : "unknown device error";
    }
    experts_->give_back(layer, entries_);
    return failure.empty() ? answer(*q, frame, answers) : refuse(*q, frame, answers, failure);
  }

private:
  std::size_t width() const { return static_cast<std::size_t>(rules_.hidden); }

  // Entries into [rows, k]: the j-th of a row to its j-th place. False: a row has more than k, or does not exist.
  bool lay_out(std::uint32_t rows) {
    const auto k = static_cast<std::uint32_t>(rules_.k);
    std::fill_n(used_.begin(), rows, 0u);
    std::fill_n(slot_.begin(), std::size_t{rows} * k, -1);
    place_.clear();
    for (const rows_entry& e : entries_) {
      if (e.row >= rows || used_[e.row] == k)
        return false;
      const std::size_t at = std::size_t{e.row} * k + used_[e.row]++;
      slot_[at] = e.slot;
      weight_[at] = e.weight;
      place_.push_back(at);
    }
    return true;
  }

  void compute(std::int32_t layer, const rows_question& q) {
    const std::size_t rows = q.head.rows, all = rows * static_cast<std::size_t>(rules_.k);
    const void* x = q.values.data();
    if ((q.head.flags & rows_flag::bf16) != 0) {
      from_bf16(q.values.data(), std::span(values_).first(rows * width()));
      x = values_.data();
    }
    stream_->to_device(x_there_.as<std::byte>(), x, rows * width() * 4);
    stream_->to_device(slot_there_.as<std::byte>(), slot_.data(), all * 4);
    stream_->to_device(weight_there_.as<std::byte>(), weight_.data(), all * 4);
    experts_args a;
    a.x = x_there_.as<const float>();
    a.expert = slot_there_.as<const std::int32_t>();
    a.weight = weight_there_.as<const float>();
    a.rows = static_cast<std::int32_t>(rows);
    a.k = rules_.k;
    a.limit = rules_.limit;
    a.round_inner = rules_.round_inner;
    a.y = y_there_.as<float>();
    experts_->memory().run(*stream_, layer, a);
    for (std::size_t i = 0; i < place_.size(); ++i)
      stream_->to_host(values_.data() + i * width(),
                       (y_there_.as<float>() + static_cast<std::int64_t>(place_[i] * width())).as<const std::byte>(),
                       width() * 4);
    stream_->synchronise();
  }

  status answer(const rows_question& q, const frame_view& frame, frame_writer& answers) {
    const std::uint32_t flags = rules_.contribution_flags();
    const std::size_t count = entries_.size() * width();
    const auto room = answers.reserve(answer_bytes(entries_.size(), width(), flags), answer_limit);
    if (!room)
      return room.failure();
    std::byte* values = room->data() + sizeof(rows_head);
    if (rules_.bf16)
      to_bf16(std::span(values_).first(count), values);
    else
      std::memcpy(values, values_.data(), count * 4);
    return send(q, flags, *room, frame, answers);
  }
  status refuse(const rows_question& q, const frame_view& frame, frame_writer& answers, const std::string& why) {
    const std::string text = why.substr(0, 500);
    const auto room = answers.reserve(sizeof(rows_head) + text.size(), answer_limit);
    if (!room)
      return room.failure();
    std::memcpy(room->data() + sizeof(rows_head), text.data(), text.size());
    return send(q, rows_flag::refused, *room, frame, answers);
  }
  static status send(const rows_question& q, std::uint32_t flags, std::span<std::byte> room, const frame_view& frame,
                     frame_writer& answers) {
    const rows_head head{q.head.layer, q.head.rows, q.head.entries, flags, steady_ns(), 0};
    std::memcpy(room.data(), &head, sizeof head);
    return answers.send(frame_kind::a2a_combine, frame.header.seq);
  }

  std::shared_ptr<placed_experts> experts_;
  expert_rules rules_;
  std::chrono::nanoseconds delay_;
  std::size_t rows_, most_entries_;
  std::unique_ptr<stream> stream_;
  buffer x_there_, slot_there_, weight_there_, y_there_;
  // Kept for their memory.
  std::vector<rows_entry> entries_;
  std::vector<std::size_t> place_;  // [entries] in [rows, k]
  std::vector<std::uint32_t> used_; // [rows] entries so far
  std::vector<std::int32_t> slot_;  // [rows, k]
  std::vector<float> weight_;       // [rows, k]
  std::vector<float> values_;       // rows, then contributions
};

class piece_server final : public question_server {
public:
  explicit piece_server(std::shared_ptr<placed_experts> experts) : experts_(std::move(experts)) {}

  status serve(const frame_view& frame, frame_writer& answers) override {
    piece_question q;
    if (frame.payload.size() != sizeof q)
      return error{"bad_rows", "a question for a piece of an expert has another size"};
    std::memcpy(&q, frame.payload.data(), sizeof q);
    const bool there = experts_->holds(q.layer, q.slot, q.expert);
    const std::size_t whole = there ? experts_->memory().expert_bytes(q.layer) : 0;
    const std::size_t bytes =
        std::min({std::size_t{q.bytes}, answers.largest(), whole - std::min<std::size_t>(whole, q.offset)});
    const auto room = answers.reserve(bytes, answer_limit);
    if (!room)
      return room.failure();
    if (bytes > 0)
      experts_->memory().read(q.layer, q.expert, q.offset, *room);
    return answers.send(frame_kind::expert_chunk, frame.header.seq);
  }

private:
  std::shared_ptr<placed_experts> experts_;
};

} // namespace

std::size_t expert_rules::most_rows(std::size_t frame_bytes) const {
  const std::size_t hidden_bytes = static_cast<std::size_t>(hidden) * 4;
  return std::max<std::size_t>(1, (frame_bytes - sizeof(rows_head)) /
                                      (hidden_bytes + static_cast<std::size_t>(k) * sizeof(rows_entry)));
}

std::size_t expert_rules::most_entries(std::size_t frame_bytes) const {
  return std::max<std::size_t>(1, (frame_bytes - sizeof(rows_head)) /
                                      (static_cast<std::size_t>(hidden) * value_bytes(contribution_flags())));
}

std::unique_ptr<question_server> make_row_server(std::shared_ptr<placed_experts> experts, const expert_rules& rules,
                                                 std::size_t frame_bytes, std::chrono::nanoseconds link_delay) {
  return std::make_unique<row_server>(std::move(experts), rules, frame_bytes, link_delay);
}

std::unique_ptr<question_server> make_piece_server(std::shared_ptr<placed_experts> experts) {
  return std::make_unique<piece_server>(std::move(experts));
}

std::uint64_t steady_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

void wait_for_link(std::uint64_t sent_ns, std::chrono::nanoseconds delay) {
  if (delay.count() <= 0)
    return;
  const auto until = std::chrono::steady_clock::time_point(std::chrono::nanoseconds(sent_ns)) + delay;
  std::this_thread::sleep_until(until);
}

} // namespace troupe
