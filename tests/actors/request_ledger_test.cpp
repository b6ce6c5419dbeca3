// Requests that outlive the process that asked: whatever of the ledger on disk survives, the next process gives the
// bytes of an undisturbed run.
#include "actors/ledger_keeper.hpp"
#include "actors/ledger_records.hpp"
#include "cluster/actor_system.hpp"
#include "tests/support/process.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/small_cluster.hpp"
#include <boost/test/unit_test.hpp>
#include <random>
#include <sys/resource.h>

using namespace troupe;
using namespace troupe::test;

namespace {

using test_support::read_text;
using test_support::write_text;

std::shared_ptr<request_ledger> opened(const std::string& path, std::uint64_t* cut_bytes = nullptr) {
  ledger_file::recovered found;
  const ledger_settings settings{path, ledger_sync::interval, 0};
  auto file = ledger_file::open(settings, found);
  if (!file)
    BOOST_FAIL(file.failure().message);
  if (cut_bytes != nullptr)
    *cut_bytes = found.cut_bytes;
  return std::make_shared<request_ledger>(settings, std::move(*file), std::move(found.open));
}

std::vector<ledger_entry> open_entries(const std::string& path) {
  return opened(path)->open;
}

std::string key(const std::string& id, std::uint32_t branch) {
  return id + "/" + std::to_string(branch);
}

struct outcome {
  std::map<std::string, generation_result> results; // by id/index
  std::map<std::string, std::string> texts;         // of the events, likewise
};

std::map<std::string, std::string> bytes(const outcome& o) {
  std::map<std::string, std::string> all;
  for (const auto& [id, r] : o.results)
    all[id] = bytes_of(r);
  return all;
}

// Runs the requests until all have ended, or until `enough` says so of the number of events.
outcome run_until(LLM& llm, const std::vector<asked>& all, std::size_t enough = SIZE_MAX) {
  struct gathering {
    std::mutex mutex;
    std::condition_variable changed;
    outcome got;
    std::size_t left = 0, events = 0;
  };
  const auto g = std::make_shared<gathering>();
  for (const asked& a : all)
    g->left += static_cast<std::size_t>(a.params.n);
  for (const asked& a : all)
    BOOST_REQUIRE(llm.submit(a.request, a.params, [g](const generation_event& e) {
      const std::lock_guard lock(g->mutex);
      const std::string id = key(e.id, static_cast<std::uint32_t>(e.index));
      ++g->events;
      g->got.texts[id] += e.text;
      if (e.result) {
        g->got.results[id] = *e.result;
        --g->left;
      }
      g->changed.notify_all();
    }));
  std::unique_lock lock(g->mutex);
  g->changed.wait(lock, [&] { return g->left == 0 || g->events >= enough; });
  return g->got;
}

outcome run_with_ledger(const small_cluster& c, const std::string& path, const std::vector<asked>& all,
                        std::size_t enough = SIZE_MAX) {
  cluster_access access = c.access();
  access.ledger = opened(path);
  LLM llm(access);
  return run_until(llm, all, enough);
}

// Every result is that of an undisturbed run, and every reader got its whole text.
void check_outcome(const outcome& got, const std::map<std::string, std::string>& expected) {
  check_equal(bytes(got), expected);
  for (const auto& [id, r] : got.results)
    BOOST_TEST(got.texts.at(id) == r.text);
}

// What a ledger holds of a branch after `count` of its tokens, by its result.
ledger_tokens first_tokens(const ledger_request& r, const generation_result& result, std::size_t count) {
  ledger_tokens t{r.req, r.branch, r.attempt, static_cast<std::int64_t>(r.prompt.size()), {}, {}, "", ""};
  t.ids.assign(result.token_ids.begin(), result.token_ids.begin() + static_cast<std::ptrdiff_t>(count));
  t.bounds.assign(count, 1);
  if (!result.logprobs.empty())
    t.logprobs = pack_f32({result.logprobs.begin(), result.logprobs.begin() + static_cast<std::ptrdiff_t>(count)});
  for (std::size_t i = 0; i < count && !result.top_logprobs.empty(); ++i)
    t.top += pack_top(result.top_logprobs[i]);
  t.prompt_logprobs = pack_f32(result.prompt_logprobs);
  return t;
}

// Small requests of every kind.
std::vector<asked> short_requests() {
  std::vector<asked> all(4);
  for (std::size_t i = 0; i < all.size(); ++i) {
    asked& a = all[i];
    a.request.id = "s" + std::to_string(i);
    a.request.prompt = "def function_" + std::to_string(i) + "(argument):\n    return the";
    a.params.max_tokens = 10;
    a.params.temperature = 0.8f;
    a.params.ignore_eos = true;
    a.params.seq_seed = 31 + i;
  }
  all[0].params.n = 2;
  all[0].params.top_logprobs = 2;
  all[1].params.stop = {"e", "argument"};
  all[1].params.min_tokens = 6;
  all[1].params.logprobs = false;
  all[2].params.prompt_logprobs = true;
  all[2].params.temperature = 0;
  all[3].params.so_args = structured_output_args{.schema_type = "regex", .schema = "[a-d]{3,20}"};
  all[3].params.ignore_eos = false;
  return all;
}

// The ledger's lines of these requests, as a process wrote them that was stopped at once.
std::map<std::string, ledger_request> admitted(const small_cluster& c, const std::vector<asked>& all) {
  const test_support::temporary_folder folder;
  {
    cluster_access access = c.access();
    access.ledger = opened(folder / "ledger");
    LLM llm(access);
    for (const asked& a : all)
      BOOST_REQUIRE(llm.submit(a.request, a.params, {}));
  }
  std::map<std::string, ledger_request> lines;
  for (const ledger_entry& e : open_entries(folder / "ledger"))
    lines[key(e.request.request_id, e.request.branch)] = e.request;
  return lines;
}

// Of a prompt of one token.
ledger_entry entry(std::uint64_t number, const std::string& id, std::vector<std::int32_t> ids, std::int32_t token) {
  ledger_entry e;
  e.request.req = e.output.req = {7, number};
  e.request.request_id = id;
  e.request.prompt = {token};
  e.output.ids = std::move(ids);
  return e;
}

} // namespace

BOOST_AUTO_TEST_SUITE(request_ledgers)

BOOST_AUTO_TEST_CASE(another_process_goes_on_where_the_last_one_was_stopped) {
  const test_support::temporary_folder folder;
  const auto all = mixed_requests(test::by_build(16, 8, 5));
  const auto expected = alone(all);
  small_cluster c(2);
  std::map<std::string, std::uint32_t> attempts;
  for (std::size_t enough : {20, 50, 90}) { // each goes on behind what the one before had
    const outcome part = run_with_ledger(c, folder / "ledger", all, enough);
    for (const auto& [id, r] : part.results)
      if (r.finish_reason != "abort")
        BOOST_TEST(bytes_of(r) == expected.at(id));
    std::size_t behind = 0;
    attempts.clear();
    for (const ledger_entry& e : open_entries(folder / "ledger")) {
      attempts[key(e.request.request_id, e.request.branch)] = e.request.attempt;
      behind += e.output.ids.empty() ? 0 : 1;
    }
    BOOST_TEST(behind > 0u);
  }
  const outcome got = run_with_ledger(c, folder / "ledger", all);
  check_outcome(got, expected);
  std::uint32_t most = 0;
  for (const auto& [id, attempt] : attempts) {
    BOOST_TEST(got.results.at(id).usage.attempts == attempt + 1);
    most = std::max(most, attempt);
  }
  BOOST_TEST(most >= 3u);
  BOOST_TEST(open_entries(folder / "ledger").empty());
}

BOOST_AUTO_TEST_CASE(behind_every_token_that_could_have_been_the_last) {
  const test_support::temporary_folder folder;
  const auto kinds = short_requests();
  small_cluster c(1);
  const auto lines = admitted(c, kinds);
  outcome whole;
  {
    LLM llm(embedded_options());
    whole = run_until(llm, kinds);
  }
  // One request for each number of tokens of its first branch; seeds are their own, so ids do not matter.
  std::vector<asked> all;
  std::map<std::string, std::string> expected;
  std::map<std::string, std::int64_t> attempts;
  std::vector<ledger_record> records;
  for (const asked& kind : kinds) {
    const std::size_t length = whole.results.at(kind.request.id + "/0").token_ids.size();
    for (std::size_t count = 0; count < length; ++count) {
      asked a = kind;
      a.request.id += "-" + std::to_string(count);
      for (std::uint32_t b = 0; b < static_cast<std::uint32_t>(kind.params.n); ++b) {
        generation_result result = whole.results.at(key(kind.request.id, b));
        ledger_request line = lines.at(key(kind.request.id, b));
        line.req = {77, all.size() + 1};
        line.request_id = result.id = a.request.id;
        line.attempt = 1 + static_cast<std::uint32_t>(count) % 12; // also more than a process has
        expected[key(a.request.id, b)] = bytes_of(result);
        const std::size_t its = std::min(count / (b + 1), result.token_ids.size() - 1);
        if (b == 1 && count % 3 == 0)
          continue; // of this one nothing was written
        attempts[key(a.request.id, b)] = line.attempt + 1;
        records.emplace_back(line);
        records.emplace_back(first_tokens(line, result, its));
      }
      all.push_back(a);
    }
  }
  BOOST_TEST(all.size() >= 30u);
  write_text(folder / "ledger", ledger_image(records));
  const outcome got = run_with_ledger(c, folder / "ledger", all);
  check_outcome(got, expected);
  for (const auto& [id, attempt] : attempts)
    BOOST_TEST(got.results.at(id).usage.attempts == attempt, id);
  BOOST_TEST(open_entries(folder / "ledger").empty());
}

BOOST_AUTO_TEST_CASE(whatever_of_the_file_is_left) {
  const test_support::temporary_folder folder;
  const auto all = mixed_requests(test::by_build(10, 6, 4));
  const auto expected = alone(all);
  small_cluster c(1);
  run_with_ledger(c, folder / "ledger", all, 60);
  const std::string image = read_text(folder / "ledger");
  std::mt19937 random(5);
  for (int i = 0; i < test::by_build(5, 3, 2); ++i) {
    std::string rest = image.substr(0, image.size() / 2 + random() % (image.size() / 2));
    if (i % 2 == 0) {
      char& damaged = rest[rest.size() - 1 - random() % (rest.size() / 4)];
      damaged = static_cast<char>(damaged ^ 0x10);
    }
    write_text(folder / "rest", rest);
    std::uint64_t cut = 0;
    opened(folder / "rest", &cut);
    BOOST_TEST((cut > 0 || i % 2 == 1));
    check_outcome(run_with_ledger(c, folder / "rest", all), expected);
    BOOST_TEST(open_entries(folder / "rest").empty());
  }
}

// Of the same id, but of another prompt, other parameters, another seed or other engines: its tokens mean nothing.
BOOST_AUTO_TEST_CASE(output_of_another_request_is_not_used) {
  const test_support::temporary_folder folder;
  auto all = mixed_requests(5);
  for (asked& a : all)
    a.params.n = 1;
  const auto expected = alone(all);
  small_cluster c(1);
  auto lines = admitted(c, all);
  lines.at("r0/0").prompt.back() ^= 1;
  lines.at("r1/0").params.temperature = 0.7f;
  ++lines.at("r2/0").seed;
  lines.at("r3/0").numerics_id += "x";
  --lines.at("r4/0").truncation;
  std::vector<ledger_record> records;
  for (const auto& [id, line] : lines) {
    records.emplace_back(line);
    records.push_back(ledger_tokens{
        line.req, 0, 1, static_cast<std::int64_t>(line.prompt.size()), {9, 9, 9}, {3}, pack_f32({-1, -1, -1}), ""});
  }
  write_text(folder / "ledger", ledger_image(records));
  const outcome got = run_with_ledger(c, folder / "ledger", all);
  check_outcome(got, expected);
  for (const auto& [id, r] : got.results)
    BOOST_TEST(r.usage.attempts == 1);
  BOOST_TEST(open_entries(folder / "ledger").empty());
}

// A file size limit stands for a full disk.
BOOST_AUTO_TEST_CASE(when_it_cannot_be_written_what_runs_goes_on_and_nothing_begins) {
  const test_support::temporary_folder folder;
  std::vector<asked> all{mixed_requests(4).back()};
  const auto expected = alone(all);
  small_cluster c(1);
  cluster_access access = c.access();
  access.ledger = opened(folder / "ledger");
  LLM llm(access);
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{20, old.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &tight);
  const outcome got = run_until(llm, all);
  ::setrlimit(RLIMIT_FSIZE, &old);
  ::signal(SIGXFSZ, handler);
  check_outcome(got, expected);
  generation_result late;
  for (int i = 0; i < 100 && !late.failure; ++i) { // the gateway hears of it soon
    all[0].request.id = "late" + std::to_string(i);
    late = run_until(llm, all).results.at(all[0].request.id + "/0");
  }
  BOOST_TEST(late.finish_reason == "error");
  BOOST_REQUIRE(late.failure);
  BOOST_TEST(late.failure->code == "ledger_failed");
  BOOST_TEST(late.failure->message.find("free space") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_file_stays_short) {
  const test_support::temporary_folder folder;
  caf::actor_system_config config;
  prepare_local(config, 1);
  caf::actor_system system(config);
  const auto ledger = opened(folder / "ledger");
  const auto keeper = system.spawn<caf::detached>(ledger_keeper, ledger_keeper_setup{ledger, 4096});
  ledger_request r;
  r.prompt.assign(100, 5);
  for (std::uint64_t i = 0; i < 200; ++i) {
    r.req = {7, i};
    tell_from_outside(keeper, ledger_note{r});
    tell_from_outside(keeper, ledger_note{ledger_tokens{r.req, 0, 1, 100, {1, 2, 3}, {3}, "", ""}});
    if (i % 50 != 7)
      tell_from_outside(keeper, ledger_note{ledger_closed{r.req, 0}});
  }
  tell_from_outside(keeper, stop{});
  system.await_all_actors_done();
  BOOST_TEST(ledger->file.bytes() < 2 * 4096u);
  ledger_file::recovered found;
  write_text(folder / "copy", read_text(folder / "ledger"));
  BOOST_REQUIRE(static_cast<bool>(ledger_file::open({folder / "copy"}, found)));
  BOOST_TEST(found.open.size() == 4u);
}

BOOST_AUTO_TEST_CASE(only_what_is_new_of_some_tokens_is_written) {
  tokens t;
  t.req = {7, 1};
  t.branch = 2;
  t.attempt = 3;
  t.first_pos = 10;
  t.ids = {1, 2, 3};
  t.logprobs = pack_f32({-1, -2, -3});
  t.top = pack_top({{1, -1}}) + pack_top({{2, -2}, {5, -3}}) + pack_top({});
  const auto all = news_of(t, 10);
  BOOST_REQUIRE(all);
  BOOST_TEST((all->ids == t.ids && all->logprobs == t.logprobs && all->top == t.top && all->first_position == 10));
  const auto rest = news_of(t, 11);
  BOOST_REQUIRE(rest);
  BOOST_TEST((rest->ids == std::vector<std::int32_t>{2, 3}));
  BOOST_TEST((rest->bounds == std::vector<std::uint32_t>{2}));
  BOOST_TEST(rest->logprobs == pack_f32({-2, -3}));
  BOOST_TEST(rest->top == pack_top({{2, -2}, {5, -3}}) + pack_top({}));
  BOOST_TEST((rest->first_position == 11 && rest->attempt == 3 && rest->branch == 2));
  BOOST_TEST(!news_of(t, 13));
  t.prompt_logprobs = pack_f32({-4});
  BOOST_TEST(news_of(t, 13)->prompt_logprobs == pack_f32({-4}));
}

BOOST_AUTO_TEST_CASE(of_several_entries_the_longest_is_gone_on_with) {
  recovered_branches all(
      {entry(1, "a", {1}, 5), entry(2, "a", {1, 2, 3}, 5), entry(3, "a", {1, 2, 3, 4}, 6), entry(4, "b", {8}, 5)});
  const ledger_request wanted = entry(9, "a", {}, 5).request;
  const auto found = all.take(wanted);
  BOOST_REQUIRE(found.entry);
  BOOST_TEST((found.entry->request.req == req_t{7, 2}));
  BOOST_TEST(found.useless.size() == 2u);
  BOOST_TEST(found.why_not == "prompt");
  const auto again = all.take(wanted);
  BOOST_TEST((!again.entry && again.useless.empty() && again.why_not.empty()));
  BOOST_TEST(all.take(entry(9, "b", {}, 5).request).entry->output.ids.size() == 1u);
}

// A gateway's clients choose ids without knowing of each other.
BOOST_AUTO_TEST_CASE(clients_leave_the_entries_of_others_alone_whatever_their_ids) {
  recovered_branches all({entry(1, "r0", {1}, 5), entry(2, "r0", {1, 2}, 6), entry(3, "r0", {1, 2, 3}, 6)}, true);
  const auto take = [&](std::int32_t token) {
    const auto found = all.take(entry(9, "r0", {}, token).request);
    BOOST_TEST(found.useless.empty());
    BOOST_TEST(found.why_not == "");
    return found.entry ? found.entry->request.req.number : 0u;
  };
  BOOST_TEST(take(6) == 3u);
  BOOST_TEST(take(6) == 2u); // of another client that asked for the same
  BOOST_TEST(take(6) == 0u);
  BOOST_TEST(take(5) == 1u);
  BOOST_TEST(all.take_all().empty());
}

BOOST_AUTO_TEST_SUITE_END()
