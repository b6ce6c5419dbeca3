// Ledgers that survive: whatever happens to the file, exactly the records in front of the damage come back.
#include "cluster/ledger_file.hpp"
#include "tests/support/process.hpp"
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <random>
#include <sys/resource.h>

using namespace troupe;
using list = std::vector<std::int32_t>;

namespace {

ledger_request request(std::uint64_t number, std::uint32_t branch = 0) {
  ledger_request r;
  r.req = {7, number};
  r.branch = branch;
  r.request_id = "r" + std::to_string(number);
  r.numerics_id = "cpu-1";
  r.prompt = {1, 2, static_cast<std::int32_t>(number)};
  r.seed = 0xfedcba9876543210u + number;
  r.truncation = 1;
  return r;
}

ledger_tokens output(std::uint64_t number, std::int64_t first, list ids, std::vector<std::uint32_t> bounds) {
  return {{7, number}, 0, 1, first, std::move(ids), std::move(bounds), "lp", ""};
}

// What a reader of these records must find open.
std::vector<ledger_entry> open_after(std::span<const ledger_record> records) {
  std::vector<ledger_entry> out;
  const auto find = [&](req_t req, std::uint32_t branch) {
    return std::find_if(out.begin(), out.end(),
                        [&](const ledger_entry& e) { return e.request.req == req && e.request.branch == branch; });
  };
  for (const ledger_record& r : records) {
    if (const auto* opened = std::get_if<ledger_request>(&r))
      out.push_back({*opened, {opened->req, opened->branch, opened->attempt, 3, {}, {}, {}, {}}});
    if (const auto* t = std::get_if<ledger_tokens>(&r)) {
      ledger_tokens& all = find(t->req, t->branch)->output;
      all.ids.insert(all.ids.end(), t->ids.begin(), t->ids.end());
      all.bounds.insert(all.bounds.end(), t->bounds.begin(), t->bounds.end());
      all.logprobs += t->logprobs;
      all.top += t->top;
    }
    if (const auto* a = std::get_if<ledger_attempt>(&r))
      find(a->req, a->branch)->request.attempt = find(a->req, a->branch)->output.attempt = a->attempt;
    if (const auto* c = std::get_if<ledger_closed>(&r))
      out.erase(find(c->req, c->branch));
  }
  return out;
}

const std::vector<ledger_record> small{
    request(1),
    request(2),
    output(1, 3, {10, 11, 12}, {1, 2}),
    ledger_attempt{{7, 2}, 0, 2},
    output(1, 6, {13}, {1}),
    ledger_tokens{{7, 2}, 0, 2, 3, {20}, {1}, "", "top"},
    request(3),
    ledger_closed{{7, 2}, 0},
};

// Reads the file that these bytes are, and checks that it can be gone on with.
ledger_file::recovered reread(const std::string& path, const std::string& bytes, bool go_on = true) {
  test_support::write_text(path, bytes);
  ledger_file::recovered got, again;
  {
    auto file = ledger_file::open({path, ledger_sync::none}, got);
    BOOST_REQUIRE(static_cast<bool>(file));
    if (!go_on)
      return got;
    BOOST_REQUIRE(static_cast<bool>(file->append(request(9), 0)));
  }
  auto file = ledger_file::open({path, ledger_sync::none}, again);
  BOOST_REQUIRE(static_cast<bool>(file));
  BOOST_REQUIRE(again.cut_bytes == 0u);
  BOOST_REQUIRE(again.open.size() == got.open.size() + 1);
  BOOST_REQUIRE(std::equal(got.open.begin(), got.open.end(), again.open.begin()));
  BOOST_REQUIRE(again.open.back().request == request(9));
  return got;
}

} // namespace

BOOST_AUTO_TEST_SUITE(request_ledger_files)

BOOST_AUTO_TEST_CASE(a_request_comes_back_with_every_field) {
  const test_support::temporary_folder folder;
  ledger_request r = request(1, 3);
  r.attempt = 2;
  r.eos_ids = {2};
  r.logit_rows = {0, -1};
  r.priority = -3;
  r.deadline_steps = 77;
  r.cache_salt = std::string("s\0t", 3);
  r.chunk_checkpoints = {128, 300};
  r.params.temperature = 0.1f;
  r.params.top_p = 0.9f;
  r.params.top_k = 40;
  r.params.min_p = 0.05f;
  r.params.max_tokens = 1000;
  r.params.min_tokens = 5;
  r.params.ignore_eos = true;
  r.params.stop = {"\n\n", "ö"};
  r.params.stop_token_ids = {5, 6};
  r.params.n = 4;
  r.params.logprobs = false;
  r.params.top_logprobs = 3;
  r.params.prompt_logprobs = true;
  r.params.logprobs_mode = logprobs_source::processed;
  r.params.seq_seed = 42;
  r.params.so_args = structured_output_args{};
  r.params.so_args->schema_type = "json";
  r.params.so_args->schema = "{}";
  r.params.so_args->trigger_token_ids = {9};
  r.params.so_args->bound_token_id = 8;
  r.params.so_args->strict = false;
  r.params.so_args->indent = 2;
  r.params.golden_token_ids = {1, 2};
  r.params.logit_bias = {{3, -0.0f}, {4, 1.5f}};
  ledger_file::recovered got;
  {
    auto file = ledger_file::open({folder / "ledger"}, got);
    BOOST_REQUIRE(static_cast<bool>(file));
    BOOST_TEST(static_cast<bool>(file->append(r, 0)));
  }
  BOOST_REQUIRE(static_cast<bool>(ledger_file::open({folder / "ledger"}, got)));
  BOOST_REQUIRE(got.open.size() == 1u);
  BOOST_TEST((got.open[0].request == r));
  BOOST_TEST(std::signbit(got.open[0].request.params.logit_bias[0].second));
}

BOOST_AUTO_TEST_CASE(open_requests_come_back_where_they_were) {
  const test_support::temporary_folder folder;
  const auto got = reread(folder / "ledger", ledger_image(small));
  BOOST_TEST(got.records == small.size());
  BOOST_TEST(got.cut_bytes == 0u);
  BOOST_REQUIRE(got.open.size() == 2u);
  BOOST_TEST(got.open[0].output.ids == (list{10, 11, 12, 13}), boost::test_tools::per_element());
  BOOST_TEST(got.open[0].output.bounds == (std::vector<std::uint32_t>{1, 2, 1}), boost::test_tools::per_element());
  BOOST_TEST(got.open[0].output.logprobs == "lplp");
  BOOST_TEST((got.open == open_after(small)));
  const auto before = reread(folder / "ledger", ledger_image(std::span(small).first(7)));
  BOOST_TEST(before.open[1].request.attempt == 2u);
  BOOST_TEST(before.open[1].output.top == "top");
}

BOOST_AUTO_TEST_CASE(a_cut_at_every_byte_leaves_the_records_in_front_of_it) {
  const test_support::temporary_folder folder;
  const std::string whole = ledger_image(small);
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    std::size_t kept = 0;
    while (kept < small.size() && ledger_image(std::span(small).first(kept + 1)).size() <= cut)
      ++kept;
    const auto got = reread(folder / "ledger", whole.substr(0, cut), cut % 8 == 0);
    BOOST_TEST_CONTEXT("cut at " << cut) {
      BOOST_REQUIRE_EQUAL(got.records, kept);
      BOOST_REQUIRE((got.open == open_after(std::span(small).first(kept))));
      const std::size_t good = cut < 16 ? 0 : ledger_image(std::span(small).first(kept)).size();
      BOOST_REQUIRE_EQUAL(got.cut_bytes, cut - good);
    }
  }
}

BOOST_AUTO_TEST_CASE(damage_at_every_byte_leaves_the_records_in_front_of_it) {
  const test_support::temporary_folder folder;
  const std::string whole = ledger_image(small);
  std::mt19937 random(1);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ static_cast<char>(1 + random() % 255));
    BOOST_TEST_CONTEXT("damage at " << at) {
      if (at < 16) { // not a ledger at all: it is left alone
        test_support::write_text(folder / "ledger", damaged);
        ledger_file::recovered got;
        const auto file = ledger_file::open({folder / "ledger"}, got);
        BOOST_REQUIRE(!file);
        BOOST_REQUIRE_EQUAL(file.failure().code, "ledger_damaged");
        BOOST_REQUIRE(test_support::read_text(folder / "ledger") == damaged);
        continue;
      }
      std::size_t kept = 0;
      while (ledger_image(std::span(small).first(kept + 1)).size() <= at)
        ++kept;
      const auto got = reread(folder / "ledger", damaged, at % 8 == 0);
      BOOST_REQUIRE_EQUAL(got.records, kept);
      BOOST_REQUIRE((got.open == open_after(std::span(small).first(kept))));
    }
  }
}

BOOST_AUTO_TEST_CASE(one_process_writes_a_ledger) {
  const test_support::temporary_folder folder;
  ledger_file::recovered got;
  {
    const auto first = ledger_file::open({folder / "ledger"}, got);
    BOOST_REQUIRE(static_cast<bool>(first));
    const auto second = ledger_file::open({folder / "ledger"}, got);
    BOOST_REQUIRE(!second);
    BOOST_TEST(second.failure().code == "ledger_locked");
    BOOST_TEST(std::filesystem::exists(folder / "ledger.lock"));
  }
  BOOST_TEST(!std::filesystem::exists(folder / "ledger.lock"));
  BOOST_TEST(static_cast<bool>(ledger_file::open({folder / "ledger"}, got)));
}

BOOST_AUTO_TEST_CASE(records_are_durable_when_the_policy_says_so) {
  const test_support::temporary_folder folder;
  ledger_file::recovered got;
  {
    auto file = ledger_file::open({folder / "each", ledger_sync::each}, got);
    BOOST_TEST(static_cast<bool>(file->append(request(1), 0)));
    BOOST_TEST(file->durable() == 1u);
  }
  {
    auto file = ledger_file::open({folder / "interval", ledger_sync::interval, 10}, got);
    BOOST_TEST(static_cast<bool>(file->append(request(1), 100)));
    BOOST_TEST(static_cast<bool>(file->append(request(2), 105)));
    BOOST_TEST(static_cast<bool>(file->tick(109)));
    BOOST_TEST(file->durable() == 0u);
    BOOST_TEST(static_cast<bool>(file->tick(110))); // ten after the first one
    BOOST_TEST(file->durable() == 2u);
  }
  auto file = ledger_file::open({folder / "none", ledger_sync::none}, got);
  BOOST_TEST(static_cast<bool>(file->append(request(1), 0)));
  BOOST_TEST(static_cast<bool>(file->tick(1000000)));
  BOOST_TEST(file->durable() == 0u);
  BOOST_TEST(file->appended() == 1u);
}

BOOST_AUTO_TEST_CASE(what_is_closed_leaves_the_file_at_the_next_start) {
  const test_support::temporary_folder folder;
  ledger_file::recovered got;
  std::uint64_t full = 0;
  {
    auto file = ledger_file::open({folder / "ledger"}, got);
    for (std::uint64_t i = 1; i <= 50; ++i) {
      BOOST_TEST(static_cast<bool>(file->append(request(i), 0)));
      BOOST_TEST(static_cast<bool>(file->append(output(i, 3, {1, 2}, {2}), 0)));
      if (i != 20)
        BOOST_TEST(static_cast<bool>(file->append(ledger_closed{{7, i}, 0}, 0)));
    }
    full = file->bytes();
  }
  auto file = ledger_file::open({folder / "ledger"}, got);
  BOOST_REQUIRE(got.open.size() == 1u);
  BOOST_TEST((got.open[0].request == request(20)));
  BOOST_TEST(file->bytes() < full / 40);
  BOOST_TEST(std::filesystem::file_size(folder / "ledger") == file->bytes());
  BOOST_TEST(static_cast<bool>(file->append(ledger_closed{{7, 20}, 0}, 0)));
  BOOST_TEST(static_cast<bool>(file->rewrite({})));
  BOOST_TEST(file->bytes() == 16u);
}

// A file size limit stands for a full disk: the write fails half way.
BOOST_AUTO_TEST_CASE(a_full_disk_fails_and_loses_nothing) {
  const test_support::temporary_folder folder;
  ledger_file::recovered got;
  {
    auto file = ledger_file::open({folder / "ledger"}, got);
    BOOST_TEST(static_cast<bool>(file->append(request(1), 0)));
    rlimit old{};
    ::getrlimit(RLIMIT_FSIZE, &old);
    const auto handler = ::signal(SIGXFSZ, SIG_IGN);
    const rlimit tight{file->bytes() + 20, old.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &tight);
    const status full = file->append(request(2), 0);
    ::setrlimit(RLIMIT_FSIZE, &old);
    ::signal(SIGXFSZ, handler);
    BOOST_REQUIRE(!full);
    BOOST_TEST(full.failure().code == "write_failed");
    BOOST_TEST(std::filesystem::file_size(folder / "ledger") == file->bytes());
    BOOST_TEST(static_cast<bool>(file->append(request(3), 0))); // there is room again
  }
  BOOST_TEST(static_cast<bool>(ledger_file::open({folder / "ledger"}, got)));
  BOOST_REQUIRE(got.open.size() == 2u);
  BOOST_TEST((got.open[1].request == request(3)));
}

BOOST_AUTO_TEST_CASE(rows_of_a_prompt_come_again_with_an_attempt_before_its_first_token) {
  const test_support::temporary_folder folder;
  const auto rows = [](std::uint64_t number, std::uint32_t attempt) {
    ledger_tokens t{{7, number}, 0, attempt, 3, {}, {}, "", ""};
    t.prompt_logprobs = "p" + std::to_string(attempt);
    t.logits = "l";
    return t;
  };
  const std::vector<ledger_record> records{
      request(1), rows(1, 1), ledger_attempt{{7, 1}, 0, 2}, rows(1, 2),
      request(2), rows(2, 1), output(2, 3, {5}, {1}),       ledger_attempt{{7, 2}, 0, 2}};
  const auto got = reread(folder / "ledger", ledger_image(records));
  BOOST_REQUIRE(got.open.size() == 2u);
  BOOST_TEST(got.open[0].output.prompt_logprobs == "p2");
  BOOST_TEST(got.open[0].output.logits == "l");
  BOOST_TEST(got.open[1].output.prompt_logprobs == "p1");
}

BOOST_AUTO_TEST_CASE(an_open_ledger_becomes_short_and_goes_on) {
  const test_support::temporary_folder folder;
  ledger_file::recovered got;
  {
    auto file = ledger_file::open({folder / "ledger"}, got);
    for (std::uint64_t i = 1; i <= 50; ++i) {
      BOOST_TEST(static_cast<bool>(file->append(request(i), 0)));
      BOOST_TEST(static_cast<bool>(file->append(output(i, 3, {1, 2}, {2}), 0)));
      if (i != 20)
        BOOST_TEST(static_cast<bool>(file->append(ledger_closed{{7, i}, 0}, 0)));
    }
    const std::uint64_t full = file->bytes();
    BOOST_TEST(static_cast<bool>(file->compact()));
    BOOST_TEST(file->bytes() < full / 40);
    BOOST_TEST(file->durable() == file->appended());
    BOOST_TEST(static_cast<bool>(file->append(output(20, 5, {3}, {1}), 0)));
    const auto second = ledger_file::open({folder / "ledger"}, got);
    BOOST_REQUIRE(!second);
    BOOST_TEST(second.failure().code == "ledger_locked");
  }
  BOOST_TEST(static_cast<bool>(ledger_file::open({folder / "ledger"}, got)));
  BOOST_REQUIRE(got.open.size() == 1u);
  BOOST_TEST(got.open[0].output.ids == (list{1, 2, 3}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
