// Context-parallel ranks that are processes: the exchange of rows, and the steps that rank 0 sends.
#include "actors/context_exchange.hpp"
#include "actors/context_part.hpp"
#include "actors/context_processes.hpp"
#include "cluster/meeting_board.hpp"
#include "cluster/plan_bytes.hpp"
#include "runtime/base/device_error.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/hand_plan.hpp"
#include "tests/support/linked_ranks.hpp"
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

context_processes group_of(std::shared_ptr<meeting> place) {
  return {std::move(place), 600s, [](const std::string&) {}};
}
context_processes group_of(meeting_board board) {
  return group_of(std::make_shared<meeting_board>(std::move(board)));
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

// nodes: of the ranks.
context_place place(int rank, std::uint64_t incarnation, const std::vector<std::size_t>& nodes) {
  const auto at = static_cast<std::size_t>(rank);
  return {"test" + std::to_string(::getpid()),
          "n" + std::to_string(nodes[at]),
          incarnation,
          4,
          static_cast<std::int32_t>(nodes.size()),
          rank,
          600s,
          nodes,
          "127.0.0.1"};
}

// What the cluster knows of processes that are ranks.
struct members {
  view known{1, 0, {}};

  void take(const context_part& part, member_state state = member_state::warming) {
    const context_place& p = part.place();
    member_entry e;
    e.who.name = "decode." + std::to_string(p.rank);
    e.who.rank = p.first + static_cast<std::uint32_t>(p.rank);
    e.who.incarnation = p.incarnation;
    e.who.context = part.entry();
    e.state = state;
    std::erase_if(known.members, [&](const member_entry& o) { return o.who.rank == e.who.rank; });
    known.members.push_back(e);
    ++known.mepoch;
  }
};

// Ranks in this process, connected. On one node they share memory.
struct connected_ranks {
  std::vector<std::shared_ptr<context_part>> parts;
  std::vector<std::shared_ptr<kept_steps>> steps;
  std::shared_ptr<step_engine> sender;
  std::vector<std::string> why;
  std::atomic<std::size_t> lost{0};
  members cluster;

  // fails_at: of the last rank.
  explicit connected_ranks(const std::vector<std::size_t>& nodes, std::uint64_t fails_at = 0) : why(nodes.size()) {
    for (std::size_t r = 0; r < nodes.size(); ++r) {
      parts.push_back(std::make_shared<context_part>(place(static_cast<int>(r), 70 + r, nodes)));
      steps.push_back(std::make_shared<kept_steps>());
    }
    steps.back()->fails_at = fails_at;
    for (std::size_t r = 1; r < parts.size(); ++r)
      BOOST_REQUIRE(!parts[r]->join()); // nobody leads yet
    parts[0]->lead({31, 5, "some numerics"});
    for (std::size_t r = 0; r < parts.size(); ++r) {
      if (r > 0)
        join(r);
      steps[r]->group = parts[r]->make_group();
      cluster.take(*parts[r]);
    }
    sender = parts[0]->make_sender(steps[0]);
    for (std::size_t r = 0; r < parts.size(); ++r) {
      parts[r]->hear(cluster.known);
      parts[r]->start([this, r](const std::string& w) { why[r] = w, ++lost; }, r == 0 ? nullptr : steps[r]);
      BOOST_TEST(!parts[0]->able());
      parts[r]->be_ready();
    }
    for (const auto& p : parts)
      while (!p->able())
        std::this_thread::sleep_for(1ms);
  }
  ~connected_ranks() { // nobody writes here any more
    for (const auto& p : parts)
      if (p)
        p->stop();
  }
  connected_ranks(const connected_ranks&) = delete;
  connected_ranks& operator=(const connected_ranks&) = delete;

  void join(std::size_t r) {
    BOOST_REQUIRE(parts[r]->join(cluster.known.members));
    BOOST_TEST(parts[r]->shape().kv_blocks == 31);
    BOOST_TEST(parts[r]->shape().snapshots == 5);
    BOOST_TEST(parts[r]->shape().model == "some numerics");
  }
  void wait_until_lost(std::size_t ranks) const {
    while (lost < ranks)
      std::this_thread::sleep_for(1ms);
  }
};

const std::vector<std::vector<std::size_t>> layouts{{0, 0}, {0, 1}, {0, 0, 1}, {0, 1, 1}};

std::string text_of(const std::vector<std::size_t>& nodes) {
  std::string text = "ranks on nodes";
  for (const std::size_t n : nodes)
    text += " " + std::to_string(n);
  return text;
}

} // namespace

BOOST_AUTO_TEST_SUITE(context_in_processes)

BOOST_AUTO_TEST_CASE(rows_come_together_as_inside_one_process) {
  for (const int ranks : {2, 3}) {
    const auto count = static_cast<std::size_t>(ranks);
    const auto cases = exchange_cases(by_build(300, 100, 40));
    const auto expected = in_one_process(ranks, cases);
    for (const bool links : {false, true}) {
      // Places of 640 bytes: most exchanges take several pieces.
      const segment_names names;
      std::vector<std::shared_ptr<meeting>> places;
      if (links)
        for (auto& l : linked_ranks(count, 640))
          places.push_back(std::move(l));
      else
        places.push_back(
            std::make_shared<meeting_board>(meeting_board::create(names("m", "x"), {count, 640, ""}).value()));
      for (std::size_t rank = 1; rank < count && !links; ++rank)
        places.push_back(std::make_shared<meeting_board>(meeting_board::attach(names("m", "x"), rank).value()));
      std::vector<std::vector<rows>> got(count);
      std::vector<std::thread> threads;
      for (std::size_t rank = 0; rank < count; ++rank)
        threads.emplace_back([&, rank] {
          auto group = group_of(places[rank]);
          got[rank] = gathered(group, rank == 1 ? "queued reference" : "reference", cases);
        });
      for (auto& t : threads)
        t.join();
      for (std::size_t rank = 0; rank < count; ++rank)
        BOOST_TEST((got[rank] == expected[rank]), "rank " << rank << " of " << ranks << (links ? " over links" : ""));
    }
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

BOOST_AUTO_TEST_CASE(the_other_ranks_get_every_plan) {
  for (const auto& nodes : layouts)
    BOOST_TEST_CONTEXT(text_of(nodes)) {
      connected_ranks all(nodes);
      step_result r;
      constexpr std::uint64_t steps = 60;
      for (std::uint64_t number = 1; number <= steps; ++number) {
        const step_plan plan = numbered_plan(number);
        all.sender->launch(plan);
        all.sender->collect(r);
        BOOST_TEST(r.number == number);
      }
      for (std::size_t rank = 1; rank < nodes.size(); ++rank) {
        while (all.steps[rank]->launched < steps)
          std::this_thread::sleep_for(1ms);
        BOOST_TEST((all.steps[rank]->plans == all.steps[0]->plans));
      }
      BOOST_TEST(all.lost == 0u);
      all.parts.back()->stop(); // in order
      const step_plan plan = numbered_plan(steps + 1);
      BOOST_TEST(failure_of([&] { all.sender->launch(plan); }) != "");
      BOOST_TEST(all.why[0] == "rank " + std::to_string(nodes.size() - 1) + " ends");
      BOOST_TEST(!all.parts[0]->able());
    }
}

BOOST_AUTO_TEST_CASE(a_step_that_fails_on_one_rank_ends_all) {
  for (const auto& nodes : layouts)
    BOOST_TEST_CONTEXT(text_of(nodes)) {
      connected_ranks all(nodes, 3);
      step_result r;
      for (std::uint64_t number = 1; number <= 2; ++number) {
        const step_plan plan = numbered_plan(number);
        all.sender->launch(plan);
        all.sender->collect(r);
      }
      const step_plan plan = numbered_plan(3);
      BOOST_TEST(failure_of([&] { all.sender->launch(plan); }) != "");
      all.wait_until_lost(nodes.size());
      const std::string last = std::to_string(nodes.size() - 1);
      for (const std::string& why : all.why)
        BOOST_TEST(why == "context-parallel rank " + last + ": injected");
      context_part again(place(static_cast<int>(nodes.size()) - 1, 79, nodes));
      BOOST_TEST(!again.join(all.cluster.known.members)); // a new process waits for a new group
    }
}

BOOST_AUTO_TEST_CASE(a_rank_that_can_take_no_more_steps_ends_all) {
  for (const auto& nodes : layouts)
    BOOST_TEST_CONTEXT(text_of(nodes)) {
      connected_ranks all(nodes);
      all.parts[1]->fail("it misses experts");
      all.wait_until_lost(nodes.size());
      for (const std::string& why : all.why)
        BOOST_TEST(why == "it misses experts");
      BOOST_TEST(!all.parts[0]->able());
      BOOST_TEST(failure_of([&] { all.sender->launch(numbered_plan(1)); }) != "");
    }
}

BOOST_AUTO_TEST_CASE(when_the_first_rank_goes_the_others_hear_of_it_and_find_the_next_group) {
  for (const auto& nodes : layouts)
    BOOST_TEST_CONTEXT(text_of(nodes)) {
      connected_ranks all(nodes);
      all.sender.reset();
      all.steps[0]->group.reset();
      all.cluster.take(*all.parts[0], member_state::dead);
      all.parts[0].reset();
      all.wait_until_lost(nodes.size() - 1);
      for (std::size_t rank = 1; rank < nodes.size(); ++rank)
        BOOST_TEST(!all.why[rank].empty());
      context_part next(place(0, 77, nodes)), again(place(1, 78, nodes));
      BOOST_TEST(!again.join(all.cluster.known.members));
      next.lead({8, 1, "n"});
      const auto group = next.make_group();
      all.cluster.take(next);
      BOOST_TEST(again.join(all.cluster.known.members));
      BOOST_TEST(again.shape().kv_blocks == 8);
    }
}

// What a rank hears of the others where no memory tells it.
BOOST_AUTO_TEST_CASE(what_the_cluster_says_of_a_rank_ends_all) {
  struct word {
    std::size_t of, to;
    std::uint64_t incarnation; // of rank `of` by now
    member_state state;
    std::string why;
  };
  for (const word& w :
       {word{1, 0, 71, member_state::dead, "rank 1 is dead"}, word{1, 0, 71, member_state::left, "rank 1 is gone"},
        word{1, 0, 99, member_state::warming, "rank 1 was started anew"},
        word{0, 1, 70, member_state::dead, "rank 0 is dead"},
        word{0, 1, 99, member_state::active, "rank 0 was started anew"}})
    BOOST_TEST_CONTEXT(w.why) {
      connected_ranks all({0, 1});
      view v = all.cluster.known;
      v.members.erase(v.members.begin() + static_cast<std::ptrdiff_t>(1 - w.of)); // says nothing of the other
      v.members[0].state = w.state;
      if (v.members[0].who.incarnation != w.incarnation)
        v.members[0].who.context.group = v.members[0].who.incarnation = w.incarnation;
      all.parts[w.to]->hear({1, 9, {}});
      std::this_thread::sleep_for(60ms);
      BOOST_TEST(all.lost == 0u); // a view without a rank says nothing of it
      all.parts[w.to]->hear(v);
      all.wait_until_lost(2);
      // who did not hear it itself may see the link go first
      BOOST_TEST(std::ranges::count(all.why, std::string(w.why)) >= 1);
      for (const std::string& why : all.why)
        BOOST_TEST((why == w.why || why.ends_with("is gone: the link that brings its steps is lost")), why);
    }
}

BOOST_AUTO_TEST_CASE(a_place_in_a_group_on_several_nodes_is_taken_once) {
  const std::vector<std::size_t> nodes{0, 1, 1};
  context_part first(place(0, 70, nodes));
  first.lead({31, 5, "n"});
  const auto group = first.make_group();
  members cluster;
  cluster.take(first);
  const auto joins = [&](int rank, std::uint64_t incarnation) {
    context_part part(place(rank, incarnation, nodes));
    const bool joined = part.join(cluster.known.members);
    if (joined) {
      const auto its = part.make_group();
      cluster.take(part, member_state::dead);
    }
    return joined;
  };
  BOOST_TEST(!joins(2, 72)); // rank 1 is to hold the board of their node
  cluster.known.members[0].state = member_state::dead;
  BOOST_TEST(!joins(1, 71));
  cluster.known.members[0].state = member_state::warming;
  BOOST_TEST(joins(1, 71));
  BOOST_TEST(!joins(1, 73)); // the place was taken
  BOOST_TEST(!joins(2, 72)); // the group has lost a rank
}

BOOST_AUTO_TEST_SUITE_END()
