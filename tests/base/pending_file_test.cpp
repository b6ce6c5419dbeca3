#include "runtime/base/pending_file.hpp"
#include "tests/support/process.hpp"
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <set>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace troupe;

namespace {

std::size_t files_in(const std::string& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

} // namespace

BOOST_AUTO_TEST_SUITE(pending_files)

BOOST_AUTO_TEST_CASE(the_file_changes_when_it_is_committed_and_not_before) {
  const test_support::temporary_folder folder;
  const std::string path = folder / "x";
  test_support::write_text(path, "old");
  {
    pending_file file(path);
    file.write("new", 3);
    BOOST_TEST(test_support::read_text(path) == "old");
    BOOST_TEST(files_in(folder / "") == 2u);
  }
  BOOST_TEST(test_support::read_text(path) == "old");
  BOOST_TEST(files_in(folder / "") == 1u); // the temporary is gone
  pending_file file(path);
  file.write("new", 3);
  file.write("er", 2);
  BOOST_TEST(static_cast<bool>(file.commit()));
  BOOST_TEST(test_support::read_text(path) == "newer");
  BOOST_TEST(files_in(folder / "") == 1u);
}

BOOST_AUTO_TEST_CASE(a_place_that_takes_no_file_is_an_error_with_the_reason) {
  const test_support::temporary_folder folder;
  const status s = write_whole_file(folder / "none/x", "text");
  BOOST_REQUIRE(!s);
  BOOST_TEST(s.failure().code == "write_failed");
  BOOST_TEST(s.failure().message.find("No such file or directory") != std::string::npos);
  ::mkdir((folder / "taken").c_str(), 0777); // renaming a file over a folder fails
  BOOST_TEST(!write_whole_file(folder / "taken", "text"));
  BOOST_TEST(files_in(folder / "") == 1u);
}

BOOST_AUTO_TEST_CASE(what_a_killed_process_was_writing_is_removed) {
  const test_support::temporary_folder folder;
  const pid_t gone = ::fork();
  if (gone == 0)
    ::_exit(0);
  BOOST_REQUIRE(::waitpid(gone, nullptr, 0) == gone);
  const std::vector<std::string> kept{"lease.n0",    "lease.n0.partial-" + std::to_string(::getpid()),
                                      "a.partial-",  "b.partial-12x",
                                      "c.partial-0", "d.partial--1"};
  for (const std::string& name : kept)
    test_support::write_text(folder / name, "x");
  test_support::write_text(folder / "lease.n0.partial-" + std::to_string(gone), "x");
  remove_abandoned_files(folder / "");
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder / ""))
    left.insert(entry.path().filename());
  BOOST_TEST((left == std::set<std::string>(kept.begin(), kept.end())));
  remove_abandoned_files(folder / "none");
}

BOOST_AUTO_TEST_SUITE_END()
