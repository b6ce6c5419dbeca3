// Files that one holder has at a time, and that are gone with it.
#include "cluster/file_lock.hpp"
#include "tests/support/process.hpp"
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <thread>
#include <vector>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(file_locks)

BOOST_AUTO_TEST_CASE(the_file_goes_with_its_holder) {
  const test_support::temporary_folder folder;
  const std::string path = folder / "a.lock";
  BOOST_TEST(remove_stale_lock(path)); // there is none
  {
    auto first = file_lock::take(path);
    BOOST_REQUIRE(static_cast<bool>(first));
    const file_lock moved = std::move(*first);
    const auto second = file_lock::take(path);
    BOOST_REQUIRE(!second);
    BOOST_TEST(second.failure().code == "held");
    BOOST_TEST(!remove_stale_lock(path));
    BOOST_TEST(std::filesystem::exists(path));
  }
  BOOST_TEST(!std::filesystem::exists(path));
  test_support::write_text(path, ""); // of a holder that was killed
  BOOST_TEST(static_cast<bool>(file_lock::take(path)));
  BOOST_TEST(!std::filesystem::exists(path));
  test_support::write_text(path, "");
  BOOST_TEST(remove_stale_lock(path));
  BOOST_TEST(!std::filesystem::exists(path));
  const auto nowhere = file_lock::take(folder / "none/a.lock");
  BOOST_REQUIRE(!nowhere);
  BOOST_TEST(nowhere.failure().code == "write_failed");
  BOOST_TEST(nowhere.failure().message == "No such file or directory");
}

// Each removes the file that others have opened and wait for.
BOOST_AUTO_TEST_CASE(never_two_hold_it) {
  const test_support::temporary_folder folder;
  const std::string path = folder / "a.lock";
  std::atomic<int> holders = 0, together = 0;
  std::vector<std::thread> all;
  for (int i = 0; i < 4; ++i)
    all.emplace_back([&] {
      for (int held = 0; held < 2000;) {
        const auto lock = file_lock::take(path);
        if (!lock) {
          std::this_thread::yield();
          continue;
        }
        ++held;
        together += ++holders > 1 ? 1 : 0;
        std::this_thread::yield();
        --holders;
      }
    });
  for (std::thread& t : all)
    t.join();
  BOOST_TEST(together == 0);
  BOOST_TEST(!std::filesystem::exists(path));
}

BOOST_AUTO_TEST_SUITE_END()
