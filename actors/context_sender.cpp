#include "actors/context_sender.hpp"
#include "runtime/base/device_error.hpp"
#include <utility>

namespace troupe {

context_sender::context_sender(std::shared_ptr<step_engine> own, std::vector<std::shared_ptr<step_carrier>> carriers,
                               std::chrono::milliseconds limit, std::function<void(const std::string&)> on_lost)
    : own_(std::move(own)), carriers_(std::move(carriers)), limit_(limit), on_lost_(std::move(on_lost)) {}

void context_sender::give_up(const error& why) {
  const std::string text = "the steps of context-parallel ranks: " + why.message;
  on_lost_(text);
  throw device_error(text);
}

void context_sender::wait_for_oldest() {
  for (const auto& carrier : carriers_)
    if (const auto all = carrier->wait(numbers_[answered_ % steps_out_max], limit_); !all)
      give_up(all.failure());
  ++answered_;
}

void context_sender::post(byte_span piece, bool last) {
  if (posted_ - answered_ == steps_out_max)
    wait_for_oldest();
  const std::uint64_t number = plan_piece_number(posted_, last);
  for (const auto& carrier : carriers_)
    if (const auto sent = carrier->post(number, piece, limit_); !sent)
      give_up(sent.failure());
  numbers_[posted_++ % steps_out_max] = number;
}

void context_sender::launch(const step_plan& plan) {
  byte_span left = writer_.write(plan);
  while (left.size() > plan_piece_bytes) {
    post(left.first(plan_piece_bytes), false);
    left = left.subspan(plan_piece_bytes);
  }
  post(left, true);
  own_->launch(plan);
}

} // namespace troupe
