// A bad link between ZeroMQ sockets: stands in for a ROUTER, passes every message on to the real one and back, and does
// to both directions what frame_faults says. Delays reorder. One thread.
#pragma once
#include "tests/support/frame_faults.hpp"
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

namespace troupe::test {

class frame_relay {
public:
  frame_relay(const std::string& target, const fault_rates& rates, std::uint64_t seed)
      : target_(target), there_(rates, 2 * seed + 1), back_(rates, 2 * seed + 2),
        front_(context_, zmq::socket_type::router) {
    front_.set(zmq::sockopt::linger, 0);
    front_.set(zmq::sockopt::router_handover, true);
    front_.bind("tcp://127.0.0.1:*");
    endpoint_ = front_.get(zmq::sockopt::last_endpoint);
    thread_ = std::thread([this] { run(); });
  }
  ~frame_relay() {
    stop_ = true;
    thread_.join();
  }
  frame_relay(const frame_relay&) = delete;
  frame_relay& operator=(const frame_relay&) = delete;

  std::string endpoint() const { return endpoint_; }
  void cut(bool is_cut) { cut_ = is_cut; } // nothing passes, and nothing says so
  std::uint64_t messages() const { return messages_; }

private:
  using clock = std::chrono::steady_clock;

  void run() {
    while (!stop_) {
      std::vector<zmq::pollitem_t> items{{front_.handle(), 0, ZMQ_POLLIN, 0}};
      for (auto& [id, socket] : backs_)
        items.push_back({socket->handle(), 0, ZMQ_POLLIN, 0});
      auto pause = std::chrono::milliseconds(20);
      if (!later_.empty())
        pause = std::clamp(std::chrono::ceil<std::chrono::milliseconds>(later_.begin()->first - clock::now()),
                           std::chrono::milliseconds(0), pause);
      zmq::poll(items.data(), items.size(), pause);
      while (take(front_, nullptr)) {
      }
      for (auto& [id, socket] : backs_)
        while (take(*socket, &id)) {
        }
      while (!later_.empty() && later_.begin()->first <= clock::now()) {
        later_.begin()->second();
        later_.erase(later_.begin());
      }
    }
  }

  zmq::socket_t& back_of(const std::string& id) {
    auto& socket = backs_[id];
    if (!socket) {
      socket = std::make_unique<zmq::socket_t>(context_, zmq::socket_type::dealer);
      socket->set(zmq::sockopt::linger, 0);
      socket->set(zmq::sockopt::routing_id, id);
      socket->connect(target_);
    }
    return *socket;
  }

  // `id` null: a message to the target, that begins with who sent it.
  bool take(zmq::socket_t& from, const std::string* id) {
    frame_faults::parts parts;
    for (bool more = true; more;) {
      zmq::message_t part;
      if (!from.recv(part, zmq::recv_flags::dontwait))
        return false;
      parts.push_back(part.to_string());
      more = part.more();
    }
    std::string peer = id != nullptr ? *id : parts.front();
    if (id == nullptr)
      parts.erase(parts.begin());
    ++messages_;
    for (auto& d : (id == nullptr ? there_ : back_).pass(parts)) {
      if (cut_)
        continue;
      const bool forth = id == nullptr;
      auto pass = [this, forth, peer, frame = std::move(d.frame)]() mutable {
        if (!forth)
          frame.insert(frame.begin(), peer);
        send(forth ? back_of(peer) : front_, frame);
      };
      if (d.later.count() == 0)
        pass();
      else
        later_.emplace(clock::now() + d.later, std::move(pass));
    }
    return true;
  }

  static void send(zmq::socket_t& to, const frame_faults::parts& parts) {
    for (std::size_t i = 0; i < parts.size(); ++i)
      to.send(zmq::buffer(parts[i]),
              i + 1 < parts.size() ? zmq::send_flags::sndmore | zmq::send_flags::dontwait : zmq::send_flags::dontwait);
  }

  std::string target_, endpoint_;
  frame_faults there_, back_;
  zmq::context_t context_;
  zmq::socket_t front_;
  std::map<std::string, std::unique_ptr<zmq::socket_t>> backs_;
  std::multimap<clock::time_point, std::function<void()>> later_;
  std::atomic<bool> stop_{false}, cut_{false};
  std::atomic<std::uint64_t> messages_{0};
  std::thread thread_;
};

} // namespace troupe::test
