#include "cluster/step_link.hpp"
#include "cluster/loopback.hpp"
#include "cluster/refused_bytes.hpp"
#include "runtime/base/crc32c.hpp"
#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <bit>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <poll.h>
#include <queue>
#include <sys/socket.h>
#include <sys/uio.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

namespace troupe {

namespace {

using clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds look_every{200}; // of the server's threads, at whether they are to end

// ---- frames: 32 bytes of head, then `count` lengths, then as many texts

enum class link_kind : std::uint8_t { hello = 1, welcome, refusal, step, answers, failed };

struct link_head {
  std::uint32_t magic = 0x314c'5354; // "TSL1"
  link_kind kind = link_kind::hello;
  std::uint8_t zero[3] = {};
  std::uint32_t count = 0;
  std::uint32_t bytes = 0; // of lengths and texts
  std::uint64_t step = 0;
  std::uint32_t body_crc = 0;
  std::uint32_t head_crc = 0; // of the bytes before it
};
static_assert(sizeof(link_head) == 32);
constexpr std::uint32_t parts_max = 4096;

std::uint32_t head_crc(const link_head& head) {
  return crc32c({reinterpret_cast<const std::uint8_t*>(&head), sizeof head - sizeof head.head_crc});
}

// Little endian hosts only, as the rest of the step path: the head is sent as it lies in memory.
static_assert(std::endian::native == std::endian::little);

error gone(const std::string& why) {
  return error{"peer_gone", "step link: " + why};
}
std::string reason(int code) {
  return std::generic_category().message(code);
}

// ---- a connected socket

class connection {
public:
  explicit connection(int fd) : fd_(fd) {
    const int on = 1, idle = 5, between = 2, count = 3;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  ~connection() { ::close(fd_); }
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  // Wakes both threads that use it; they find it closed.
  void shut() { ::shutdown(fd_, SHUT_RDWR); }
  bool lost() const {
    pollfd p{fd_, POLLRDHUP, 0};
    return ::poll(&p, 1, 0) > 0;
  }

  // A whole frame or, on failure, an unknown part of it.
  status send(link_kind kind, std::uint64_t step, std::span<const byte_span> parts, std::chrono::milliseconds limit);

  struct frame {
    link_kind kind = link_kind::hello;
    std::uint64_t step = 0;
    std::span<const byte_span> parts;
  };
  // "timed_out" may come between frames and inside one; the next call goes on. Views are valid until the next call.
  result<frame> receive(std::chrono::milliseconds limit);

private:
  bool ready(short events, clock::time_point end) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock::now()).count();
    pollfd p{fd_, events, 0};
    return left > 0 && ::poll(&p, 1, static_cast<int>(left)) > 0;
  }
  result<bool> fill(std::size_t bytes, clock::time_point end);
  result<frame> split();

  int fd_;
  std::vector<std::uint8_t> got_; // bytes of the frame at hand, and what came behind it
  std::size_t used_ = 0;          // of got_, by the frame that was given out
  std::vector<byte_span> parts_;
};

status connection::send(link_kind kind, std::uint64_t step, std::span<const byte_span> parts,
                        std::chrono::milliseconds limit) {
  std::vector<std::uint32_t> lengths;
  std::size_t bytes = parts.size() * sizeof(std::uint32_t);
  for (const byte_span part : parts) {
    lengths.push_back(static_cast<std::uint32_t>(part.size()));
    bytes += part.size();
  }
  if (bytes > step_frame_bytes_max || parts.size() > parts_max)
    return error{"too_large", "step " + std::to_string(step) + " of " + std::to_string(bytes) +
                                  " bytes; a step link takes " + std::to_string(step_frame_bytes_max)};
  link_head head;
  head.kind = kind;
  head.count = static_cast<std::uint32_t>(parts.size());
  head.bytes = static_cast<std::uint32_t>(bytes);
  head.step = step;
  const byte_span table(reinterpret_cast<const std::uint8_t*>(lengths.data()), lengths.size() * sizeof(std::uint32_t));
  head.body_crc = crc32c(table);
  std::vector<iovec> pieces{{&head, sizeof head}};
  const auto add = [&](byte_span piece) {
    if (!piece.empty())
      pieces.push_back({const_cast<std::uint8_t*>(piece.data()), piece.size()}); // only read
  };
  add(table);
  for (const byte_span part : parts) {
    head.body_crc = crc32c(part, head.body_crc);
    add(part);
  }
  head.head_crc = head_crc(head);
  const auto end = clock::now() + limit;
  std::size_t first = 0;
  while (first < pieces.size()) {
    msghdr message{};
    message.msg_iov = pieces.data() + first;
    message.msg_iovlen = std::min<std::size_t>(pieces.size() - first, 1000);
    ssize_t n = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!ready(POLLOUT, end) && clock::now() >= end)
        return error{"timed_out", "step link: the connection takes no more"};
      continue;
    }
    if (n < 0)
      return gone("cannot send: " + reason(errno));
    for (auto left = static_cast<std::size_t>(n); left > 0;) {
      iovec& piece = pieces[first];
      const std::size_t part = std::min(left, piece.iov_len);
      piece.iov_base = static_cast<std::uint8_t*>(piece.iov_base) + part;
      piece.iov_len -= part;
      left -= part;
      first += piece.iov_len == 0 ? 1 : 0;
    }
  }
  return nothing{};
}

// Reads until so many bytes of the frame at hand are there. False: the limit passed.
result<bool> connection::fill(std::size_t bytes, clock::time_point end) {
  while (got_.size() < bytes) {
    const std::size_t before = got_.size();
    got_.resize(std::max(bytes, before + 16384)); // one call for a small frame
    const ssize_t n = ::recv(fd_, got_.data() + before, got_.size() - before, 0);
    const int code = errno;
    got_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    if (n > 0 || (n < 0 && code == EINTR))
      continue;
    if (n == 0)
      return gone("the other side has closed the connection");
    if (code != EAGAIN && code != EWOULDBLOCK)
      return gone("cannot receive: " + reason(code));
    if (!ready(POLLIN, end) && clock::now() >= end)
      return false;
  }
  return true;
}

result<connection::frame> connection::receive(std::chrono::milliseconds limit) {
  got_.erase(got_.begin(), got_.begin() + static_cast<std::ptrdiff_t>(std::exchange(used_, 0)));
  const auto end = clock::now() + limit;
  const error late{"timed_out", "step link: nothing came in time"};
  for (std::size_t wanted = sizeof(link_head);;) {
    const auto there = fill(wanted, end);
    if (!there)
      return there.failure();
    if (!*there)
      return late;
    link_head head;
    std::memcpy(&head, got_.data(), sizeof head);
    if (head.magic != link_head{}.magic || head.head_crc != head_crc(head) || head.bytes > step_frame_bytes_max ||
        head.count > parts_max || head.count * sizeof(std::uint32_t) > head.bytes)
      return error{"bad_frame", "step link: what came is no frame of a step"};
    if (wanted < sizeof head + head.bytes)
      wanted = sizeof head + head.bytes;
    else
      return split();
  }
}

result<connection::frame> connection::split() {
  link_head head;
  std::memcpy(&head, got_.data(), sizeof head);
  const byte_span body(got_.data() + sizeof head, head.bytes);
  if (crc32c(body) != head.body_crc)
    return error{"bad_frame", "step link: the check sum of step " + std::to_string(head.step) + " is wrong"};
  parts_.clear();
  std::size_t at = head.count * sizeof(std::uint32_t);
  for (std::uint32_t n = 0; n < head.count; ++n) {
    std::uint32_t length = 0;
    std::memcpy(&length, body.data() + n * sizeof length, sizeof length);
    if (length > body.size() - at)
      return error{"bad_frame", "step link: lengths that do not fit the frame"};
    parts_.push_back(body.subspan(at, length));
    at += length;
  }
  if (at != body.size())
    return error{"bad_frame", "step link: lengths that do not fit the frame"};
  used_ = sizeof head + head.bytes;
  return frame{head.kind, head.step, parts_};
}

// ---- addresses

struct socket_address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
std::optional<socket_address> parse_address(const std::string& text, std::uint16_t port) {
  socket_address a;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&a.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&a.storage);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    a.bytes = sizeof *v4;
    return a;
  }
  if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    a.bytes = sizeof *v6;
    return a;
  }
  return std::nullopt;
}

// The words of a hello; equal on both sides.
std::vector<std::string> words_of(const step_link_identity& identity) {
  return {identity.cluster, std::to_string(identity.incarnation), std::to_string(identity.executors), identity.token};
}
std::vector<byte_span> spans_of(const std::vector<std::string>& words) {
  std::vector<byte_span> spans;
  for (const std::string& w : words)
    spans.push_back(bytes_of(w));
  return spans;
}
std::string text_of(byte_span bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
// Without a way to guess a token letter by letter from the time that the answer takes.
bool same(byte_span a, byte_span b) {
  std::uint8_t differs = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    differs = static_cast<std::uint8_t>(differs | (a[i] ^ b[i]));
  return differs == 0;
}

} // namespace

// ---- scheduler

struct step_link::state {
  explicit state(int fd) : link(fd) {}
  connection link;
};

step_link::step_link(std::unique_ptr<state> s) : state_(std::move(s)) {}
step_link::step_link(step_link&&) noexcept = default;
step_link& step_link::operator=(step_link&&) noexcept = default;
step_link::~step_link() = default;

result<step_link> step_link::connect(const std::string& address, std::uint16_t port, const step_link_identity& identity,
                                     std::chrono::milliseconds limit) {
  const std::string where = address + ":" + std::to_string(port);
  const auto to = parse_address(address, port);
  if (!to)
    return error{"unreachable", where + ": not an address in digits"};
  const int fd = ::socket(to->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return error{"unreachable", where + ": " + reason(errno)};
  auto s = std::make_unique<state>(fd);
  const auto until = clock::now() + limit;
  const auto left = [&] {
    return std::max(std::chrono::ceil<std::chrono::milliseconds>(until - clock::now()), std::chrono::milliseconds(0));
  };
  if (::connect(fd, to->get(), to->bytes) != 0) {
    int code = errno;
    socklen_t bytes = sizeof code;
    pollfd p{fd, POLLOUT, 0};
    if (code == EINPROGRESS && ::poll(&p, 1, static_cast<int>(limit.count())) > 0)
      ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &bytes);
    else if (code == EINPROGRESS)
      code = ETIMEDOUT;
    if (code != 0)
      return error{"unreachable", where + ": " + reason(code)};
  }
  const auto words = words_of(identity);
  if (const auto sent = s->link.send(link_kind::hello, 0, spans_of(words), left()); !sent)
    return error{"unreachable", where + ": " + sent.failure().message};
  const auto answer = s->link.receive(left());
  if (!answer)
    return error{"unreachable", where + ": " + answer.failure().message};
  if (answer->kind != link_kind::welcome)
    return error{"refused", where + ": " + (answer->parts.empty() ? "no reason given" : text_of(answer->parts[0]))};
  return step_link(std::move(s));
}

status step_link::post(std::uint64_t step, std::span<const byte_span> commands, std::chrono::milliseconds limit) {
  return state_->link.send(link_kind::step, step, commands, limit);
}

result<std::span<const byte_span>> step_link::wait(std::uint64_t step, std::chrono::milliseconds limit) {
  const auto frame = state_->link.receive(limit);
  if (!frame)
    return frame.failure();
  if (frame->kind == link_kind::failed && frame->parts.size() == 2)
    return error{text_of(frame->parts[0]), text_of(frame->parts[1])};
  if (frame->kind != link_kind::answers || frame->step != step)
    return error{"wrong_step",
                 "step link: an answer to step " + std::to_string(frame->step) + " instead of " + std::to_string(step)};
  return frame->parts;
}

bool step_link::lost() const {
  return state_->link.lost();
}
void step_link::shut() {
  state_->link.shut();
}

// ---- server

struct step_link_server::state {
  state(step_link_server_options o, step_board b, int fd) : options(std::move(o)), board(std::move(b)), listener(fd) {}
  ~state() {
    if (listener >= 0)
      ::close(listener);
  }

  step_link_server_options options;
  step_board board;
  int listener;
  std::uint16_t port = 0;

  std::mutex guard;
  std::condition_variable changed;
  std::queue<std::uint64_t> out; // steps on the board that were not answered
  std::shared_ptr<connection> link;
  bool stopping = false, lost = false;
  std::string why;
  std::thread poster, answerer;

  bool ended() {
    const std::lock_guard lock(guard);
    return stopping || !why.empty();
  }
  void fail(const std::shared_ptr<connection>& to, std::uint64_t step, const error& e) {
    {
      const std::lock_guard lock(guard);
      why = e.message;
      changed.notify_all();
    }
    const std::array<byte_span, 2> words{bytes_of(e.code), bytes_of(e.message)};
    if (to != nullptr) // else the scheduler is gone
      (void)to->send(link_kind::failed, step, words, std::chrono::seconds(1));
  }
  void accept_connections();
  bool greet(connection& to);
  void serve(const std::shared_ptr<connection>& from);
  void answer_steps();
};

void step_link_server::state::accept_connections() {
  while (!ended()) {
    pollfd p{listener, POLLIN, 0};
    if (::poll(&p, 1, 50) <= 0)
      continue;
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0)
      continue;
    const auto to = std::make_shared<connection>(fd);
    {
      const std::lock_guard lock(guard);
      link = to;
      if (stopping)
        return;
    }
    const bool known = greet(*to) && !to->lost(); // who gave up before was no scheduler
    if (known)
      serve(to);
    // Steps of the lost connection end first: their answers belong to nobody else.
    std::unique_lock lock(guard);
    link = nullptr;
    lost = lost || known;
    changed.notify_all();
    changed.wait(lock, [this] { return stopping || !why.empty() || out.empty(); });
  }
}

bool step_link_server::state::greet(connection& to) {
  const auto hello = to.receive(std::chrono::seconds(2));
  const auto mine = words_of(options.identity);
  std::string wrong;
  if (!hello || hello->kind != link_kind::hello || hello->parts.size() != mine.size())
    wrong = "not a greeting of a step link of this version";
  else if (!same(hello->parts[3], bytes_of(mine[3])))
    wrong = "the token is another";
  else if (!same(hello->parts[0], bytes_of(mine[0])))
    wrong = "this is cluster " + mine[0];
  else if (!same(hello->parts[1], bytes_of(mine[1])))
    wrong = "this is incarnation " + mine[1];
  else if (!same(hello->parts[2], bytes_of(mine[2])))
    wrong = "here are " + mine[2] + " executors";
  if (!wrong.empty())
    refuse_bytes(options.address + ":" + std::to_string(port), wrong);
  const std::array<byte_span, 1> words{bytes_of(wrong)};
  return bool(to.send(wrong.empty() ? link_kind::welcome : link_kind::refusal, 0, words, std::chrono::seconds(1))) &&
         wrong.empty();
}

void step_link_server::state::serve(const std::shared_ptr<connection>& from) {
  while (!ended()) {
    const auto frame = from->receive(look_every);
    if (!frame && frame.failure().code == "timed_out")
      continue;
    if (!frame || frame->kind != link_kind::step)
      return;
    // The answerer may know of the step only when it is on the board.
    const auto until = clock::now() + options.board_limit;
    auto posted = board.post(frame->step, frame->parts, look_every);
    while (!posted && posted.failure().code == "timed_out" && clock::now() < until && !ended())
      posted = board.post(frame->step, frame->parts, look_every);
    if (!posted)
      return fail(from, frame->step, posted.failure());
    const std::lock_guard lock(guard);
    out.push(frame->step);
    changed.notify_all();
  }
}

void step_link_server::state::answer_steps() {
  for (;;) {
    std::uint64_t step = 0;
    std::shared_ptr<connection> to;
    {
      std::unique_lock lock(guard);
      changed.wait(lock, [this] { return stopping || !why.empty() || !out.empty(); });
      if (stopping || !why.empty())
        return;
      step = out.front();
    }
    const auto answers = board.wait(step, look_every);
    if (!answers && answers.failure().code == "timed_out")
      continue; // how long a step may take is for the scheduler to say
    {
      const std::lock_guard lock(guard);
      to = link; // none if the scheduler is gone: the answers are dropped
    }
    if (!answers)
      return fail(to, step, answers.failure());
    if (to != nullptr && !to->send(link_kind::answers, step, *answers, std::chrono::seconds(5)))
      to->shut();
    const std::lock_guard lock(guard);
    out.pop();
    changed.notify_all();
  }
}

step_link_server::step_link_server(std::unique_ptr<state> s) : state_(std::move(s)) {}
step_link_server::step_link_server(step_link_server&&) noexcept = default;
step_link_server& step_link_server::operator=(step_link_server&&) noexcept = default;

result<step_link_server> step_link_server::start(const step_link_server_options& options, step_board board) {
  const std::string where = options.address + ":" + std::to_string(options.port);
  const auto at = parse_address(options.address, options.port);
  if (!at)
    return error{"cannot_bind", where + ": not an address in digits"};
  if (!is_loopback_address(options.address) && options.identity.token.empty())
    return error{"refused_address", where + ": steps travel unencrypted and this address leaves the host; use "
                                            "127.0.0.1, or give both sides a token"};
  const int fd = ::socket(at->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (fd < 0)
    return error{"cannot_bind", where + ": " + reason(errno)};
  auto s = std::make_unique<state>(options, std::move(board), fd);
  s->options.identity.executors = s->board.executors();
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd, at->get(), at->bytes) != 0 || ::listen(fd, 4) != 0)
    return error{"cannot_bind", where + ": " + reason(errno)};
  sockaddr_storage bound{};
  socklen_t bytes = sizeof bound;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &bytes);
  s->port = ntohs(bound.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&bound)->sin_port
                                             : reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port);
  s->poster = std::thread([state = s.get()] { state->accept_connections(); });
  s->answerer = std::thread([state = s.get()] { state->answer_steps(); });
  return step_link_server(std::move(s));
}

step_link_server::~step_link_server() {
  if (state_ == nullptr)
    return;
  {
    const std::lock_guard lock(state_->guard);
    state_->stopping = true;
    if (state_->link != nullptr)
      state_->link->shut();
    state_->changed.notify_all();
  }
  state_->poster.join();
  state_->answerer.join();
}

std::uint16_t step_link_server::port() const {
  return state_->port;
}

bool step_link_server::lost() const {
  const std::lock_guard lock(state_->guard);
  return state_->lost;
}

std::string step_link_server::failure() const {
  {
    const std::lock_guard lock(state_->guard);
    if (!state_->why.empty())
      return state_->why;
  }
  // Between steps nobody else looks.
  for (std::size_t e = 0; e < state_->board.executors(); ++e)
    if (state_->board.executor(e).gone())
      return "executor " + std::to_string(e) + " is gone";
  return {};
}

} // namespace troupe
