#include "actors/expert_part.hpp"
#include <algorithm>

namespace troupe {

namespace {

constexpr std::size_t frame_bytes = std::size_t{256} << 10;

// As many questions as a layer has waves, so that none of them waits for another's answer.
std::size_t frames_out(const expert_group_place& place) {
  return static_cast<std::size_t>(std::max(place.waves, 2));
}

} // namespace

expert_part::expert_part(const expert_group_place& place, std::shared_ptr<placed_experts> experts,
                         const expert_rules& rules)
    : place_(place), experts_(std::move(experts)), rules_(rules) {
  peer_links_setup s;
  s.cluster = place.cluster;
  s.node = place.node;
  s.tcp_address = place.tcp_address;
  s.bulk = place.bulk;
  s.group = "ep" + std::to_string(place.first);
  s.rank = place.rank;
  s.incarnation = place.incarnation;
  s.frame_bytes = frame_bytes;
  s.frames_out = frames_out(place);
  s.serve = [experts = experts_, rules, delay = place.link_delay](std::int32_t, question_kind kind) {
    return kind == question_kind::rows ? make_row_server(experts, rules, frame_bytes, delay)
                                       : make_piece_server(experts);
  };
  s.on_change = [this] { look(); };
  links_ = std::make_shared<peer_links>(std::move(s));
}

expert_part::~expert_part() {
  stop();
}

std::unique_ptr<expert_backend> expert_part::make_backend(std::int32_t max_rows) {
  expert_dispatch_setup s;
  s.rules = rules_;
  s.rank = place_.rank;
  s.ranks = place_.ranks;
  s.max_rows = max_rows;
  s.waves = place_.waves;
  s.frame_bytes = frame_bytes;
  s.frames_out = frames_out(place_);
  s.link_delay = place_.link_delay;
  s.limit = place_.answer_limit;
  s.on_lost = [this](const std::string& why) { lost(why); };
  return std::make_unique<expert_dispatch>(std::move(s), experts_, links_);
}

void expert_part::start(std::function<void(const std::string& why)> on_lost, std::function<void()> on_back) {
  const std::lock_guard lock(guard_);
  on_lost_ = std::move(on_lost);
  on_back_ = std::move(on_back);
  become_unable("its expert group is not connected yet");
}

void expert_part::stop() {
  {
    const std::lock_guard lock(guard_);
    on_lost_ = nullptr;
    on_back_ = nullptr;
  }
  links_->close();
  experts_->on_quiesced = nullptr;
}

void expert_part::set_peers(const std::vector<group_peer>& peers) {
  links_->set_peers(peers);
  look();
}

std::string expert_part::missing() const {
  const shared_version v = experts_->newest();
  if (!v->routes.complete())
    return "some experts have no slot";
  for (std::int32_t r = 0; r < place_.ranks; ++r) {
    if (!v->routes.names(r))
      continue;
    const std::uint64_t named = v->incarnations[static_cast<std::size_t>(r)];
    const auto link = r == place_.rank ? nullptr : links_->link_to(r);
    if (named == 0 || (r == place_.rank ? named != place_.incarnation : !link || link->incarnation() != named))
      return "rank " + std::to_string(r) + " of its expert group is not there";
  }
  return {};
}

void expert_part::become_unable(const std::string& why) {
  if (!std::exchange(able_, false))
    return;
  told_ = false;
  if (on_lost_)
    on_lost_(why);
}

void expert_part::look_again() {
  const std::string why = missing();
  if (!why.empty())
    become_unable(why);
  else if (told_ && on_back_ && !std::exchange(able_, true))
    on_back_();
}

void expert_part::look() {
  const std::lock_guard lock(guard_);
  look_again();
}

void expert_part::lost(const std::string& why) {
  const std::lock_guard lock(guard_);
  become_unable(why);
}

bool expert_part::able(bool told) {
  const std::lock_guard lock(guard_);
  const bool able = able_;
  if (told) {
    told_ = told_ || !able;
    look_again();
  }
  return able;
}

} // namespace troupe
