#include "actors/expert_dispatch.hpp"
#include "runtime/base/check.hpp"
#include "runtime/base/device_error.hpp"
#include <algorithm>
#include <cstring>

namespace troupe {

namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

constexpr auto look_every = 20ms; // at whether a rank is lost, while its answer is awaited

std::size_t index(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

} // namespace

expert_dispatch::expert_dispatch(expert_dispatch_setup setup, std::shared_ptr<placed_experts> experts,
                                 std::shared_ptr<peer_links> links)
    : setup_(std::move(setup)), experts_(std::move(experts)), links_(std::move(links)),
      most_rows_(setup_.rules.most_rows(setup_.frame_bytes)),
      most_entries_(setup_.rules.most_entries(setup_.frame_bytes)), outlets_(index(setup_.ranks)) {
  const std::size_t entries = index(setup_.max_rows) * index(setup_.rules.k), waves = index(setup_.waves);
  own_there_ = experts_->memory().dev().allocate(entries * sizeof(std::int32_t), "rows for the experts of this rank");
  expert_.reserve(entries);
  weight_.reserve(entries);
  x_.reserve(index(setup_.max_rows) * index(setup_.rules.hidden));
  own_.resize(waves);
  any_own_.resize(waves);
  for (auto& o : own_)
    o.reserve(entries);
  for (outlet& o : outlets_) {
    o.waves.resize(waves);
    for (auto& w : o.waves)
      w.reserve(entries);
    o.out.reserve(setup_.frames_out);
  }
  values_.resize(most_entries_ * index(setup_.rules.hidden));
  entries_.reserve(most_entries_);
  question_rows_.reserve(most_rows_);
}
expert_dispatch::~expert_dispatch() = default;

void expert_dispatch::lose(const std::string& why) {
  setup_.on_lost(why);
  throw device_error(why);
}

// Every rank that the version names must be there, as the process that it names.
void expert_dispatch::begin_step() {
  version_ = experts_->begin_step();
  for (std::int32_t r = 0; r < setup_.ranks; ++r) {
    outlet& o = outlets_[index(r)];
    if (r == setup_.rank || !version_->routes.names(r)) {
      o.out.clear();
      continue;
    }
    o.link = links_->link_to(r);
    if (!o.link || o.link->incarnation() != version_->incarnations[index(r)]) {
      end_step();
      lose("rank " + std::to_string(r) + " of the expert group is not there");
    }
    if (std::exchange(o.link_number, o.link->number()) != o.link->number())
      o.out.clear(); // what was asked over another link is not answered over this one
  }
}

void expert_dispatch::end_step() noexcept {
  for (outlet& o : outlets_) {
    o.link.reset();
    for (flight& f : o.out)
      f.void_ = true;
  }
  version_.reset();
  experts_->end_step();
}

void expert_dispatch::run(stream& s, int layer, experts_args args) {
  TROUPE_CHECK(version_ != nullptr && args.rows <= setup_.max_rows, "a layer of a step that has begun");
  args_ = args;
  layer_ = layer;
  stage(s, args);
  route(layer, args);
  const std::size_t waves = own_.size();
  if (waves == 1) {
    take_all(s, layer, args);
    return compute_own(s, layer, args, 0);
  }
  for (std::size_t w = 0; w < waves; ++w) {
    send_waves(layer, w + 2);
    compute_own(s, layer, args, w);
    for (std::int32_t r = 0; r < setup_.ranks; ++r)
      while (outlets_[index(r)].link && !outlets_[index(r)].out.empty() && take(s, args, outlets_[index(r)], r, 0ns))
        ;
  }
}

void expert_dispatch::finish(stream& s) {
  if (own_.size() > 1)
    take_all(s, layer_, args_);
  layer_ = -1;
}

void expert_dispatch::stage(stream& s, const experts_args& args) {
  const std::size_t entries = index(args.rows) * index(args.k), values = index(args.rows) * index(setup_.rules.hidden);
  expert_.resize(entries);
  weight_.resize(entries);
  x_.resize(values);
  s.to_host(expert_.data(), args.expert.as<const std::byte>(), entries * sizeof(std::int32_t));
  s.to_host(weight_.data(), args.weight.as<const std::byte>(), entries * sizeof(float));
  s.to_host(x_.data(), args.x.as<const std::byte>(), values * sizeof(float));
  s.synchronise();
}

// Every pair to its slot: in this rank's own part of a wave, or to another rank.
void expert_dispatch::route(int layer, const experts_args& args) {
  const std::int32_t each = version_->routes.placement().slots_per_rank;
  const auto waves = static_cast<std::int32_t>(own_.size());
  for (std::size_t w = 0; w < own_.size(); ++w) {
    own_[w].assign(expert_.size(), -1);
    any_own_[w] = false;
  }
  for (outlet& o : outlets_) {
    for (auto& w : o.waves)
      w.clear();
    o.wave = o.next = 0;
  }
  for (std::int32_t row = 0, at = 0; row < args.rows; ++row)
    for (std::int32_t j = 0; j < args.k; ++j, ++at) {
      const std::int32_t expert = expert_[index(at)];
      if (expert < 0)
        continue;
      const std::int32_t slot = version_->routes.slot_of(layer, expert, setup_.rank, row);
      if (slot < 0)
        lose("expert " + std::to_string(expert) + " of layer " + std::to_string(layer) + " has no slot");
      const std::int32_t rank = slot / each, local = slot % each;
      const auto wave = index(local * waves / each);
      if (rank == setup_.rank) {
        own_[wave][index(at)] = local;
        any_own_[wave] = true;
      } else {
        outlets_[index(rank)].waves[wave].push_back({at, {0, local, expert, weight_[index(at)]}});
      }
    }
}

// What there is of the first `waves` waves, as far as answers leave room for it.
void expert_dispatch::send_waves(int layer, std::size_t waves) {
  for (std::int32_t r = 0; r < setup_.ranks; ++r) {
    outlet& o = outlets_[index(r)];
    for (;;) {
      while (o.wave < o.waves.size() && o.next == o.waves[o.wave].size())
        ++o.wave, o.next = 0;
      if (o.wave >= std::min(waves, o.waves.size()) || !send_one(layer, o, r))
        break;
    }
  }
}

// The next question to a rank. False: as many as may be wait for their answers.
bool expert_dispatch::send_one(int layer, outlet& o, std::int32_t to) {
  if (o.out.size() >= setup_.frames_out)
    return false;
  const std::vector<routed>& work = o.waves[o.wave];
  const std::size_t hidden = index(setup_.rules.hidden);
  entries_.clear();
  question_rows_.clear();
  std::size_t i = o.next;
  bool bf16 = true;
  for (; i < work.size() && entries_.size() < most_entries_; ++i) {
    const std::int32_t row = work[i].at / setup_.rules.k;
    if (question_rows_.empty() || question_rows_.back() != row) {
      if (question_rows_.size() == most_rows_)
        break;
      question_rows_.push_back(row);
      bf16 = bf16 && fits_bf16(std::span(x_).subspan(index(row) * hidden, hidden));
    }
    entries_.push_back(work[i].entry);
    entries_.back().row = static_cast<std::uint32_t>(question_rows_.size() - 1);
  }
  const rows_head head{static_cast<std::uint32_t>(layer),
                       static_cast<std::uint32_t>(question_rows_.size()),
                       static_cast<std::uint32_t>(entries_.size()),
                       bf16 ? rows_flag::bf16 : 0,
                       setup_.link_delay.count() > 0 ? steady_ns() : 0,
                       0};
  frame_writer& questions = *o.link->at(question_kind::rows).questions;
  const auto room = questions.reserve(question_bytes(head.rows, head.entries, hidden, head.flags), setup_.limit);
  if (!room) {
    o.link->give_up();
    lose("rank " + std::to_string(to) + " of the expert group takes no rows: " + room.failure().message);
  }
  std::byte* to_bytes = room->data();
  const auto put = [&](const void* from, std::size_t bytes) {
    std::memcpy(to_bytes, from, bytes);
    to_bytes += bytes;
  };
  put(&head, sizeof head);
  put(entries_.data(), entries_.size() * sizeof(rows_entry));
  for (const std::int32_t row : question_rows_) {
    const auto x = std::span<const float>(x_).subspan(index(row) * hidden, hidden);
    if (bf16) {
      to_bf16(x, to_bytes);
      to_bytes += 2 * hidden;
    } else {
      put(x.data(), 4 * hidden);
    }
  }
  const std::uint64_t number = next_number_++;
  if (const status sent = questions.send(frame_kind::a2a_dispatch, number); !sent) {
    o.link->give_up();
    lose("rank " + std::to_string(to) + " of the expert group takes no rows: " + sent.failure().message);
  }
  o.out.push_back({number, o.wave, o.next, i - o.next, false});
  o.next = i;
  return true;
}

void expert_dispatch::compute_own(stream& s, int layer, const experts_args& args, std::size_t wave) {
  if (!any_own_[wave])
    return;
  s.to_device(own_there_.as<std::byte>(), own_[wave].data(), own_[wave].size() * sizeof(std::int32_t));
  experts_args own = args;
  own.expert = own_there_.as<const std::int32_t>();
  experts_->memory().run(s, layer, own);
}

bool expert_dispatch::take(stream& s, const experts_args& args, outlet& o, std::int32_t from,
                           std::chrono::nanoseconds limit) {
  const auto broken = [&](const std::string& why) {
    o.link->give_up();
    lose("rank " + std::to_string(from) + " of the expert group is lost: " + why);
  };
  if (!o.link->up())
    broken("its link has ended");
  frame_reader& answers = *o.link->at(question_kind::rows).answers;
  const auto frame = answers.front(limit);
  if (!frame) {
    if (frame.failure().code != "timed_out")
      broken(frame.failure().message);
    return false;
  }
  const flight f = o.out.front();
  if (frame->header.seq < f.number) { // of a step that failed
    answers.pop();
    return true;
  }
  const auto answer = parse_rows_answer(frame->payload, index(setup_.rules.hidden));
  if (!answer || frame->header.seq != f.number)
    broken(answer ? "it answers another question" : answer.failure().message);
  if (setup_.link_delay.count() > 0 && !f.void_) {
    if (limit == 0ns && steady_ns() < answer->head.sent_ns + static_cast<std::uint64_t>(setup_.link_delay.count()))
      return false;
    wait_for_link(answer->head.sent_ns, setup_.link_delay);
  }
  if (!f.void_) {
    if ((answer->head.flags & rows_flag::refused) != 0)
      lose("rank " + std::to_string(from) + " of the expert group refuses rows: " +
           std::string(reinterpret_cast<const char*>(answer->values.data()), answer->values.size()));
    if (answer->head.entries != f.count)
      broken("its answer has another size");
    const std::size_t hidden = index(setup_.rules.hidden);
    const float* values = values_.data();
    if ((answer->head.flags & rows_flag::bf16) != 0)
      from_bf16(answer->values.data(), std::span(values_).first(f.count * hidden));
    else
      values = reinterpret_cast<const float*>(answer->values.data());
    const std::vector<routed>& work = o.waves[f.wave];
    for (std::size_t i = 0; i < f.count; ++i)
      s.to_device((args.y + static_cast<std::int64_t>(index(work[f.first + i].at) * hidden)).as<std::byte>(),
                  values + i * hidden, hidden * sizeof(float));
  }
  o.out.erase(o.out.begin());
  answers.pop();
  return true;
}

// The rest. Whoever answers makes room for what was not sent yet.
void expert_dispatch::take_all(stream& s, int layer, const experts_args& args) {
  const auto end = clock::now() + setup_.limit;
  for (bool left = true; left;) {
    send_waves(layer, own_.size());
    left = false;
    for (std::int32_t r = 0; r < setup_.ranks; ++r) {
      outlet& o = outlets_[index(r)];
      if (o.out.empty())
        continue;
      left = true;
      if (take(s, args, o, r, look_every))
        break;
      if (clock::now() >= end) {
        o.link->give_up();
        lose("rank " + std::to_string(r) + " of the expert group did not answer within " +
             std::to_string(setup_.limit.count()) + " ms");
      }
    }
  }
}

} // namespace troupe
