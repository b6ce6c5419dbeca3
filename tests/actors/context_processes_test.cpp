// Context-parallel ranks that are processes: the exchange of rows, and the steps that rank 0 sends.
#include "actors/context_exchange.hpp"
#include "actors/context_part.hpp"
#include "actors/context_processes.hpp"
#include "cluster/plan_bytes.hpp"
#include "runtime/base/device_error.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/hand_plan.hpp"
#include "tests/support/queued_device.hpp"
#include "tests/support/sanitizers.hpp"
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <deque>
#include <random>
#include <thread>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

using rows = std::vector<std::byte>;

// One exchange: rows of sequences, the width of a row, and which rows are wanted: all, or the last of each sequence.
struct exchange_case {
  std::vector<std::int32_t> lengths;
  std::int64_t width = 0;
  bool last_only = false;
};

std::vector<exchange_case> exchange_cases(int count) {
  std::mt19937_64 random(11);
  const auto below = [&](int n) { return static_cast<std::int32_t>(random() % static_cast<unsigned>(n)); };
  std::vector<exchange_case> all;
  for (int i = 0; i < count; ++i) {
    exchange_case c;
    for (int n = 1 + below(3); n > 0; --n)
      c.lengths.push_back(1 + below(90));
    c.width = 4 * (1 + below(20));
    c.last_only = below(3) == 0;
    all.push_back(std::move(c));
  }
  return all;
}

// What a rank has after all exchanges; it overwrites its own rows at once.
std::vector<rows> gathered(context_group& group, const std::string& device, const std::vector<exchange_case>& cases) {
  const auto dev = open_device(device, {.threads = 1, .cores = {}});
  const auto s = dev->make_stream();
  std::vector<rows> out;
  std::uint64_t number = 0;
  context_split split(group.ranks());
  for (const exchange_case& c : cases) {
    split.assign(c.lengths);
    std::vector<context_run> runs(split.runs().begin(), split.runs().end());
    std::int32_t step_rows = 0, wanted = 0;
    if (c.last_only)
      runs.clear();
    for (const std::int32_t n : c.lengths) {
      step_rows += n;
      if (c.last_only)
        runs.push_back(split.row(step_rows - 1, wanted++));
    }
    const auto own = split.rows_of(group.rank());
    const auto width = static_cast<std::size_t>(c.width);
    rows mine(std::max<std::size_t>(own.size(), 1) * width),
        all(static_cast<std::size_t>(c.last_only ? wanted : step_rows) * width);
    for (std::size_t i = 0; i < own.size(); ++i)
      for (std::size_t b = 0; b < width; ++b)
        mine[i * width + b] = static_cast<std::byte>(number * 31 + static_cast<std::size_t>(own[i]) * 7 + b);
    const auto bytes = [](rows& r) { return dev_ptr<std::byte>(r.data()); };
    group.meet(++number);
    group.gather(*s, bytes(mine), c.width, runs, bytes(all));
    s->zero(bytes(mine), mine.size());
    s->synchronise();
    out.push_back(std::move(all));
  }
  group.meet(0);
  return out;
}

// The exchange inside one process, rank by rank.
std::vector<std::vector<rows>> in_one_process(int ranks, const std::vector<exchange_case>& cases) {
  const auto meeting = std::make_shared<context_meeting>(ranks);
  std::vector<std::vector<rows>> out(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      context_exchange group(meeting, rank, 600s);
      out[static_cast<std::size_t>(rank)] = gathered(group, "reference", cases);
    });
  for (auto& t : threads)
    t.join();
  return out;
}

context_processes group_of(meeting_board board, std::chrono::milliseconds limit = 600s) {
  return {std::make_shared<meeting_board>(std::move(board)), limit, [](const std::string&) {}};
}

template <class F> std::string failure_of(F&& f) {
  try {
    f();
  } catch (const device_error& e) {
    return e.what();
  }
  return "";
}

// Keeps the plans of its steps; a rank of a group if it has one.
struct kept_steps final : step_engine {
  std::unique_ptr<context_group> group;
  std::deque<std::uint64_t> out;
  std::vector<std::vector<std::uint8_t>> plans;
  std::atomic<std::size_t> launched{0};
  std::uint64_t fails_at = 0; // number of a step

  void launch(const step_plan& plan) override {
    if (plan.number == fails_at)
      throw device_error("injected");
    plan_writer writer;
    const byte_span bytes = writer.write(plan);
    plans.emplace_back(bytes.begin(), bytes.end());
    group->meet(plan.number);
    out.push_back(plan.number);
    ++launched;
  }
  bool finished() override { return true; }
  void collect(step_result& r) override {
    r.number = out.front();
    out.pop_front();
  }
};

// Steps of a few sequences; every fifth plan is larger than a piece.
step_plan numbered_plan(std::uint64_t number) {
  step_plan p;
  p.number = number;
  for (std::uint64_t id = 1; id <= 3; ++id) {
    sampling_params params;
    params.max_tokens = 99;
    hand_run run(10 * (number / 7) + id, std::vector<std::int32_t>(20, static_cast<std::int32_t>(number)), params);
    run.place(static_cast<std::int32_t>(id), static_cast<std::int32_t>(id), 128);
    add_rows(p, run, 20);
  }
  if (number % 5 == 0) {
    p.mask_words = 100000;
    p.masks.assign(200000, static_cast<std::uint32_t>(number));
  }
  return p;
}

context_place place(int rank, std::uint64_t incarnation, std::chrono::milliseconds limit = 600s) {
  return {"test" + std::to_string(::getpid()), "n0", incarnation, 4, 2, rank, limit};
}

// Two ranks in this process, connected.
struct two_ranks {
  std::shared_ptr<context_part> first, second;
  std::shared_ptr<kept_steps> steps[2] = {std::make_shared<kept_steps>(), std::make_shared<kept_steps>()};
  std::shared_ptr<step_engine> sender;
  std::string why[2];
  std::atomic<int> lost{0};

  explicit two_ranks(std::uint64_t fails_at = 0) {
    first = std::make_shared<context_part>(place(0, 70));
    second = std::make_shared<context_part>(place(1, 71));
    BOOST_REQUIRE(!second->join()); // nobody leads yet
    first->lead({31, 5, "some numerics"});
    BOOST_REQUIRE(second->join());
    BOOST_TEST(second->shape().kv_blocks == 31);
    BOOST_TEST(second->shape().snapshots == 5);
    BOOST_TEST(second->shape().numerics_id == "some numerics");
    for (auto& s : steps)
      s->group = (&s == steps ? first : second)->make_group();
    steps[1]->fails_at = fails_at;
    sender = first->make_sender(steps[0]);
    BOOST_TEST(!first->able());
    first->start([this](const std::string& w) { why[0] = w, ++lost; });
    second->start([this](const std::string& w) { why[1] = w, ++lost; }, steps[1]);
    first->be_ready();
    BOOST_TEST(!first->able());
    second->be_ready();
    BOOST_TEST(first->able());
    BOOST_TEST(second->able());
  }
  ~two_ranks() { // nobody writes here any more
    second->stop();
    if (first)
      first->stop();
  }
  two_ranks(const two_ranks&) = delete;
  two_ranks& operator=(const two_ranks&) = delete;
  void wait_until_lost() const {
    while (lost < 2)
      std::this_thread::sleep_for(1ms);
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(context_in_processes)

BOOST_AUTO_TEST_CASE(rows_come_together_as_inside_one_process) {
  const segment_names names;
  for (const int ranks : {2, 3}) {
    const auto cases = exchange_cases(by_build(300, 100, 40));
    const auto expected = in_one_process(ranks, cases);
    // Places of 640 bytes: most exchanges take several pieces.
    std::vector<meeting_board> boards;
    boards.push_back(meeting_board::create(names("m", "x"), {static_cast<std::size_t>(ranks), 640, ""}).value());
    for (int rank = 1; rank < ranks; ++rank)
      boards.push_back(meeting_board::attach(names("m", "x"), static_cast<std::size_t>(rank)).value());
    std::vector<std::vector<rows>> got(boards.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < boards.size(); ++rank)
      threads.emplace_back([&, rank] {
        auto group = group_of(std::move(boards[rank]));
        got[rank] = gathered(group, rank == 1 ? "queued reference" : "reference", cases);
      });
    for (auto& t : threads)
      t.join();
    for (std::size_t rank = 0; rank < got.size(); ++rank)
      BOOST_TEST((got[rank] == expected[rank]), "rank " << rank << " of " << ranks);
  }
}

BOOST_AUTO_TEST_CASE(a_row_that_fits_nowhere_is_refused) {
  const segment_names names;
  auto group = group_of(meeting_board::create(names("m", "x"), {1, 64, ""}).value());
  const auto dev = make_device("reference", {});
  const auto s = dev->make_stream();
  const context_run one{0, 0, 0, 1};
  rows mine(65), all(65);
  const std::string why = failure_of([&] {
    group.gather(*s, dev_ptr<std::byte>(mine.data()), 65, std::span(&one, 1), dev_ptr<std::byte>(all.data()));
  });
  BOOST_TEST(why.find("a row of 65 bytes") != std::string::npos, why);
}

BOOST_AUTO_TEST_CASE(a_killed_rank_is_an_error_of_the_others_and_they_hear_of_it_first) {
  const segment_names names;
  auto board = meeting_board::create(names("m", "x"), {2, 640, ""}).value();
  forked child([&] {
    auto group = group_of(meeting_board::attach(names("m", "x"), 1).value());
    group.meet(1);
    std::this_thread::sleep_for(600s);
    return 0;
  });
  std::string heard;
  context_processes group(std::make_shared<meeting_board>(std::move(board)), 600s,
                          [&](const std::string& why) { heard = why; });
  group.meet(1);
  child.kill(SIGKILL);
  const std::string why = failure_of([&] { group.meet(2); });
  BOOST_TEST(heard == "rank 1 is dead");
  BOOST_TEST(why.find(heard) != std::string::npos, why);
}

BOOST_AUTO_TEST_CASE(the_other_rank_gets_every_plan) {
  two_ranks two;
  step_result r;
  constexpr std::uint64_t steps = 60;
  for (std::uint64_t number = 1; number <= steps; ++number) {
    const step_plan plan = numbered_plan(number);
    two.sender->launch(plan);
    two.sender->collect(r);
    BOOST_TEST(r.number == number);
  }
  while (two.steps[1]->launched < steps)
    std::this_thread::sleep_for(1ms);
  BOOST_TEST((two.steps[0]->plans == two.steps[1]->plans));
  BOOST_TEST(two.lost == 0);
  two.second->stop(); // in order
  const step_plan plan = numbered_plan(steps + 1);
  BOOST_TEST(failure_of([&] { two.sender->launch(plan); }) != "");
  BOOST_TEST(two.why[0] == "rank 1 ends");
  BOOST_TEST(!two.first->able());
}

BOOST_AUTO_TEST_CASE(a_step_that_fails_on_one_rank_ends_all) {
  two_ranks two(3);
  step_result r;
  for (std::uint64_t number = 1; number <= 2; ++number) {
    const step_plan plan = numbered_plan(number);
    two.sender->launch(plan);
    two.sender->collect(r);
  }
  const step_plan plan = numbered_plan(3);
  BOOST_TEST(failure_of([&] { two.sender->launch(plan); }) != "");
  two.wait_until_lost();
  for (const std::string& why : two.why)
    BOOST_TEST(why == "context-parallel rank 1: injected");
  auto again = std::make_shared<context_part>(place(1, 72));
  BOOST_TEST(!again->join()); // a new process waits for a new group
}

BOOST_AUTO_TEST_CASE(a_rank_that_can_take_no_more_steps_ends_all) {
  two_ranks two;
  two.second->fail("it misses experts");
  two.wait_until_lost();
  for (const std::string& why : two.why)
    BOOST_TEST(why == "it misses experts");
  BOOST_TEST(!two.first->able());
  BOOST_TEST(failure_of([&] { two.sender->launch(numbered_plan(1)); }) != "");
}

BOOST_AUTO_TEST_CASE(when_the_first_rank_goes_the_others_hear_of_it_and_find_the_next_group) {
  two_ranks two;
  two.sender.reset();
  two.steps[0]->group.reset();
  two.first.reset();
  while (two.lost < 1)
    std::this_thread::sleep_for(1ms);
  BOOST_TEST(!two.why[1].empty());
  auto next = std::make_shared<context_part>(place(0, 73)), again = std::make_shared<context_part>(place(1, 74));
  next->lead({8, 1, "n"});
  BOOST_TEST(again->join());
  BOOST_TEST(again->shape().kv_blocks == 8);
}

BOOST_AUTO_TEST_SUITE_END()
