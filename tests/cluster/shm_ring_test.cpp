#include "cluster/shm_ring.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/sanitizers.hpp"
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

using bytes = std::vector<std::uint8_t>;

// A ring in plain memory.
class ring_memory {
public:
  explicit ring_memory(std::size_t capacity) : size_(ring_bytes(capacity)), block_(size_ + 64) { make_ring(span()); }
  std::span<std::byte> span() {
    void* start = block_.data();
    std::size_t room = block_.size();
    return {static_cast<std::byte*>(std::align(64, size_, start, room)), size_};
  }

private:
  std::size_t size_;
  std::vector<std::byte> block_;
};

bytes record_of(std::mt19937& random, std::uint32_t number, std::size_t longest) {
  bytes b(4 + random() % (longest - 3));
  std::memcpy(b.data(), &number, 4);
  for (std::size_t i = 4; i < b.size(); ++i)
    b[i] = static_cast<std::uint8_t>(number * 31 + i * 7);
  return b;
}
bool is_record(std::span<const std::byte> got, const bytes& want) {
  return got.size() == want.size() && std::memcmp(got.data(), want.data(), want.size()) == 0;
}

// Both sides draw the same sizes from the same seed.
int write_records(ring_writer& writer, std::uint32_t count, std::size_t longest, spin_time spin) {
  std::mt19937 random(5);
  for (std::uint32_t n = 0; n < count; ++n) {
    const bytes record = record_of(random, n, longest);
    if (!writer.write({record}, 60s, spin))
      return 1;
  }
  return 0;
}
int read_records(ring_reader& reader, std::uint32_t count, std::size_t longest, spin_time spin) {
  std::mt19937 random(5);
  for (std::uint32_t n = 0; n < count; ++n) {
    const auto got = reader.front(60s, spin);
    if (!got)
      return 1;
    if (!is_record(*got, record_of(random, n, longest)) || reinterpret_cast<std::uintptr_t>(got->data()) % 16 != 0)
      return 2;
    reader.pop();
  }
  return 0;
}

} // namespace

BOOST_AUTO_TEST_SUITE(shm_rings)

BOOST_AUTO_TEST_CASE(records_come_out_whole_and_in_order) {
  ring_memory memory(1024);
  auto writer = std::move(ring_writer::attach(memory.span())).value();
  auto reader = std::move(ring_reader::attach(memory.span())).value();
  BOOST_TEST(writer.largest() == 512u - 16u);
  BOOST_TEST(reader.front(0s).failure().code == "timed_out");
  const bytes a{1, 2, 3}, b(100, 9);
  BOOST_REQUIRE(writer.write({a, b}, 0s));
  BOOST_REQUIRE(writer.write({}, 0s));
  bytes both = a;
  both.insert(both.end(), b.begin(), b.end());
  BOOST_TEST(is_record(reader.front(0s).value(), both));
  BOOST_TEST(is_record(reader.front(0s).value(), both)); // stays until pop()
  reader.pop();
  BOOST_TEST(reader.front(0s).value().empty());
  reader.pop();
  BOOST_TEST(reader.front(0s).failure().code == "timed_out");
}

BOOST_AUTO_TEST_CASE(a_full_ring_refuses_until_there_is_room) {
  ring_memory memory(1024);
  auto writer = std::move(ring_writer::attach(memory.span())).value();
  auto reader = std::move(ring_reader::attach(memory.span())).value();
  const bytes record(112, 1); // 128 with its head
  for (int n = 0; n < 8; ++n)
    BOOST_REQUIRE(writer.write({record}, 0s));
  BOOST_TEST(writer.write({record}, 1ms).failure().code == "timed_out");
  BOOST_TEST(writer.wait_read(writer.position(), 1ms).failure().code == "timed_out");
  BOOST_REQUIRE(reader.front(0s));
  BOOST_TEST(writer.write({record}, 0s).failure().code == "timed_out"); // read, but not popped
  reader.pop();
  BOOST_TEST(bool(writer.write({record}, 0s)));
  for (int n = 0; n < 8; ++n) {
    BOOST_REQUIRE(reader.front(0s));
    reader.pop();
  }
  BOOST_TEST(bool(writer.wait_read(writer.position(), 0s)));
  const auto refused = writer.write({bytes(writer.largest() + 1)}, 0s);
  BOOST_REQUIRE(!refused);
  BOOST_TEST(refused.failure().code == "too_large");
}

// The largest record fits from every place of the ring, in one piece.
BOOST_AUTO_TEST_CASE(the_largest_record_fits_at_every_place) {
  ring_memory memory(1024);
  auto writer = std::move(ring_writer::attach(memory.span())).value();
  auto reader = std::move(ring_reader::attach(memory.span())).value();
  const bytes small(1, 7), large(writer.largest(), 3);
  for (int n = 0; n < 40; ++n) {
    BOOST_REQUIRE(writer.write({large}, 0s));
    BOOST_REQUIRE(is_record(reader.front(0s).value(), large));
    reader.pop();
    BOOST_REQUIRE(writer.write({small}, 0s));
    BOOST_REQUIRE(is_record(reader.front(0s).value(), small));
    reader.pop();
  }
}

BOOST_AUTO_TEST_CASE(reserved_and_not_published_is_discarded) {
  ring_memory memory(1024);
  auto writer = std::move(ring_writer::attach(memory.span())).value();
  auto reader = std::move(ring_reader::attach(memory.span())).value();
  BOOST_REQUIRE(writer.reserve(100, 0s));
  BOOST_TEST(reader.front(0s).failure().code == "timed_out");
  const bytes record{4};
  BOOST_REQUIRE(writer.write({record}, 0s));
  BOOST_TEST(is_record(reader.front(0s).value(), record));
}

BOOST_AUTO_TEST_CASE(sides_that_leave_are_told_apart_from_silent_ones) {
  ring_memory memory(1024);
  {
    auto writer = std::move(ring_writer::attach(memory.span())).value();
    const bytes record{1};
    BOOST_REQUIRE(writer.write({record}, 0s));
  }
  auto reader = std::move(ring_reader::attach(memory.span())).value();
  BOOST_REQUIRE(reader.front(1s)); // what was written comes first
  reader.pop();
  BOOST_TEST(reader.front(60s).failure().code == "closed");
  auto writer = std::move(ring_writer::attach(memory.span())).value(); // a new one
  BOOST_TEST(reader.front(1ms).failure().code == "timed_out");
  { const ring_reader gone = std::move(reader); }
  BOOST_TEST(writer.write({bytes{1}}, 60s).failure().code == "closed");
}

BOOST_AUTO_TEST_CASE(memory_that_is_no_ring_is_refused) {
  std::vector<std::byte> zeros(4096 + 64);
  void* start = zeros.data();
  std::size_t room = zeros.size();
  auto* aligned = static_cast<std::byte*>(std::align(64, 4096, start, room));
  BOOST_TEST(ring_reader::attach({aligned, 4096}).failure().code == "damaged");
  BOOST_TEST(ring_writer::attach({aligned, 64}).failure().code == "damaged");
  ring_memory memory(1024);
  BOOST_TEST(ring_writer::attach(memory.span().first(memory.span().size() - 64)).failure().code == "damaged");
}

// Whatever stands in the records' heads, the reader stays inside the ring.
BOOST_AUTO_TEST_CASE(damage_is_reported) {
  std::mt19937 random(2);
  std::size_t damaged = 0;
  for (int round = 0; round < 2000; ++round) {
    ring_memory memory(1024);
    auto writer = std::move(ring_writer::attach(memory.span())).value();
    auto reader = std::move(ring_reader::attach(memory.span())).value();
    for (int n = 0; n < 4; ++n)
      BOOST_REQUIRE(writer.write({bytes(random() % 200, 1)}, 0s));
    auto records = memory.span().last(1024);
    const std::size_t at = 64 * (random() % 4) + random() % 8;
    records[at] = static_cast<std::byte>(random());
    for (int n = 0; n < 20; ++n) {
      const auto got = reader.front(0s);
      if (!got) {
        damaged += got.failure().code == "damaged" ? 1 : 0;
        break;
      }
      BOOST_REQUIRE(got->data() >= records.data() && got->data() + got->size() <= records.data() + records.size());
      reader.pop();
    }
  }
  BOOST_TEST(damaged > 200u);
}

BOOST_AUTO_TEST_CASE(two_threads_pass_records) {
  for (const std::size_t capacity : {std::size_t{1024}, std::size_t{1} << 16})
    for (const spin_time spin : {spin_time{0}, spin_time{20us}}) {
      ring_memory memory(capacity);
      auto writer = std::move(ring_writer::attach(memory.span())).value();
      auto reader = std::move(ring_reader::attach(memory.span())).value();
      const std::uint32_t count = by_build(100'000U, 20'000U, 10'000U);
      const std::size_t longest = std::min<std::size_t>(writer.largest(), 3000);
      int written = -1;
      std::thread other([&] { written = write_records(writer, count, longest, spin); });
      const int read = read_records(reader, count, longest, spin);
      other.join();
      BOOST_TEST(written == 0);
      BOOST_TEST(read == 0);
    }
}

BOOST_AUTO_TEST_CASE(two_processes_pass_records) {
  const segment_names names;
  for (const spin_time spin : {spin_time{0}, spin_time{20us}}) {
    const auto memory = std::move(shared_memory::create(names("a", "b"), ring_bytes(1 << 14))).value();
    make_ring({memory.data(), memory.size()});
    const std::uint32_t count = by_build(100'000U, 20'000U, 10'000U);
    constexpr std::size_t longest = 3000;
    forked child([&] {
      const auto opened = shared_memory::open(names("a", "b"));
      if (!opened)
        return 3;
      auto writer = ring_writer::attach({opened->data(), opened->size()});
      if (!writer || write_records(*writer, count, longest, spin) != 0)
        return 4;
      return writer->wait_read(writer->position(), 60s) ? 0 : 5;
    });
    auto reader = std::move(ring_reader::attach({memory.data(), memory.size()})).value();
    BOOST_TEST(read_records(reader, count, longest, spin) == 0);
    BOOST_TEST(child.wait() == 0);
    BOOST_TEST(reader.front(60s).failure().code == "closed");
  }
}

// Killed at a random moment: everything that was published arrives, then its death is reported, and a new writer goes
// on.
BOOST_AUTO_TEST_CASE(a_killed_writer_is_found_and_what_it_published_is_kept) {
  const segment_names names;
  std::mt19937 random(9);
  for (int round = 0; round < 10; ++round) {
    const auto memory = std::move(shared_memory::create(names("a", "b"), ring_bytes(1 << 14))).value();
    const std::span<std::byte> span(memory.data(), memory.size());
    make_ring(span);
    forked child([&] {
      auto writer = ring_writer::attach(span);
      return writer ? write_records(*writer, 1'000'000'000, 3000, {}) : 3;
    });
    auto reader = std::move(ring_reader::attach(span)).value();
    std::mt19937 same(5);
    std::uint32_t n = 0;
    const auto kill_at = static_cast<std::uint32_t>(random() % 2000);
    for (;; ++n) {
      if (n == kill_at)
        child.kill(SIGKILL);
      const auto got = reader.front(60s);
      if (!got) {
        BOOST_TEST(got.failure().code == "peer_gone", got.failure().message);
        break;
      }
      BOOST_REQUIRE(is_record(*got, record_of(same, n, 3000)));
      reader.pop();
    }
    BOOST_TEST(n >= kill_at);
    BOOST_TEST(child.wait() == 128 + SIGKILL);
    auto heir = ring_writer::attach(span);
    BOOST_REQUIRE(heir);
    BOOST_REQUIRE(heir->write({bytes{42}}, 1s));
    BOOST_TEST(is_record(reader.front(1s).value(), bytes{42}));
  }
}

BOOST_AUTO_TEST_CASE(a_killed_reader_is_found_by_a_writer_that_waits) {
  const segment_names names;
  const auto memory = std::move(shared_memory::create(names("a", "b"), ring_bytes(1 << 12))).value();
  const std::span<std::byte> span(memory.data(), memory.size());
  make_ring(span);
  forked child([&] {
    auto reader = ring_reader::attach(span);
    for (int n = 0; reader && n < 100; ++n) {
      if (!reader->front(60s))
        return 1;
      reader->pop();
    }
    ::raise(SIGKILL);
    return 0;
  });
  auto writer = std::move(ring_writer::attach(span)).value();
  std::string code;
  for (int n = 0; n < 1000 && code.empty(); ++n)
    if (const auto written = writer.write({bytes(500, 1)}, 60s); !written)
      code = written.failure().code;
  BOOST_TEST(code == "peer_gone");
  BOOST_TEST(writer.reader().died());
  BOOST_TEST(child.wait() == 128 + SIGKILL);
}

// A stopped process is alive: it is the limit that ends the wait, and its heart no longer beats.
BOOST_AUTO_TEST_CASE(a_stopped_writer_runs_into_the_limit) {
  const segment_names names;
  const auto memory = std::move(shared_memory::create(names("a", "b"), ring_bytes(1 << 12))).value();
  const std::span<std::byte> span(memory.data(), memory.size());
  make_ring(span);
  forked child([&] {
    auto writer = ring_writer::attach(span);
    if (!writer || !writer->write({bytes{1}}, 1s))
      return 1;
    ::raise(SIGSTOP);
    return writer->write({bytes{2}}, 1s) ? 0 : 1;
  });
  auto reader = std::move(ring_reader::attach(span)).value();
  BOOST_REQUIRE(reader.front(60s));
  reader.pop();
  siginfo_t info{};
  BOOST_REQUIRE(::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WSTOPPED) == 0);
  const std::uint64_t beats = reader.writer().beats();
  BOOST_TEST(reader.front(100ms).failure().code == "timed_out");
  BOOST_TEST(reader.writer().beats() == beats);
  child.kill(SIGCONT);
  BOOST_TEST(is_record(reader.front(60s).value(), bytes{2}));
  BOOST_TEST(reader.writer().beats() > beats);
  BOOST_TEST(child.wait() == 0);
}

BOOST_AUTO_TEST_SUITE_END()
