#include "cluster/curve.hpp"
#include <array>
#include <cstring>
#include <utility>
#include <vector>
#include <zmq.h>

namespace troupe {

namespace {
constexpr const char* domain = "troupe";
}

result<curve_keys> make_curve_keys() {
  std::array<char, 41> open{}, secret{};
  if (::zmq_curve_keypair(open.data(), secret.data()) != 0)
    return error{"no_curve", std::string("CURVE keys cannot be made: ") + ::zmq_strerror(::zmq_errno())};
  return curve_keys{open.data(), secret.data()};
}

void serve_curve(zmq::socket_t& socket, const curve_keys& own) {
  socket.set(zmq::sockopt::curve_server, true);
  socket.set(zmq::sockopt::curve_secretkey, own.secret_key);
  socket.set(zmq::sockopt::zap_domain, domain);
}

void use_curve(zmq::socket_t& socket, const curve_keys& own, const std::string& server_key) {
  socket.set(zmq::sockopt::curve_serverkey, server_key);
  socket.set(zmq::sockopt::curve_publickey, own.public_key);
  socket.set(zmq::sockopt::curve_secretkey, own.secret_key);
}

curve_gate::curve_gate(zmq::context_t& context)
    : questions_(context, zmq::socket_type::rep), stop_here_(context, zmq::socket_type::pair),
      stop_there_(context, zmq::socket_type::pair) {
  const std::string stop = "inproc://troupe.curve_gate.stop";
  questions_.set(zmq::sockopt::linger, 0);
  questions_.bind("inproc://zeromq.zap.01");
  stop_there_.bind(stop);
  stop_here_.connect(stop);
  thread_ = std::thread([this] { run(); });
}

curve_gate::~curve_gate() {
  stop_here_.send(zmq::message_t(), zmq::send_flags::dontwait);
  thread_.join();
}

void curve_gate::admit(std::set<std::string> public_keys) {
  const std::lock_guard lock(guard_);
  admitted_ = std::move(public_keys);
}

void curve_gate::run() {
  std::array<zmq::pollitem_t, 2> items{
      {{questions_.handle(), 0, ZMQ_POLLIN, 0}, {stop_there_.handle(), 0, ZMQ_POLLIN, 0}}};
  for (;;) {
    try {
      zmq::poll(items.data(), items.size(), std::chrono::milliseconds(-1));
      if ((items[1].revents & ZMQ_POLLIN) != 0)
        return;
      if ((items[0].revents & ZMQ_POLLIN) != 0)
        answer();
    } catch (const zmq::error_t& e) {
      if (e.num() == ETERM)
        return;
    }
  }
}

bool curve_gate::admits(const std::string& mechanism, const zmq::message_t& key, std::string& z85) {
  if (mechanism != "CURVE" || key.size() != 32)
    return false;
  std::array<char, 41> text{};
  ::zmq_z85_encode(text.data(), static_cast<const std::uint8_t*>(key.data()), key.size());
  z85 = text.data();
  const std::lock_guard lock(guard_);
  return admitted_.contains(z85);
}

// A key that is not known may be known in the next view: 300 makes the client try again, 400 would end it for good.
//
// Question: version, request, domain, address, identity, mechanism, credentials. Answer: version, request, code, text,
// user (here the key, which the links compare with the rank that a frame claims), metadata.
void curve_gate::answer() {
  std::vector<zmq::message_t> parts;
  for (bool more = true; more; more = parts.back().more())
    if (!questions_.recv(parts.emplace_back()))
      return;
  std::string user;
  const bool well_formed = parts.size() == 7 && parts[0].to_string_view() == "1.0";
  const bool admitted =
      well_formed && parts[2].to_string_view() == domain && admits(parts[5].to_string(), parts[6], user);
  if (!admitted)
    refused_.fetch_add(1, std::memory_order_relaxed);
  const std::string request = parts.size() > 1 ? parts[1].to_string() : std::string();
  const std::array<std::string, 6> words{
      "1.0", request, admitted ? "200" : "300", admitted ? "OK" : "this key is not in the view", admitted ? user : "",
      ""};
  for (std::size_t i = 0; i < words.size(); ++i)
    questions_.send(zmq::buffer(words[i]), i + 1 < words.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
}

} // namespace troupe
