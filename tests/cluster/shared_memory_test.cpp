#include "cluster/shared_memory.hpp"
#include "tests/support/forked.hpp"
#include <array>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

// Waits until `there`, at most ten seconds.
template <class There> bool soon(There&& there) {
  for (int n = 0; n < 10'000; ++n) {
    if (there())
      return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

} // namespace

BOOST_AUTO_TEST_SUITE(shared_memory_segments)

BOOST_AUTO_TEST_CASE(names_are_built_from_checked_parts) {
  BOOST_TEST(segment_name("c1", "node_2", "3.kv", "4").value() == "troupe.c1.node_2.3.kv-4");
  for (const auto& [cluster, node, a, b] :
       {std::array{"", "n", "a", "b"}, std::array{"c", "n.x", "a", "b"}, std::array{"c", "n", "../a", "b"},
        std::array{"c", "n", "a", "b-c"}, std::array{"c", "n", "a", ""}}) {
    const auto name = segment_name(cluster, node, a, b);
    BOOST_REQUIRE(!name);
    BOOST_TEST(name.failure().code == "bad_name");
  }
  BOOST_TEST(!segment_name("c", "n", std::string(250, 'a'), "b"));
}

BOOST_AUTO_TEST_CASE(both_sides_see_the_same_bytes_and_the_owner_unlinks) {
  const segment_names names;
  const std::string name = names("a", "b");
  {
    auto mine = shared_memory::create(name, 1000);
    BOOST_REQUIRE(mine);
    BOOST_TEST(mine->size() == 1000u);
    BOOST_TEST(reinterpret_cast<std::uintptr_t>(mine->data()) % 4096 == 0u);
    struct stat facts {};
    BOOST_REQUIRE(::stat(("/dev/shm/" + name).c_str(), &facts) == 0);
    BOOST_TEST((facts.st_mode & 0777) == 0600u);
    for (std::size_t i = 0; i < mine->size(); ++i)
      BOOST_REQUIRE(mine->data()[i] == std::byte{0});
    auto yours = shared_memory::open(name);
    BOOST_REQUIRE(yours);
    BOOST_TEST(!yours->owner());
    BOOST_TEST(!yours->owner_gone());
    std::memcpy(mine->data(), "hello", 6);
    BOOST_TEST(std::strcmp(reinterpret_cast<const char*>(yours->data()), "hello") == 0);

    const auto again = shared_memory::create(name, 1000);
    BOOST_REQUIRE(!again);
    BOOST_TEST(again.failure().code == "in_use");

    { const shared_memory moved = std::move(*mine); }
    BOOST_TEST(yours->owner_gone());
    BOOST_TEST((yours->data()[0] == std::byte{'h'})); // the mapping stays
  }
  BOOST_TEST(list_segments(names.prefix()).empty());
  const auto none = shared_memory::open(name);
  BOOST_REQUIRE(!none);
  BOOST_TEST(none.failure().code == "unknown");
}

BOOST_AUTO_TEST_CASE(a_segment_of_a_killed_owner_is_taken_over) {
  const segment_names names;
  const std::string name = names("a", "b");
  forked owner([&] {
    const auto mine = shared_memory::create(name, 64);
    if (!mine)
      return 1;
    mine->data()[0] = std::byte{1};
    ::pause();
    return 0;
  });
  BOOST_REQUIRE(soon([&] { return bool(shared_memory::open(name)); }));
  auto opened = shared_memory::open(name);
  BOOST_REQUIRE(opened);
  BOOST_TEST(shared_memory::create(name, 64).failure().code == "in_use");
  BOOST_TEST(reap_segments(names.prefix()).empty()); // its owner lives
  BOOST_TEST(!opened->owner_gone());
  owner.kill(SIGKILL);
  BOOST_TEST(owner.wait() == 128 + SIGKILL);
  BOOST_TEST(opened->owner_gone());
  BOOST_TEST(list_segments(names.prefix()).size() == 1u);
  BOOST_TEST(shared_memory::open(name).failure().code == "owner_gone");
  const auto mine = shared_memory::create(name, 128);
  BOOST_REQUIRE(mine);
  BOOST_TEST(mine->size() == 128u);
  BOOST_TEST((mine->data()[0] == std::byte{0}));
}

BOOST_AUTO_TEST_CASE(what_killed_owners_left_is_reaped_and_nothing_else) {
  const segment_names names;
  const auto mine = shared_memory::create(names("a", "living"), 64);
  BOOST_REQUIRE(mine);
  forked owner([&] {
    const auto one = shared_memory::create(names("a", "1"), 64);
    const auto two = shared_memory::create(names("a", "2"), 64);
    ::raise(SIGKILL);
    return one && two ? 0 : 1;
  });
  BOOST_TEST(owner.wait() == 128 + SIGKILL);
  const auto reaped = reap_segments(names.prefix());
  BOOST_TEST(reaped == (std::vector<std::string>{names("a", "1"), names("a", "2")}), boost::test_tools::per_element());
  BOOST_TEST(list_segments(names.prefix()).size() == 1u);
}

// Whoever wins, one has it: the others hear that it is in use.
BOOST_AUTO_TEST_CASE(many_take_over_one_segment_and_one_gets_it) {
  const segment_names names;
  const std::string name = names("a", "b");
  for (int round = 0; round < 20; ++round) {
    forked former([&] {
      const auto mine = shared_memory::create(name, 64);
      ::raise(SIGKILL);
      return 0;
    });
    BOOST_REQUIRE(former.wait() == 128 + SIGKILL);
    std::vector<forked> children;
    int gate[2], keep[2];
    BOOST_REQUIRE(::pipe(gate) == 0 && ::pipe(keep) == 0);
    for (int n = 0; n < 4; ++n)
      children.emplace_back([&] {
        char c = 0;
        ::close(gate[1]);
        ::close(keep[1]);
        (void)!::read(gate[0], &c, 1);
        const auto mine = shared_memory::create(name, 64);
        if (!mine)
          return mine.failure().code == "in_use" ? 0 : 2;
        (void)!::read(keep[0], &c, 1); // until the others have had their answer
        return 1;
      });
    for (const int fd : {gate[0], gate[1], keep[0]})
      ::close(fd);
    int owners = 0, ended = 0;
    for (; ended < 3; ++ended) { // the winner stays
      int how = 0;
      const pid_t pid = ::waitpid(-1, &how, 0);
      BOOST_REQUIRE(pid > 0);
      BOOST_TEST(WEXITSTATUS(how) == 0);
    }
    ::close(keep[1]);
    int how = 0;
    while (::waitpid(-1, &how, 0) > 0)
      owners += WEXITSTATUS(how);
    BOOST_TEST(owners == 1);
    for (forked& child : children)
      (void)child.wait(); // reaped above
  }
}

BOOST_AUTO_TEST_CASE(foreign_files_are_refused) {
  const segment_names names;
  const std::string name = names("a", "b");
  const int fd = ::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  BOOST_REQUIRE(fd >= 0);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  BOOST_REQUIRE(::fcntl(fd, F_OFD_SETLK, &lock) == 0);
  BOOST_TEST(shared_memory::open(name).failure().code == "bad_segment"); // empty
  BOOST_REQUIRE(::ftruncate(fd, 8192) == 0);
  BOOST_TEST(shared_memory::open(name).failure().code == "bad_segment"); // zeros
  BOOST_REQUIRE(::fchmod(fd, 0644) == 0);
  BOOST_TEST(shared_memory::open(name).failure().code == "bad_segment"); // open to others
  ::close(fd);
  ::shm_unlink(name.c_str());
}

BOOST_AUTO_TEST_CASE(a_segment_unlinked_by_somebody_goes_on_and_a_new_one_of_its_name_is_not_touched) {
  const segment_names names;
  const std::string name = names("a", "b");
  {
    std::optional<shared_memory> mine = std::move(shared_memory::create(name, 64)).value();
    const auto yours = std::move(shared_memory::open(name)).value();
    BOOST_REQUIRE(::shm_unlink(name.c_str()) == 0);
    mine->data()[0] = std::byte{5};
    BOOST_TEST((yours.data()[0] == std::byte{5}));
    BOOST_TEST(!yours.owner_gone());
    const auto other = std::move(shared_memory::create(name, 64)).value();
    mine.reset();
    BOOST_TEST(yours.owner_gone());
    BOOST_TEST(bool(shared_memory::open(name)));
  }
}

BOOST_AUTO_TEST_CASE(a_request_for_more_than_there_is_fails_and_leaves_nothing) {
  const segment_names names;
  const auto huge = shared_memory::create(names("a", "b"), std::size_t{1} << 46);
  BOOST_REQUIRE(!huge);
  BOOST_TEST(!huge.failure().message.empty());
}

BOOST_AUTO_TEST_CASE(ends_know_the_living_from_the_dead_and_the_silent) {
  const segment_names names;
  const auto memory = std::move(shared_memory::create(names("a", "b"), sizeof(shared_end))).value();
  auto& end = *new (memory.data()) shared_end;
  BOOST_TEST(!end.taken());
  BOOST_TEST(!end.died());
  forked child([&] {
    if (!end.take())
      return 1;
    for (;;) {
      end.beat();
      std::this_thread::sleep_for(1ms);
    }
  });
  BOOST_REQUIRE(soon([&] { return end.taken(); }));
  BOOST_TEST(end.pid() == child.pid());
  BOOST_TEST(!end.died());
  BOOST_TEST(end.take().failure().code == "in_use");
  const std::uint64_t before = end.beats();
  BOOST_TEST(soon([&] { return end.beats() > before; }));

  child.kill(SIGSTOP);
  siginfo_t info{};
  BOOST_REQUIRE(::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WSTOPPED) == 0);
  BOOST_TEST(!end.died()); // it may go on
  beat_watch watch;
  const auto t = std::chrono::steady_clock::now();
  BOOST_TEST((watch.silent_for(end, t) == 0s));
  BOOST_TEST((watch.silent_for(end, t + 3s) == 3s));
  child.kill(SIGCONT);
  const std::uint64_t stopped = end.beats();
  BOOST_TEST(soon([&] { return end.beats() > stopped; }));
  BOOST_TEST((watch.silent_for(end, t + 4s) == 0s));

  child.kill(SIGKILL);
  BOOST_TEST(soon([&] { return end.died(); })); // a zombie is dead, too
  BOOST_TEST(child.wait() == 128 + SIGKILL);
  BOOST_TEST(end.died());
  BOOST_TEST(bool(end.take()));
  BOOST_TEST(end.pid() == ::getpid());
  BOOST_TEST(!end.died());
  end.leave();
  BOOST_TEST(end.left());
}

BOOST_AUTO_TEST_SUITE_END()
