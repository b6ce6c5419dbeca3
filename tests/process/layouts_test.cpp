// Layouts of a cluster, and the bytes of one process in all of them. Three with 16 requests; all of them with 128 where
// TROUPE_WHOLE_LAYOUTS is 1, or those whose names have its value in them, as "cp 2 pd off" (minutes; one line each is
// printed).
#include "tests/process/running_cluster.hpp"
#include <iostream>
#include <numeric>

using namespace process_test;

namespace {

struct layout {
  int ep = 1, dp = 1, cp = 1; // ranks that share experts, engines, ranks of an engine that share prompts
  bool pd = false;            // prompts are computed by workers of their own, and only they share them

  bool possible() const { return (pd ? dp : dp * cp) % ep == 0; }
  std::string text() const {
    return "ep " + std::to_string(ep) + " dp " + std::to_string(dp) + " cp " + std::to_string(cp) +
           (pd ? " pd on" : " pd off");
  }
  running_cluster::shape shape() const {
    const char* const drafts = "[engine]\nvarlen = false\n"; // verified whether it pays or not
    const std::string shares = "context_parallel = " + std::to_string(cp) + "\n",
                      group =
                          "expert_parallel = " + std::to_string(ep) + "\ndata_parallel = " + std::to_string(dp) + "\n";
    if (pd)
      return {.workers = dp, .prompts = cp, .group_keys = group, .other_keys = drafts, .prompt_keys = shares};
    return {.workers = dp * cp, .group_keys = group + shares, .other_keys = drafts};
  }
};

std::vector<layout> whole_layouts(const std::string& part) {
  std::vector<layout> all;
  for (const bool pd : {false, true})
    for (const int cp : {1, 2})
      for (const int dp : {1, 2, 4})
        for (const int ep : {1, 2, 4})
          if (const layout l{ep, dp, cp, pd}; l.possible() && (part == "1" || l.text().find(part) != std::string::npos))
            all.push_back(l);
  return all;
}

std::int64_t sum_of(const std::string& results, const std::function<std::int64_t(const nlohmann::json&)>& of) {
  std::int64_t sum = 0;
  for (const auto& line : json_lines(results))
    sum += of(line);
  return sum;
}

// All equal, with drafts taken and cached prompts found.
void check(const layout& l, bool whole, const std::string& lines, const std::map<std::string, std::string>& expected) {
  BOOST_TEST_CONTEXT(l.text()) {
    running_cluster c(l.shape());
    const auto up = c.launch();
    BOOST_REQUIRE_MESSAGE(up.exit_code == 0, up.err);
    const auto began = std::chrono::steady_clock::now();
    const auto run = troupe_reading(lines, {"batch", "-", "-", "--cluster", c.file});
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    BOOST_TEST(run.exit_code == 0, run.err);
    check_equal(by_id(run.out), expected);
    const auto accepted =
        sum_of(run.out, [](const auto& line) { return line["usage"]["accepted"].template get<int>(); });
    const auto cached = sum_of(run.out, [](const auto& line) { return line["cached_tokens"].template get<int>(); });
    BOOST_TEST(accepted > 0);
    if (whole) // of a few requests all may begin before anything is cached
      BOOST_TEST(cached > 0);
    BOOST_TEST(run_troupe({"stop", c.file}).exit_code == 0);
    c.expect_nothing_left();
    std::cout << l.text() << ": " << expected.size() << " outputs compared, " << accepted << " drafts accepted, "
              << cached << " prompt tokens from caches, " << took.count() << " s" << std::endl;
  }
}

} // namespace

BOOST_AUTO_TEST_SUITE(cluster_layouts)

BOOST_AUTO_TEST_CASE(every_layout_gives_the_bytes_of_one_process) {
  const char* const whole = std::getenv("TROUPE_WHOLE_LAYOUTS");
  const std::string lines = mixed_lines(whole != nullptr ? 128 : 16);
  const auto expected = alone(lines);
  for (const layout& l : whole != nullptr ? whole_layouts(whole)
                                          : std::vector<layout>{{2, 2, 1, false}, {2, 2, 1, true}, {2, 1, 2, false}})
    check(l, whole != nullptr, lines, expected);
}

BOOST_AUTO_TEST_SUITE_END()
