#include "bench/transport_bench.hpp"
#include "cluster/bulk_link.hpp"
#include "cluster/shm_ring.hpp"
#include "cluster/step_board.hpp"
#include "cluster/step_link.hpp"
#include "cluster/wake_word.hpp"
#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <zmq.hpp>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t executors = 8;
constexpr std::size_t command_bytes = 256, record_bytes = 64;
constexpr std::size_t frame_bytes = frame_payload_bytes_max;
constexpr std::chrono::seconds limit{60}; // nothing here takes so long
constexpr auto spinning = std::chrono::milliseconds(10);

template <class T> T must(result<T> r) {
  if (!r)
    throw std::runtime_error(r.failure().code + ": " + r.failure().message);
  return std::move(*r);
}

// A process that runs `body` and ends. Made while this one has no other thread.
class child {
public:
  explicit child(const std::function<void()>& body) : pid_(::fork()) {
    if (pid_ < 0)
      throw std::runtime_error("no child process");
    if (pid_ > 0)
      return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      body();
      ::_exit(0);
    } catch (const std::exception& e) {
      (void)!::write(2, e.what(), std::strlen(e.what()));
      ::_exit(1);
    }
  }
  child(child&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  child& operator=(child&&) = delete;
  ~child() {
    if (pid_ > 0)
      ::waitpid(pid_, nullptr, 0);
  }

private:
  pid_t pid_;
};

// Memory that a child has too.
class common_memory {
public:
  explicit common_memory(std::size_t bytes)
      : bytes_(bytes), start_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (start_ == MAP_FAILED)
      throw std::runtime_error("no memory to share");
    std::memset(start_, 0, bytes); // no page fault later
  }
  ~common_memory() { ::munmap(start_, bytes_); }
  common_memory(const common_memory&) = delete;
  common_memory& operator=(const common_memory&) = delete;
  std::span<std::byte> span() const { return {static_cast<std::byte*>(start_), bytes_}; }

private:
  std::size_t bytes_;
  void* start_;
};

class pipe_pair {
public:
  pipe_pair() {
    if (::pipe(ends_.data()) != 0)
      throw std::runtime_error("no pipe");
  }
  ~pipe_pair() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  pipe_pair(const pipe_pair&) = delete;
  pipe_pair& operator=(const pipe_pair&) = delete;
  void put(const void* data, std::size_t bytes) const { (void)!::write(ends_[1], data, bytes); }
  void get(void* data, std::size_t bytes) const {
    for (std::size_t at = 0; at < bytes;) {
      const ssize_t n = ::read(ends_[0], static_cast<char*>(data) + at, bytes - at);
      if (n <= 0)
        throw std::runtime_error("a pipe ended early");
      at += static_cast<std::size_t>(n);
    }
  }

private:
  std::array<int, 2> ends_{};
};

struct run_sizes {
  int rounds, steps, trips, frames, frames_encrypted;
};

class bench {
public:
  explicit bench(const bench_settings& settings)
      : settings_(settings),
        sizes_(settings.smoke ? run_sizes{1, 100, 200, 8, 4} : run_sizes{3, 3000, 20'000, 200, 60}) {}
  void run();

private:
  // Ours and its peers in turn, `rounds` times, so that a change of the machine's load meets all of them.
  using named_cases = std::vector<std::pair<std::string, std::function<std::vector<double>()>>>;
  void compare(const named_cases& cases, const json& facts, bool is_rate);
  template <class Trip> std::vector<double> timed(int count, Trip&& trip) const {
    for (int n = 0; n < std::min(count, 50); ++n)
      trip();
    std::vector<double> us;
    us.reserve(static_cast<std::size_t>(count));
    for (int n = 0; n < count; ++n) {
      const stopwatch watch;
      trip();
      us.push_back(watch.seconds() * 1e6);
    }
    return us;
  }
  // Megabytes a second of `count` frames, of which `take` takes one; the first is not counted.
  template <class Take> std::vector<double> rate(int count, Take&& take) const {
    take();
    const stopwatch watch;
    for (int n = 1; n < count; ++n)
      take();
    return {static_cast<double>(count - 1) * frame_bytes / 1e6 / watch.seconds()};
  }

  std::vector<double> steps_by_board();
  std::vector<double> steps_by_link();
  std::vector<double> steps_by_pipes();
  std::vector<double> steps_by_futexes();
  std::vector<double> trips_by_ring(spin_time spin);
  std::vector<double> trips_by_futexes();
  std::vector<double> trips_by_pipes();
  std::vector<double> frames_by_ring();
  std::vector<double> frames_by_memcpy();
  std::vector<double> frames_by_link(security_mode mode);
  std::vector<double> frames_by_zmq(security_mode mode);

  const bench_settings& settings_;
  run_sizes sizes_;
};

void bench::compare(const named_cases& cases, const json& facts, bool is_rate) {
  std::vector<std::vector<double>> values(cases.size());
  for (int round = 0; round < sizes_.rounds; ++round)
    for (std::size_t c = 0; c < cases.size(); ++c)
      for (const double v : cases[c].second())
        values[c].push_back(v);
  for (std::size_t c = 0; c < cases.size(); ++c) {
    json line{{"bench", "transport"}, {"case", cases[c].first}};
    line.update(machine_facts());
    if (settings_.smoke)
      line["smoke"] = true;
    line.update(facts);
    std::vector<double>& v = values[c];
    if (is_rate) {
      line.update({{"mb_per_s", median(v)}, {"runs", v}});
    } else {
      std::ranges::sort(v);
      line.update({{"us_p50", v[v.size() / 2]}, {"us_p99", v[v.size() * 99 / 100]}, {"count", v.size()}});
    }
    settings_.emit(line);
  }
}

// ---- steps

std::string segment(const char* what) {
  return must(segment_name("bench" + std::to_string(::getpid()), "n0", what, "all"));
}

void serve_board(const std::string& name, std::size_t index) {
  auto executor = must(step_board_executor::attach(name, index));
  std::array<std::uint8_t, command_bytes> answer{};
  for (auto command = executor.next(limit); command; command = executor.next(limit)) {
    std::memcpy(answer.data(), command->bytes.data(), std::min(answer.size(), command->bytes.size()));
    (void)executor.answer(answer);
  }
}

std::vector<double> bench::steps_by_board() {
  auto board = std::make_optional(must(step_board::create(segment("steps"), {.executors = executors})));
  std::vector<child> children;
  for (std::size_t e = 0; e < executors; ++e)
    children.emplace_back([e, name = segment("steps")] { serve_board(name, e); });
  const std::vector<std::uint8_t> command(command_bytes, 1);
  const std::vector<byte_span> commands(executors, command);
  std::uint64_t step = 0;
  auto us = timed(sizes_.steps, [&] {
    ++step;
    if (const auto posted = board->post(step, commands, limit); !posted)
      throw std::runtime_error(posted.failure().message);
    (void)must(board->wait(step, limit));
  });
  board.reset(); // the children end
  return us;
}

// The server and its board in another process than the scheduler, as on another host.
std::vector<double> bench::steps_by_link() {
  pipe_pair ready, end;
  const step_link_identity identity{.cluster = "bench", .incarnation = 1, .token = {}, .executors = executors};
  const std::string name = segment("link");
  std::vector<child> children;
  pipe_pair made;
  children.emplace_back([&] {
    auto board = must(step_board::create(name, {.executors = executors}));
    made.put("x", 1);
    step_link_server_options options;
    options.identity = identity;
    const auto server = must(step_link_server::start(options, std::move(board)));
    const std::uint16_t port = server.port();
    ready.put(&port, sizeof port);
    char c = 0;
    end.get(&c, 1);
  });
  char c = 0;
  made.get(&c, 1);
  for (std::size_t e = 0; e < executors; ++e)
    children.emplace_back([&, e] { serve_board(name, e); });
  std::uint16_t port = 0;
  ready.get(&port, sizeof port);
  std::vector<double> us;
  {
    auto link = must(step_link::connect("127.0.0.1", port, identity, limit));
    const std::vector<std::uint8_t> command(command_bytes, 1);
    const std::vector<byte_span> commands(executors, command);
    std::uint64_t step = 0;
    us = timed(sizes_.steps, [&] {
      ++step;
      (void)must(link.post(step, commands, limit));
      (void)must(link.wait(step, limit));
    });
  }
  end.put("x", 1);
  return us;
}

std::vector<double> bench::steps_by_pipes() {
  std::array<pipe_pair, executors> there, back;
  std::vector<child> children;
  for (std::size_t e = 0; e < executors; ++e)
    children.emplace_back([&, e] {
      std::array<char, command_bytes> command{};
      do {
        there[e].get(command.data(), command.size());
        back[e].put(command.data(), command.size());
      } while (command[0] != 0);
    });
  std::array<char, command_bytes> command{};
  const auto step = [&] {
    for (const pipe_pair& p : there)
      p.put(command.data(), command.size());
    for (const pipe_pair& p : back)
      p.get(command.data(), command.size());
  };
  command[0] = 1;
  auto us = timed(sizes_.steps, step);
  command[0] = 0;
  step();
  return us;
}

// A word for each executor and one counter of answers, no contents: the least that futexes can do.
std::vector<double> bench::steps_by_futexes() {
  struct words {
    wake_word wake;
    alignas(64) std::atomic<std::uint32_t> value{0};
    void add() {
      value.fetch_add(1);
      wake.wake();
    }
    void wait(std::uint32_t target) {
      wake.wait([&] { return static_cast<std::int32_t>(value.load() - target) >= 0; }, limit);
    }
  };
  const common_memory memory((executors + 2) * sizeof(words));
  auto* word = new (memory.span().data()) words[executors + 1]; // the last counts answers
  auto* stop = new (&word[executors + 1]) std::atomic<bool>(false);
  std::vector<child> children;
  for (std::size_t e = 0; e < executors; ++e)
    children.emplace_back([&, e] {
      for (std::uint32_t n = 1;; ++n) {
        word[e].wait(n);
        if (stop->load())
          return;
        word[executors].value.fetch_add(1) % executors == executors - 1 ? word[executors].wake.wake() : void();
      }
    });
  std::uint32_t n = 0;
  auto us = timed(sizes_.steps, [&] {
    ++n;
    for (std::size_t e = 0; e < executors; ++e)
      word[e].add();
    word[executors].wait(n * executors);
  });
  stop->store(true);
  for (std::size_t e = 0; e < executors; ++e)
    word[e].add();
  return us;
}

// ---- small records

std::vector<double> bench::trips_by_ring(spin_time spin) {
  const common_memory memory(2 * ring_bytes(1 << 16));
  const auto there = memory.span().first(ring_bytes(1 << 16)), back = memory.span().last(ring_bytes(1 << 16));
  make_ring(there);
  make_ring(back);
  const child other([&] {
    auto reader = must(ring_reader::attach(there));
    auto writer = must(ring_writer::attach(back));
    for (;;) {
      const auto record = reader.front(limit, spin);
      if (!record)
        return;
      (void)writer.write({{reinterpret_cast<const std::uint8_t*>(record->data()), record->size()}}, limit, spin);
      reader.pop();
    }
  });
  auto writer = must(ring_writer::attach(there));
  auto reader = must(ring_reader::attach(back));
  const std::vector<std::uint8_t> record(record_bytes, 1);
  return timed(sizes_.trips, [&] {
    (void)must(writer.write({record}, limit, spin));
    (void)must(reader.front(limit, spin));
    reader.pop();
  });
}

std::vector<double> bench::trips_by_futexes() {
  struct word {
    wake_word wake;
    alignas(64) std::atomic<std::uint32_t> value{0};
  };
  const common_memory memory(2 * sizeof(word));
  auto* words = new (memory.span().data()) word[2];
  constexpr std::uint32_t stop = ~0U;
  const auto set = [&](int i, std::uint32_t v) {
    words[i].value.store(v);
    words[i].wake.wake();
  };
  const auto await = [&](int i, std::uint32_t v) {
    words[i].wake.wait([&] { return words[i].value.load() == v || words[i].value.load() == stop; }, limit);
    return words[i].value.load() != stop;
  };
  const child other([&] {
    for (std::uint32_t n = 1; await(0, n); ++n)
      set(1, n);
  });
  std::uint32_t n = 0;
  auto us = timed(sizes_.trips, [&] {
    set(0, ++n);
    await(1, n);
  });
  set(0, stop);
  return us;
}

std::vector<double> bench::trips_by_pipes() {
  const pipe_pair there, back;
  const child other([&] {
    std::array<char, record_bytes> record{};
    do {
      there.get(record.data(), record.size());
      back.put(record.data(), record.size());
    } while (record[0] != 0);
  });
  std::array<char, record_bytes> record{};
  const auto trip = [&] {
    there.put(record.data(), record.size());
    back.get(record.data(), record.size());
  };
  record[0] = 1;
  auto us = timed(sizes_.trips, trip);
  record[0] = 0;
  trip();
  return us;
}

// ---- bulk inside a host

bulk_frame full_frame() {
  return {.kind = frame_kind::kv_chunk,
          .mepoch = 1,
          .stream = 1,
          .meta = std::string(100, 'm'),
          .payload = own(std::vector<std::uint8_t>(frame_bytes, 7))};
}

std::vector<double> bench::frames_by_ring() {
  const std::string name = segment("bulk");
  const auto memory = must(make_ring_channel(name, std::size_t{32} << 20));
  const child other([&] {
    const auto to = must(ring_sender::attach(name, 1, 2));
    bulk_frame frame = full_frame();
    for (int n = 0; n < sizes_.frames; ++n)
      (void)must(to->send(frame, limit));
    (void)must(to->wait_delivered(1, limit));
  });
  const auto from = must(ring_receiver::attach(name));
  return rate(sizes_.frames, [&] { (void)must(from->receive(limit)); });
}

// Eight buffers that one process fills by memcpy and the other empties by memcpy, and a word each way to say so.
std::vector<double> bench::frames_by_memcpy() {
  constexpr std::uint64_t buffers = 8;
  struct counters {
    wake_word filled, freed;
    alignas(64) std::atomic<std::uint64_t> written{0};
    alignas(64) std::atomic<std::uint64_t> read{0};
  };
  const common_memory memory(sizeof(counters) + buffers * frame_bytes);
  auto* c = new (memory.span().data()) counters;
  const auto buffer = [&](std::uint64_t n) {
    return memory.span().data() + sizeof(counters) + n % buffers * frame_bytes;
  };
  const child other([&] {
    const std::vector<std::uint8_t> frame(frame_bytes, 7);
    for (std::uint64_t n = 0; n < static_cast<std::uint64_t>(sizes_.frames); ++n) {
      c->freed.wait([&] { return n - c->read.load() < buffers; }, limit);
      std::memcpy(buffer(n), frame.data(), frame_bytes);
      c->written.store(n + 1);
      c->filled.wake();
    }
  });
  std::uint64_t n = 0;
  return rate(sizes_.frames, [&] {
    c->filled.wait([&] { return c->written.load() > n; }, limit);
    const auto* start = reinterpret_cast<const std::uint8_t*>(buffer(n));
    const std::vector<std::uint8_t> frame(start, start + frame_bytes); // as a receiver would keep it
    c->read.store(++n);
    c->freed.wake();
  });
}

// ---- bulk between hosts

bulk_link_options link_options(std::uint32_t rank) {
  return {.self = {.cluster = "bench", .rank = rank, .incarnation = rank, .build_id = "bench"},
          .traffic = traffic_class::kv,
          .rules = default_rules(traffic_class::kv)};
}

std::vector<double> bench::frames_by_link(security_mode mode) {
  const int frames = mode == security_mode::mutual ? sizes_.frames_encrypted : sizes_.frames;
  const curve_keys sender_keys = must(make_curve_keys()), receiver_keys = must(make_curve_keys());
  const pipe_pair ready;
  std::optional<child> other(std::in_place, [&] {
    std::array<char, 100> endpoint{};
    ready.get(endpoint.data(), endpoint.size());
    bulk_context context(mode, sender_keys);
    bulk_link link = must(bulk_link::start(context, link_options(1)));
    link.set_peers(
        {{.rank = 2, .incarnation = 2, .endpoint = endpoint.data(), .public_key = receiver_keys.public_key}});
    const auto to = link.sender_to(2);
    const bulk_frame frame = full_frame();
    for (int n = 0; n < frames; ++n)
      (void)must(to->send(frame, limit));
    (void)must(to->wait_delivered(1, limit));
  });
  bulk_context context(mode, receiver_keys);
  context.admit({sender_keys.public_key});
  bulk_link link = must(bulk_link::start(context, link_options(2)));
  link.set_peers({{.rank = 1, .incarnation = 1, .endpoint = {}, .public_key = sender_keys.public_key}});
  std::array<char, 100> endpoint{};
  const std::string text = link.endpoint();
  text.copy(endpoint.data(), endpoint.size() - 1);
  ready.put(endpoint.data(), endpoint.size());
  const auto from = link.receiver_from(1);
  auto mb = rate(frames, [&] { (void)must(from->receive(limit)); });
  other.reset(); // it ends when everything was acknowledged
  return mb;
}

// The same sockets with the same marks, and nothing of ours.
std::vector<double> bench::frames_by_zmq(security_mode mode) {
  const int frames = mode == security_mode::mutual ? sizes_.frames_encrypted : sizes_.frames;
  const curve_keys sender_keys = must(make_curve_keys()), receiver_keys = must(make_curve_keys());
  const pipe_pair ready, end;
  const auto set_up = [](zmq::socket_t& socket) {
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::sndhwm, 4);
    socket.set(zmq::sockopt::rcvhwm, 4);
  };
  const child other([&] {
    std::array<char, 100> endpoint{};
    ready.get(endpoint.data(), endpoint.size());
    zmq::context_t context;
    zmq::socket_t dealer(context, zmq::socket_type::dealer);
    set_up(dealer);
    if (mode == security_mode::mutual)
      use_curve(dealer, sender_keys, receiver_keys.public_key);
    dealer.connect(endpoint.data());
    const auto payload = own(std::vector<std::uint8_t>(frame_bytes, 7));
    for (int n = 0; n < frames; ++n) {
      dealer.send(zmq::buffer(std::string(164, 'h')), zmq::send_flags::sndmore);
      void* data = const_cast<std::uint8_t*>(payload.bytes.data());
      zmq::message_t message(
          data, payload.bytes.size(), [](void*, void*) {}, nullptr);
      dealer.send(std::move(message), zmq::send_flags::none);
    }
    char c = 0;
    end.get(&c, 1);
  });
  zmq::context_t context;
  std::optional<curve_gate> gate;
  zmq::socket_t router(context, zmq::socket_type::router);
  set_up(router);
  if (mode == security_mode::mutual) {
    gate.emplace(context);
    gate->admit({sender_keys.public_key});
    serve_curve(router, receiver_keys);
  }
  router.bind("tcp://127.0.0.1:*");
  std::array<char, 100> endpoint{};
  router.get(zmq::sockopt::last_endpoint).copy(endpoint.data(), endpoint.size() - 1);
  ready.put(endpoint.data(), endpoint.size());
  auto mb = rate(frames, [&] {
    zmq::message_t part;
    for (bool more = true; more; more = part.more())
      if (!router.recv(part))
        return;
  });
  end.put("x", 1);
  return mb;
}

void bench::run() {
  const json step{{"executors", executors}, {"bytes", command_bytes}};
  compare({{"step board", [this] { return steps_by_board(); }},
           {"step link, then board", [this] { return steps_by_link(); }},
           {"steps by bare futexes, no contents", [this] { return steps_by_futexes(); }},
           {"steps by pipes", [this] { return steps_by_pipes(); }}},
          step, false);
  named_cases trips{{"ring, there and back, sleeping", [this] { return trips_by_ring({}); }},
                    {"bare futexes, there and back, no contents", [this] { return trips_by_futexes(); }},
                    {"pipes, there and back", [this] { return trips_by_pipes(); }}};
  if (available_cores() > 1) // two that spin on one core only wait for each other's turn to end
    trips.insert(trips.begin(), {"ring, there and back, spinning", [this] { return trips_by_ring(spinning); }});
  compare(trips, {{"bytes", record_bytes}}, false);
  const json bulk{{"bytes", frame_bytes}};
  compare({{"ring channel", [this] { return frames_by_ring(); }},
           {"memcpy in and out of shared memory", [this] { return frames_by_memcpy(); }}},
          bulk, true);
  compare({{"bulk link", [this] { return frames_by_link(security_mode::loopback); }},
           {"bare ZeroMQ", [this] { return frames_by_zmq(security_mode::loopback); }},
           {"bulk link, CURVE", [this] { return frames_by_link(security_mode::mutual); }},
           {"bare ZeroMQ, CURVE", [this] { return frames_by_zmq(security_mode::mutual); }}},
          bulk, true);
}

} // namespace

void bench_transport(const bench_settings& settings) {
  bench(settings).run();
}

} // namespace troupe
