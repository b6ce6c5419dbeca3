#include "tests/process/troupe_process.hpp"
#include "tests/support/metric_text.hpp"
#include "tests/support/sanitizers.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <set>
#include <sys/mount.h>

using namespace process_test;

namespace {

std::string request(const std::string& id, int tokens, const std::string& more = "") {
  return "{\"id\": \"" + id + "\", \"prompt\": \"def " + id +
         "(\", \"params\": {\"max_tokens\": " + std::to_string(tokens) + more + "}}\n";
}

// Result lines by (id, index) without usage and cached_tokens, the only parts that may differ between runs: how often a
// request was preempted and how much of its prompt the cache had tell of its company, not of itself.
std::map<std::string, std::string> by_id(const std::string& text) {
  std::map<std::string, std::string> results;
  for (auto line : json_lines(text)) {
    line.erase("usage");
    line.erase("cached_tokens");
    const std::string key =
        (line["id"].is_null() ? "line " + std::to_string(line["line"].get<int>()) : line["id"].get<std::string>()) +
        "/" + std::to_string(line["index"].get<int>());
    BOOST_TEST(results.emplace(key, line.dump()).second, "answered twice: " + key);
  }
  return results;
}

} // namespace

BOOST_AUTO_TEST_SUITE(batch_verb)

BOOST_AUTO_TEST_CASE(every_line_is_answered_once_and_bad_ones_fail_alone) {
  const std::string input =
      request("a", 6) + request("b", 4, ", \"n\": 3, \"temperature\": 0.7") + "{not json}\n" + "\n" + request("a", 2) +
      "{\"messages\": [{\"role\": \"user\", \"content\": \"What is the meaning of \\\"lighthouse\\\"?\"}], \"params\": "
      "{\"temperature\": 0, \"max_tokens\": 40}}\n" +
      request("t", 3, ", \"top_k\": 0") + "{\"id\": \"e\", \"prompt\": \"\"}\n" +
      "{\"id\": \"k\", \"prompt\": \"x\", \"colour\": 1}\n" + "{\"id\": \"u\", \"prompt\": \"\xff\"}\n" +
      "{\"id\": \"l\", \"prompt_ids\": [0, 8192]}\n" + "{\"id\": \"w\", \"prompt\": 7}";
  const auto run = troupe_reading(input, {"batch", "-", "-"});
  BOOST_TEST(run.exit_code == 1);
  BOOST_TEST(run.err == "");
  std::map<std::string, nlohmann::json> lines;
  for (const auto& line : json_lines(run.out))
    lines[(line["id"].is_null() ? "line " + line["line"].dump() : line["id"].get<std::string>()) + "/" +
          line["index"].dump()] = line;
  BOOST_TEST(lines.size() == 13u);
  BOOST_TEST(lines["a/0"]["token_ids"].size() == 6u);
  BOOST_TEST(lines["b/2"]["error"].is_null());
  BOOST_TEST(lines["b/0"]["token_ids"] != lines["b/1"]["token_ids"]);
  BOOST_TEST(lines["6/0"]["text"] ==
             "\"lighthouse\" is a noun that means: a thick-walled cylindrical body of water."); // line number as id
  const auto message = [&](const std::string& key) { return lines[key]["error"]["message"].get<std::string>(); };
  BOOST_TEST(lines["line 3/0"]["error"]["code"] == "invalid_json");
  BOOST_TEST(contains(message("line 5/0"), "\"a\""));
  BOOST_TEST(contains(message("t/0"), "top_k = 0"));
  BOOST_TEST(contains(message("e/0"), "empty"));
  BOOST_TEST(contains(message("k/0"), "colour"));
  BOOST_TEST(lines["line 10/0"]["error"]["code"] == "invalid_json"); // bytes that are not UTF-8 are not JSON
  BOOST_TEST(contains(message("l/0"), "8192"));
  BOOST_TEST(contains(message("w/0"), "prompt = 7"));
}

// One line for each (id, index), also of a request that no engine may see.
BOOST_AUTO_TEST_CASE(every_branch_of_a_refused_request_has_its_line) {
  const auto run = troupe_reading(request("never", 4000, ", \"n\": 3, \"seq_seed\": 7") + request("a", 2) +
                                      request("many", 2, ", \"n\": 500"),
                                  {"batch", "--kv-blocks", "4", "-", "-"});
  BOOST_TEST(run.exit_code == 1);
  std::map<std::string, nlohmann::json> lines;
  for (const auto& line : json_lines(run.out))
    BOOST_TEST(lines.emplace(line["id"].get<std::string>() + "/" + line["index"].dump(), line).second);
  BOOST_TEST(lines.size() == 5u);
  std::set<std::uint64_t> seeds;
  for (const char* key : {"never/0", "never/1", "never/2"}) {
    BOOST_TEST(lines[key]["error"]["code"] == "no_space", key);
    seeds.insert(lines[key]["seq_seed"].get<std::uint64_t>());
  }
  BOOST_TEST(seeds.size() == 3u);
  BOOST_TEST(seeds.contains(7u));
  BOOST_TEST(lines["a/0"]["error"].is_null());
  BOOST_TEST(lines["many/0"]["error"]["code"] == "invalid_params");
}

BOOST_AUTO_TEST_CASE(results_do_not_depend_on_the_company) {
  std::string input;
  for (int i = 0; i < 24; ++i)
    input += request("r" + std::to_string(i), 4 + i % 7, i % 2 == 0 ? ", \"temperature\": 0.8, \"top_p\": 0.9" : "");
  const auto together = by_id(troupe_reading(input, {"batch", "-", "-", "--max-num-seqs", "8"}).out);
  const auto alone = by_id(troupe_reading(input, {"batch", "-", "-", "--max-num-seqs", "1", "--threads", "1",
                                                  "--max-num-batched-tokens", "128"})
                               .out);
  BOOST_TEST(together.size() == 24u);
  BOOST_TEST((together == alone));
  BOOST_TEST((by_id(troupe_reading(input, {"batch", "-", "-", "--cp", "2"}).out) == alone));
}

BOOST_AUTO_TEST_CASE(seeds_come_from_the_ids) {
  const auto lines = json_lines(troupe_reading(request("r1", 1) + request("r2", 1), {"batch", "-", "-"}).out);
  std::set<std::uint64_t> seeds;
  for (const auto& line : lines)
    seeds.insert(line["seq_seed"].get<std::uint64_t>());
  BOOST_TEST((seeds == std::set<std::uint64_t>{4455775677501943u, 7862257940660785u})); // exactness.md T10, S = 0
  const auto other = json_lines(troupe_reading(request("r1", 1), {"batch", "-", "-", "--seed", "7"}).out);
  BOOST_TEST(other.at(0)["seq_seed"] == 107904788684558u);
}

BOOST_AUTO_TEST_CASE(metrics_are_written_at_the_end) {
  const temporary_folder folder;
  process_options options;
  options.input = request("a", 4) + request("b", 3, ", \"n\": 2") + "oops\n";
  const auto run = run_troupe({"batch", "-", "-", "--metrics", folder / "m.prom"}, options);
  BOOST_TEST(run.exit_code == 1);
  std::size_t prompt = 0, output = 0;
  for (const auto& line : json_lines(run.out)) {
    prompt += line["prompt_tokens"].get<std::size_t>();
    output += line["token_ids"].size();
  }
  const std::string text = test_support::read_text(folder / "m.prom");
  BOOST_TEST(test_support::metric(text, "prompt_tokens_total") == prompt);
  BOOST_TEST(test_support::metric(text, "generation_tokens_total") == output);
  BOOST_TEST(test_support::metric(text, "request_success_total") == 3);
  BOOST_TEST(test_support::metric(text, "num_requests_running") == 0);

  options.input = request("a", 1);
  const auto nowhere = run_troupe({"batch", "-", "-", "--metrics", folder / "none/m.prom"}, options);
  BOOST_TEST(nowhere.exit_code == 2); // before the model is loaded
  BOOST_TEST(nowhere.out == "");
  BOOST_TEST(contains(nowhere.err, "none/m.prom: the file cannot be written"));
}

BOOST_AUTO_TEST_CASE(an_interrupted_batch_is_continued) {
  const temporary_folder folder;
  const std::string in = folder / "in.jsonl", out = folder / "out.jsonl", whole = folder / "whole.jsonl";
  std::string input = "[]\n";
  for (int i = 0; i < 10; ++i)
    input += request("r" + std::to_string(i), 5, i % 3 == 0 ? ", \"n\": 2" : "");
  test_support::write_text(in, input);
  BOOST_TEST(run_troupe({"batch", in, whole}).exit_code == 1); // the first line is bad
  const std::string text = test_support::read_text(whole);
  const auto expected = by_id(text);

  // Every cut of the file, in the middle of lines too, continues to the same results, and kept lines stay as they are.
  for (const std::size_t keep :
       {std::size_t{0}, text.find('\n') + 1, text.size() / 3, text.size() / 2, text.size() - 1, text.size()}) {
    test_support::write_text(out, text.substr(0, keep));
    const auto run = run_troupe({"batch", in, out});
    BOOST_TEST(run.exit_code == 1);
    const std::string after = test_support::read_text(out);
    BOOST_TEST((by_id(after) == expected));
    const std::size_t complete =
        text.substr(0, keep).rfind('\n') == std::string::npos ? 0 : text.substr(0, keep).rfind('\n') + 1;
    BOOST_TEST(after.substr(0, complete) == text.substr(0, complete));
    BOOST_TEST(contains(run.err, "torn") == (complete != keep));
  }
}

BOOST_AUTO_TEST_CASE(other_files_are_not_appended_to) {
  const temporary_folder folder;
  test_support::write_text(folder / "in.jsonl", request("a", 1));
  for (const std::string& content : {std::string("my notes\n"), request("x", 1), std::string("no line feed")}) {
    test_support::write_text(folder / "out.jsonl", content);
    const auto run = run_troupe({"batch", folder / "in.jsonl", folder / "out.jsonl"});
    BOOST_TEST(run.exit_code == 2);
    BOOST_TEST(contains(run.err, folder / "out.jsonl"));
    BOOST_TEST(test_support::read_text(folder / "out.jsonl") == content);
  }
  const auto same = run_troupe({"batch", folder / "in.jsonl", folder / "in.jsonl"});
  BOOST_TEST(same.exit_code == 2);
  BOOST_TEST(contains(same.err, "same file"));
  BOOST_TEST(test_support::read_text(folder / "in.jsonl") == request("a", 1));
}

BOOST_AUTO_TEST_CASE(results_longer_than_a_request_line_may_be_are_kept) {
  const temporary_folder folder;
  test_support::write_text(folder / "in.jsonl", request("long", 1) + request("short", 1));
  const std::string kept = R"({"id":"long","index":0,"text":")" + std::string((std::size_t{64} << 20) + 1, 'x') +
                           "\",\"error\":null}\n" + R"({"id":"short","index":0,"text":"","error":null})" + "\n";
  test_support::write_text(folder / "out.jsonl", kept);
  const auto run = run_troupe({"batch", folder / "in.jsonl", folder / "out.jsonl"});
  BOOST_TEST(run.exit_code == 0);
  BOOST_TEST((test_support::read_text(folder / "out.jsonl") == kept)); // too long for a message
}

BOOST_AUTO_TEST_CASE(diagnostics_for_a_closed_standard_error_stay_out_of_the_results) {
  const temporary_folder folder;
  process_options options;
  options.input = request("a", 2);
  const std::vector<std::string> close_and_run{"-c", R"(exec "$0" batch - "$1" -v 2>&-)", TROUPE_BINARY,
                                               folder / "out.jsonl"};
  const auto run = test_support::run_process("/bin/sh", close_and_run, options);
  BOOST_TEST(run.exit_code == 0);
  const auto lines = json_lines(test_support::read_text(folder / "out.jsonl"));
  BOOST_REQUIRE(lines.size() == 1u);
  BOOST_TEST(lines[0]["id"] == "a");

  const auto no_input = test_support::run_process(
      "/bin/sh", {"-c", R"(exec "$0" batch - "$1" <&-)", TROUPE_BINARY, folder / "other.jsonl"});
  BOOST_TEST(no_input.exit_code == 1);
  BOOST_TEST(contains(no_input.err, "standard input: reading failed"));
}

BOOST_AUTO_TEST_CASE(a_full_disk_keeps_complete_lines) {
  const temporary_folder folder;
  std::string input;
  for (int i = 0; i < 40; ++i)
    input += request("r" + std::to_string(i), 8);
  test_support::write_text(folder / "in.jsonl", input);

  const auto full = run_troupe({"batch", folder / "in.jsonl", "/dev/full"});
  BOOST_TEST(full.exit_code == 1);
  BOOST_TEST(contains(full.err, "/dev/full: writing failed: No space left on device"));

  // A file system of 16 KiB, where the system lets us mount one.
  const std::string disk = folder / "disk";
  std::filesystem::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=16k") != 0) {
    BOOST_TEST_MESSAGE("no permission to mount a small file system");
    return;
  }
  const auto run = run_troupe({"batch", folder / "in.jsonl", disk + "/out.jsonl"});
  const std::string text = test_support::read_text(disk + "/out.jsonl");
  ::umount(disk.c_str());
  BOOST_TEST(run.exit_code == 1);
  BOOST_TEST(contains(run.err, "No space left on device"));
  BOOST_TEST(text.ends_with('\n'));
  const auto kept = by_id(text);
  BOOST_TEST(!kept.empty());
  BOOST_TEST(kept.size() < 40u);

  test_support::write_text(folder / "out.jsonl", text); // room again: the batch goes on
  BOOST_TEST(run_troupe({"batch", folder / "in.jsonl", folder / "out.jsonl"}).exit_code == 0);
  BOOST_TEST(by_id(test_support::read_text(folder / "out.jsonl")).size() == 40u);
}

BOOST_AUTO_TEST_CASE(the_first_ctrl_c_drains) {
  process_options options;
  options.keep_input_open = true; // more could come: only the signal ends the batch
  options.input = request("a", 60) + request("b", 60);
  bool sent = false;
  options.watch = [&](pid_t pid, const std::string& out, const std::string&) {
    if (!sent && contains(out, "\n")) {
      ::kill(pid, SIGINT);
      sent = true;
    }
  };
  const auto run = run_troupe({"batch", "-", "-"}, options);
  BOOST_TEST(run.exit_code == 130);
  const auto results = by_id(run.out);
  BOOST_TEST(results.size() == 2u);
  for (const auto& [key, line] : results)
    BOOST_TEST(nlohmann::json::parse(line)["finish_reason"] != "abort");
}

BOOST_AUTO_TEST_CASE(the_second_ctrl_c_stops_and_the_batch_can_be_continued) {
  const temporary_folder folder;
  const std::string in = folder / "in.jsonl", out = folder / "out.jsonl";
  std::string input;
  for (int i = 0; i < 8; ++i)
    input += request("r" + std::to_string(i), i == 0 ? 2 : 2000, ", \"ignore_eos\": true");
  test_support::write_text(in, input);
  process_options options;
  int signals = 0;
  options.watch = [&](pid_t pid, const std::string&, const std::string& err) {
    if (signals == 0 && std::filesystem::exists(out) && std::filesystem::file_size(out) > 0) {
      ::kill(pid, SIGINT);
      signals = 1;
    } else if (signals == 1 && contains(err, "Ctrl-C again")) {
      ::kill(pid, SIGINT);
      signals = 2;
    }
  };
  const auto run = run_troupe({"batch", in, out}, options);
  BOOST_TEST(signals == 2);
  BOOST_TEST(run.exit_code == 130);
  const auto kept = by_id(test_support::read_text(out));
  BOOST_TEST(kept.contains("r0/0"));
  BOOST_TEST(kept.size() < 8u);
  for (const auto& [key, line] : kept)
    BOOST_TEST(!contains(line, "\"abort\""));
}

BOOST_AUTO_TEST_CASE(memory_does_not_grow_with_the_input) {
  const temporary_folder folder;
  const std::string in = folder / "in.jsonl";
  {
    std::ofstream file(in);
    for (int i = 0; i < 20000; ++i)
      file << "{\"id\": \"r" << i << "\", \"prompt\": \"" << std::string(2000, 'x')
           << "\", \"params\": {\"top_k\": 0}}\n"; // refused, 40 MB of input
  }
  long peak_kb = 0;
  process_options options;
  options.watch = [&](pid_t pid, const std::string&, const std::string&) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("VmHWM:"))
        peak_kb = std::max(peak_kb, std::stol(line.substr(6)));
  };
  const auto run = run_troupe({"batch", in, folder / "out.jsonl", "--max-num-seqs", "2"}, options);
  BOOST_TEST(run.exit_code == 1);
  BOOST_TEST(json_lines(test_support::read_text(folder / "out.jsonl")).size() == 20000u);
  BOOST_TEST(peak_kb > 0);
  // Freed memory stays in the sanitizer's quarantine of 256 MB; its shadow takes an eighth.
  const long limit_mb = troupe::test::address_sanitizer ? 400 + 512 : 400;
  BOOST_TEST(peak_kb < limit_mb * 1024);
}

BOOST_AUTO_TEST_SUITE_END()
