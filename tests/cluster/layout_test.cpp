#include "cluster/group_memory.hpp"
#include "cluster/layout.hpp"
#include "tests/support/cluster_file.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace cluster_test;

namespace {

cluster_layout laid_out(const configuration_reading& r) {
  BOOST_REQUIRE_MESSAGE(r.faults.empty(), (r.faults.empty() ? "" : r.faults.front().what()));
  return layout_of(r.configuration).value();
}

} // namespace

BOOST_FIXTURE_TEST_SUITE(layout, written_cluster_file)

BOOST_AUTO_TEST_CASE(the_loopback_example_has_three_ranks_and_one_of_each_other_process) {
  const cluster_layout l = laid_out(read({loopback_example, {}, {}, default_model}));
  BOOST_REQUIRE(l.ranks.size() == 3);
  BOOST_TEST(l.node_agents.at(0).control_port == 47000);
  BOOST_TEST(l.node_agents[0].port == 0);
  BOOST_TEST(l.coordinators.at(0).control_port == 47001);
  BOOST_TEST(l.gateways.at(0).control_port == 47002);
  BOOST_TEST(l.gateways[0].port == 47800);
  for (int i = 0; i < 3; ++i) {
    const rank_place& r = l.ranks[static_cast<std::size_t>(i)];
    BOOST_TEST(r.rank.value == static_cast<std::uint32_t>(i));
    BOOST_TEST(r.group == (i == 0 ? 0u : 1u));
    BOOST_TEST(r.node == 0u);
    BOOST_TEST(!r.gpu.has_value());
    BOOST_TEST(r.control_port == 47003 + i);
    BOOST_TEST(r.data_port == 48000 + i);
  }
  BOOST_TEST(l.groups[0].engines == 1);
  BOOST_TEST(l.groups[0].expert_groups == 1);
  BOOST_TEST(l.groups[1].first_rank == 1u);
  BOOST_TEST(l.groups[1].engines == 2);
  BOOST_TEST(l.groups[1].data_parallel == 2);
  BOOST_TEST(l.groups[1].expert_groups == 1);
  BOOST_TEST(l.ranks[2].dp_rank == 1);
  BOOST_TEST(l.ranks[2].ep_rank == 1);
}

BOOST_AUTO_TEST_CASE(the_large_example_fills_its_hosts_in_order) {
  const cluster_layout l = laid_out(read({large_example, {}, {}, default_model}));
  BOOST_REQUIRE(l.ranks.size() == 68);
  for (const rank_place& r : l.ranks) {
    const int i = static_cast<int>(r.rank.value);
    BOOST_TEST(r.node == static_cast<std::size_t>(i / 4)); // gpu001 for prefill, then gpu002 and on
    BOOST_TEST(*r.gpu == i % 4);
    BOOST_TEST(r.data_port == 48000 + i);
    BOOST_TEST(r.control_port == 47000 + 17 + 3 + 2 + i);
    if (i < 4) {
      BOOST_TEST(r.engine == 0);
      BOOST_TEST(r.cp_rank == i);
      BOOST_TEST(r.ep_rank == i);
      BOOST_TEST(r.dp_rank == 0);
    } else {
      BOOST_TEST(r.engine == i - 4);
      BOOST_TEST(r.cp_rank == 0);
      BOOST_TEST(r.ep_rank == i - 4);
      BOOST_TEST(r.dp_rank == i - 4);
    }
    BOOST_TEST(r.ep_group == 0);
  }
  BOOST_TEST(l.coordinators.size() == 3u);
  BOOST_TEST(l.coordinators[2].node == 2u);
  BOOST_TEST(l.coordinators[2].control_port == 47019);
  BOOST_TEST(l.gateways[1].node == 1u);
  BOOST_TEST(l.gateways[1].port == 47801);
}

BOOST_AUTO_TEST_CASE(groups_of_ranks_are_consecutive) {
  const auto r = read_text("[[node]]\nname = \"n[0-2]\"\nhost = \"127.0.0.1\"\n[[worker_group]]\nname = \"a\"\n"
                           "count = 16\ncontext_parallel = 2\nexpert_parallel = 4\ndata_parallel = 4\n");
  const cluster_layout l = laid_out(r);
  BOOST_TEST(l.groups[0].engines == 8);
  BOOST_TEST(l.groups[0].expert_groups == 4);
  std::vector<int> on_node(3, 0);
  for (const rank_place& p : l.ranks) {
    const int i = p.index;
    BOOST_TEST(p.engine == i / 2);
    BOOST_TEST(p.cp_rank == i % 2);
    BOOST_TEST(p.dp_group == i / 8); // cp x dp ranks step together
    BOOST_TEST(p.dp_rank == i / 2 % 4);
    BOOST_TEST(p.ep_group == i / 4);
    BOOST_TEST(p.ep_rank == i % 4);
    ++on_node[p.node];
  }
  BOOST_TEST(on_node == (std::vector<int>{6, 5, 5}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(gpus_of_a_node_are_given_to_one_rank_each_over_all_groups) {
  const auto r =
      read_text("[[node]]\nname = \"n[0-1]\"\nhost = \"127.0.0.1\"\ngpus = 2\n"
                "[[worker_group]]\nname = \"p\"\nengine = \"prompt\"\ndevice = \"cuda-reference\"\n"
                "[[worker_group]]\nname = \"d\"\nengine = \"completion\"\ndevice = \"cuda-reference\"\ncount = 3\n");
  const cluster_layout l = laid_out(r);
  std::vector<std::pair<std::size_t, int>> places;
  for (const rank_place& p : l.ranks)
    places.emplace_back(p.node, *p.gpu);
  BOOST_TEST((places == std::vector<std::pair<std::size_t, int>>{{0, 0}, {0, 1}, {1, 0}, {1, 1}}));
  BOOST_TEST(l.groups[1].data_parallel == 1); // expert_parallel / context_parallel
  BOOST_TEST(l.groups[1].expert_groups == 3);
}

BOOST_AUTO_TEST_CASE(ports_of_any_number_stay_zero) {
  const auto r = read_text("[control]\nport = 0\nhealth_port = 8080\n[data]\nport = 0\n[gateway]\nport = 0\ncount = 2\n"
                           "[[node]]\nname = \"n[0-1]\"\nhost = \"127.0.0.1\"\n[[worker_group]]\nname = \"a\"\n");
  const cluster_layout l = laid_out(r);
  BOOST_TEST(l.ranks[0].control_port == 0);
  BOOST_TEST(l.ranks[0].data_port == 0);
  BOOST_TEST(l.gateways[1].port == 0);
  BOOST_TEST(l.gateways[1].node == 0u);
  BOOST_TEST(l.node_agents[1].port == 8081);
}

// ---- what the model adds

BOOST_AUTO_TEST_CASE(redundant_experts_and_memory_of_the_loopback_example) {
  auto r = read({loopback_example, {}, {}, default_model});
  const cluster_model model = cluster_model::find(r);
  BOOST_TEST(texts(r) == "");
  BOOST_TEST(model.folder == default_model);
  const auto memory = memory_of_groups(r, *model.config);
  BOOST_TEST(texts(r) == "");
  BOOST_TEST(memory[0].extra_experts == 0); // its one rank holds all 24
  BOOST_TEST(memory[0].expert_slots == 24);
  BOOST_TEST(memory[1].extra_experts == 4);
  BOOST_TEST(memory[1].expert_slots == 14);
  BOOST_TEST(memory[1].rank.experts * 24 == memory[0].rank.experts * 14);
  BOOST_TEST(memory[1].rank.state_slots == 17);
  BOOST_TEST(memory[1].rank.max_model_len == 2048);
  BOOST_TEST(memory[1].kv_bytes(256) == 256 * memory[1].rank.block_bytes);
}

BOOST_AUTO_TEST_CASE(redundant_experts_and_memory_of_the_large_example) {
  auto r = read({large_example, {}, {}, default_model});
  const cluster_model model = cluster_model::find(r);
  BOOST_TEST(texts(r) == "");
  BOOST_TEST(r.notes.back() == "the checkpoint is not checked: /models/DeepSeek-V4.1-Flash is not on this machine; " +
                                   root + "/models/v41-flash says what model it is");
  const auto memory = memory_of_groups(r, *model.config);
  BOOST_TEST(texts(r) == "");
  constexpr std::int64_t slot = 18800640;
  BOOST_TEST(memory[0].extra_experts == 32);
  BOOST_TEST(memory[0].expert_slots == 104);
  BOOST_TEST(memory[0].rank.experts == 104 * 40 * slot);
  BOOST_TEST(memory[1].extra_experts == 64);
  BOOST_TEST(memory[1].expert_slots == 7);
  BOOST_TEST(memory[1].rank.experts == 7 * 40 * slot); // 5.26 GB
  BOOST_TEST(memory[1].rank.state_slots == 257);
  BOOST_TEST(memory[1].rank.max_model_len == 131072);
}

BOOST_AUTO_TEST_CASE(a_model_that_is_nowhere_is_said_to_be) {
  auto r = read({large_example, {"model.config=/nonexistent"}, {}, default_model});
  BOOST_TEST(!cluster_model::find(r).config.has_value());
  BOOST_TEST(texts(r).find("/nonexistent/config.json") != std::string::npos);
  r = read({large_example, {"model.config="}, {}, default_model});
  BOOST_TEST(!cluster_model::find(r).config.has_value());
  BOOST_TEST(texts(r) == "");
  BOOST_TEST(
      r.notes.back() ==
      "redundant experts and memory are not derived: the model /models/DeepSeek-V4.1-Flash is not on this machine, "
      "and model.config names no other folder with its config.json");
}

BOOST_AUTO_TEST_CASE(what_the_model_or_the_memory_does_not_allow) {
  const auto said = [&](const std::string& file, std::vector<std::string> set) {
    auto r = read({file, std::move(set), {}, default_model});
    const cluster_model model = cluster_model::find(r);
    memory_of_groups(r, model.config.value());
    return texts(r);
  };
  BOOST_TEST(said(loopback_example, {"model.max_model_len=1000000"})
                 .starts_with("command line: model.max_model_len = 1000000: the model has "));
  BOOST_TEST(
      said(loopback_example, {"worker_group.decode.kv_blocks=15"}) ==
      "command line: worker_group.decode.kv_blocks = 15: a request of 2048 tokens takes 16; give so many, 0, or a "
      "smaller model.max_model_len\n");
  BOOST_TEST(
      said(loopback_example, {"worker_group.decode.count=32", "worker_group.decode.expert_parallel=32",
                              "worker_group.decode.data_parallel=32"}) ==
      "command line: worker_group.decode.expert_parallel = 32: the model has 24 routed experts; give fewer ranks\n");
  // gpu001 has GPUs of 60 GiB: 93 GiB of experts of prefill do not fit; 7 slots and the rest of decode do into 80 GiB.
  std::vector<std::string> memory;
  for (int i = 1; i <= 17; ++i)
    memory.push_back((i < 10 ? "node.gpu00" : "node.gpu0") + std::to_string(i) +
                     (i == 1 ? ".gpu_memory_gib=60" : ".gpu_memory_gib=80"));
  const std::string small_gpu = said(large_example, memory);
  BOOST_TEST(small_gpu.find("worker_group.prefill.count = 4: a rank takes ") != std::string::npos, small_gpu);
  BOOST_TEST(small_gpu.find("worker_group.decode") == std::string::npos, small_gpu);
}

BOOST_AUTO_TEST_SUITE_END()
