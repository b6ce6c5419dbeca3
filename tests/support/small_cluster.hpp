// A cluster as several actor systems of one process over loopback, and requests of every kind for it.
#pragma once
#include "actors/cluster_access.hpp"
#include "actors/coordinator_process.hpp"
#include "actors/worker_process.hpp"
#include "cluster/incarnation.hpp"
#include "tests/support/embedded_options.hpp"
#include "tests/support/sanitizers.hpp"
#include <boost/test/unit_test.hpp>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace troupe::test {

struct small_cluster {
  cluster_identity identity;
  std::unique_ptr<coordinator_process> coordinator;
  std::map<std::uint32_t, std::unique_ptr<worker_process>> workers;

  std::map<std::uint32_t, engine_kind> kinds; // of the ranks that are not of kind normal
  bool senders_known = true;                  // false: caches of prompts find nobody who takes them
  handoff_times times;
  std::uint32_t ep = 1; // ranks that share experts
  std::int32_t min_extra = 4;
  bool shared_memory = true;     // carries bulk bytes; else ZeroMQ
  double copy_bytes_per_s = 2e9; // of experts that move

  // Of `count` workers, ranks 0, 1, ..., of which every `ep` share experts.
  explicit small_cluster(std::uint32_t count = 0, std::uint32_t ep_ = 1, std::int32_t min_extra_ = 4,
                         bool shared_memory_ = true)
      : ep(ep_), min_extra(min_extra_), shared_memory(shared_memory_) {
    using std::chrono::milliseconds; // nobody is to be held for dead because the machine is slow
    identity = {"test" + std::to_string(::getpid()), "digest", {}, milliseconds(500), milliseconds(60000), {}};
    coordinator_setup c;
    c.limits = {30000, 60000, 600000};
    c.cluster = identity;
    c.at = {"127.0.0.1", 0};
    for (std::uint32_t first = 0; ep > 1 && first < count; first += ep) {
      expert_group_setup g;
      g.name = "decode." + std::to_string(first / ep);
      g.first = first;
      g.node.resize(ep);
      g.migration.retry_ms = 500;
      g.migration.publish_interval_ms = 5;
      c.groups.push_back(g);
    }
    coordinator = std::make_unique<coordinator_process>(c);
    identity.coordinators = {{"127.0.0.1", coordinator->port()}};
    for (std::uint32_t rank = 0; rank < count; ++rank)
      start(rank);
  }
  void start(std::uint32_t rank, const engine_options& options = embedded_options()) {
    worker_setup w;
    w.process = {
        .cluster = identity, .name = "decode." + std::to_string(rank), .node = "n0", .incarnation = mint_incarnation()};
    w.rank = rank;
    w.engine = options;
    if (const auto kind = kinds.find(rank); kind != kinds.end())
      w.kind = kind->second;
    for (const auto& [other, kind] : kinds)
      if (kind == engine_kind::prompt && senders_known)
        w.handoffs.senders.push_back({other, "n0"});
    w.handoffs.shared_memory = shared_memory;
    w.handoffs.times = times;
    if (ep > 1) {
      expert_group_place& p = w.experts.emplace();
      p.cluster = identity.name;
      p.node = w.process.node;
      p.tcp_address = shared_memory ? "" : "127.0.0.1";
      p.incarnation = w.process.incarnation;
      p.first = rank / ep * ep;
      p.ranks = static_cast<std::int32_t>(ep);
      p.rank = static_cast<std::int32_t>(rank % ep);
      p.min_extra = min_extra;
      p.copy_bytes_per_s = copy_bytes_per_s;
    }
    workers[rank] = std::make_unique<worker_process>(w);
  }
  cluster_access access(const std::string& name = "batch.1") const {
    cluster_access a;
    a.identity = identity;
    a.name = name;
    a.model = embedded_options().model;
    return a;
  }
};

// Somebody who asks the coordinator of an expert group.
class group_client {
public:
  explicit group_client(const small_cluster& c) : config_(c.identity, 1) {
    const auto membership = connect<membership_actor>(system_, c.identity.coordinators.front());
    BOOST_REQUIRE(membership);
    membership_ = *membership;
  }

  ack move(std::int32_t layer, std::int32_t expert, std::uint32_t rank, std::int32_t slot = -1) {
    ack answer{0, ack_code::unknown, "no answer"};
    ask<ack>(group_of(rank), migrate{layer, expert, rank, slot}, [&](const ack& a) { answer = a; });
    return answer;
  }
  // Without waiting for its end.
  void begin_move(std::int32_t layer, std::int32_t expert, std::uint32_t rank) {
    tell_from_outside(group_of(rank), migrate{layer, expert, rank, -1});
  }
  slot_table table(std::uint32_t rank) {
    slot_table table;
    ask<slot_table>(group_of(rank), slots{}, [&](const slot_table& t) { table = t; });
    return table;
  }
  cluster_status status() {
    cluster_status status;
    ask<cluster_status>(membership_, status_query{}, [&](const cluster_status& s) { status = s; });
    return status;
  }

private:
  template <class Answer, class Handle, class Query, class F>
  void ask(const Handle& whom, const Query& query, const F& take) {
    caf::scoped_actor self{system_};
    troupe::ask(self.ptr(), whom, std::chrono::seconds(60), query)
        .receive([&](const Answer& a) { take(a); }, [](const caf::error&) { BOOST_ERROR("no answer"); });
  }
  expert_group_actor group_of(std::uint32_t rank) {
    expert_group_actor group;
    ask<expert_group_info>(membership_, expert_group_query{rank}, [&](const expert_group_info& i) { group = i.group; });
    BOOST_REQUIRE(group);
    return group;
  }

  cluster_system_config config_;
  bounded_system system_{config_};
  membership_actor membership_;
};

struct asked {
  generation_request request;
  sampling_params params;
};

// Of every kind: greedy, sampled, branches, log-probabilities of the prompt, stop strings, a constraint.
inline std::vector<asked> mixed_requests(int count) {
  std::vector<asked> all;
  for (int i = 0; i < count; ++i) {
    asked a;
    a.request.id = "r" + std::to_string(i);
    a.request.prompt =
        std::string(static_cast<std::size_t>(20 + 37 * (i % 5)), static_cast<char>('a' + i % 20)) + " the";
    a.params.max_tokens = 12 + 5 * (i % 7);
    a.params.temperature = i % 3 == 0 ? 0 : 0.8f;
    a.params.ignore_eos = i % 2 == 0;
    a.params.top_logprobs = i % 4;
    a.params.prompt_logprobs = i % 5 == 0;
    a.params.n = i % 6 == 3 ? 3 : 1;
    a.params.seq_seed = 77u + static_cast<unsigned>(i);
    if (i % 7 == 2)
      a.params.stop = {"e"};
    if (i % 8 == 4)
      a.params.so_args = structured_output_args{.schema_type = "regex", .schema = "[a-d]{3,20}"};
    all.push_back(a);
  }
  return all;
}

// What must be equal in every run.
inline std::string bytes_of(const generation_result& r) {
  generation_result copy = r;
  copy.usage = {};
  copy.cached_tokens = 0;
  return result_line(copy);
}

inline std::map<std::string, std::string> run(LLM& llm, const std::vector<asked>& all,
                                              const std::function<void(std::size_t)>& after = {}) {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> bytes;
  std::size_t left = 0, texts = 0;
  for (const asked& a : all)
    left += static_cast<std::size_t>(a.params.n);
  for (const asked& a : all) {
    const auto id = llm.submit(a.request, a.params, [&](const generation_event& e) {
      const std::lock_guard lock(mutex);
      ++texts;
      if (e.result) {
        bytes[e.id + "/" + std::to_string(e.index)] = bytes_of(*e.result);
        --left;
      }
      changed.notify_all();
    });
    BOOST_REQUIRE(id);
  }
  std::unique_lock lock(mutex);
  for (std::size_t step = 0; after && left > 0; ++step) {
    const std::size_t seen = texts;
    changed.wait(lock, [&] { return left == 0 || texts > seen + 10; });
    lock.unlock();
    after(step);
    lock.lock();
  }
  changed.wait(lock, [&] { return left == 0; });
  return bytes;
}

// The bytes of one process.
inline std::map<std::string, std::string> alone(const std::vector<asked>& all) {
  LLM llm(embedded_options());
  return run(llm, all);
}

inline void check_equal(const std::map<std::string, std::string>& got,
                        const std::map<std::string, std::string>& expected) {
  BOOST_TEST(got.size() == expected.size());
  for (const auto& [id, line] : expected)
    BOOST_CHECK_MESSAGE(got.at(id) == line, id << ": " << got.at(id).substr(0, 300) << "\n  is not\n"
                                               << line.substr(0, 300));
}

// The bytes of one process for two clients that ask for the same at the same time.
inline void check_both(LLM& first, LLM& second, const std::vector<asked>& all) {
  const auto expected = alone(all);
  std::map<std::string, std::string> got;
  std::thread asking([&] { got = run(first, all); });
  const auto others = run(second, all);
  asking.join();
  check_equal(got, expected);
  check_equal(others, expected);
}

// The bytes of one process, while ranks `first` and the next are stopped and started in turn, `times` times.
inline void check_through_restarts(small_cluster& c, const std::vector<asked>& all, std::size_t times,
                                   std::uint32_t first = 0) {
  const auto expected = alone(all);
  LLM llm(c.access());
  std::size_t restarts = 0;
  check_equal(run(llm, all,
                  [&](std::size_t step) {
                    if (step >= times)
                      return;
                    const auto rank = first + static_cast<std::uint32_t>(step % 2);
                    c.workers.erase(rank);
                    c.start(rank);
                    ++restarts;
                  }),
              expected);
  BOOST_TEST(restarts >= by_build(2u, 2u, 1u));
}

} // namespace troupe::test
