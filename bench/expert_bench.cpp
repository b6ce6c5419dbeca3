#include "bench/expert_bench.hpp"
#include "actors/expert_part.hpp"
#include "runtime/base/noise.hpp"
#include "runtime/experts/redundancy.hpp"
#include "runtime/model/checkpoint.hpp"
#include <array>
#include <barrier>
#include <map>
#include <sys/prctl.h>
#include <thread>
#include <unistd.h>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;
using namespace std::chrono_literals;

constexpr std::int32_t ranks = 2, min_extra = 4;
constexpr auto link_time = 200us;

// Rows for one layer, in a device's memory.
struct layer_rows {
  layer_rows(device& dev, const model_config& c, int rows, std::uint32_t seed) : count(rows) {
    const auto n = static_cast<std::size_t>(rows), k = static_cast<std::size_t>(c.num_experts_per_tok),
               h = static_cast<std::size_t>(c.hidden_size);
    std::vector<std::int32_t> experts;
    std::vector<float> weights(n * k, 0.25f), values;
    const auto experts_of_layer = static_cast<std::uint32_t>(c.n_routed_experts);
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::uint32_t first = philox(7, i, seed, 0, 0).w[0] % experts_of_layer;
      for (std::uint32_t j = 0; j < k; ++j) // far from each other, so on both ranks
        experts.push_back(static_cast<std::int32_t>((first + j * (experts_of_layer / 4 + 1)) % experts_of_layer));
      for (std::uint32_t d = 0; d < h; ++d)
        values.push_back((static_cast<float>(philox(7, i, d, seed, 1).w[0] % 17) - 8) / 8);
    }
    const auto upload = [&](buffer& b, const void* from, std::size_t bytes) {
      b = dev.allocate(bytes, "rows of the bench");
      work->to_device(b.as<std::byte>(), from, bytes);
    };
    work = dev.make_stream();
    upload(expert, experts.data(), experts.size() * 4);
    upload(weight, weights.data(), weights.size() * 4);
    upload(x, values.data(), values.size() * 4);
    y = dev.allocate(n * k * h * 4, "contributions");
    args.expert = expert.as<const std::int32_t>();
    args.weight = weight.as<const float>();
    args.x = x.as<const float>();
    args.y = y.as<float>();
    args.rows = count;
    args.k = c.num_experts_per_tok;
    args.limit = c.swiglu_limit;
    args.round_inner = true;
  }
  int count;
  std::unique_ptr<stream> work;
  buffer expert, weight, x, y;
  experts_args args;
};

// Two linked ranks with these waves and links.
class two_ranks {
public:
  two_ranks(const std::shared_ptr<const checkpoint>& source, const engine_options& o, int rows, int waves,
            std::chrono::nanoseconds link) {
    const model_config& c = source->config();
    auto placement = initial_placement(c.num_hidden_layers, c.n_routed_experts, ranks,
                                       extra_experts(c.n_routed_experts, min_extra, ranks));
    const auto initial = std::make_shared<const expert_placement>(placement);
    placement.version = 2;
    const auto published = std::make_shared<const expert_placement>(placement);
    expert_rules rules{
        c.num_hidden_layers, c.n_routed_experts, c.hidden_size, c.num_experts_per_tok, c.swiglu_limit, true, true};
    static std::uint64_t groups = 0; // names of shared memory
    const auto number = static_cast<std::uint32_t>(++groups);
    for (std::int32_t r = 0; r < ranks; ++r) {
      expert_group_place place;
      place.cluster = "bench" + std::to_string(::getpid());
      place.node = "n0";
      place.first = number;
      place.incarnation = static_cast<std::uint64_t>(r) + 1;
      place.ranks = ranks;
      place.rank = r;
      place.waves = waves;
      place.link_delay = link;
      devices_[index(r)] = make_device(o.device, {1, {}});
      auto experts = std::make_shared<placed_experts>(
          r, initial, std::make_unique<resident_experts>(source, devices_[index(r)], *initial, r));
      (void)experts->publish(published, {1, 2});
      parts_[index(r)] = std::make_unique<expert_part>(place, std::move(experts), rules);
      engines_[index(r)] = parts_[index(r)]->make_backend(rows);
      parts_[index(r)]->start([](const std::string&) {}, [] {});
      rows_[index(r)] = std::make_unique<layer_rows>(*devices_[index(r)], c, rows, static_cast<std::uint32_t>(r));
    }
    for (std::int32_t r = 0; r < ranks; ++r)
      parts_[index(r)]->set_peers({{1 - r, static_cast<std::uint64_t>(2 - r)}});
    while (!parts_[0]->able(true) || !parts_[1]->able(true))
      std::this_thread::sleep_for(1ms);
  }
  ~two_ranks() {
    for (auto& p : parts_)
      p->stop();
  }

  // Microseconds of one layer while both ranks take steps.
  double layer_us(int layers, int steps) {
    std::array<double, ranks> us{};
    std::barrier begin(ranks);
    std::array<std::thread, ranks> threads;
    for (std::size_t r = 0; r < ranks; ++r)
      threads[r] = std::thread([&, r] {
        begin.arrive_and_wait();
        const stopwatch time;
        for (int s = 0; s < steps; ++s) {
          engines_[r]->begin_step();
          for (int layer = 0; layer < layers; ++layer) {
            engines_[r]->run(*rows_[r]->work, layer, rows_[r]->args);
            engines_[r]->finish(*rows_[r]->work);
          }
          engines_[r]->end_step();
        }
        us[r] = time.seconds() * 1e6 / (layers * steps);
      });
    for (auto& t : threads)
      t.join();
    return std::max(us[0], us[1]);
  }

private:
  static std::size_t index(std::int32_t r) { return static_cast<std::size_t>(r); }
  std::array<std::shared_ptr<device>, ranks> devices_;
  std::array<std::unique_ptr<layer_rows>, ranks> rows_;
  std::array<std::unique_ptr<expert_part>, ranks> parts_; // engines call them
  std::array<std::unique_ptr<expert_backend>, ranks> engines_;
};

} // namespace

void bench_experts(const bench_settings& settings) {
  ::prctl(PR_SET_TIMERSLACK, 1); // of this thread and those that it starts: links take the time that they shall
  const auto source = std::make_shared<const checkpoint>(settings.engine.model);
  const int layers = source->config().num_hidden_layers, rounds = settings.smoke ? 1 : 15,
            steps = settings.smoke ? 1 : 10;
  for (const int rows : settings.smoke ? std::vector{16} : std::vector{16, 64, 256}) {
    using key = std::pair<int, bool>; // waves, slow links
    std::map<key, std::unique_ptr<two_ranks>> groups;
    std::map<key, std::vector<double>> times;
    for (const int waves : {1, 2, 4})
      for (const bool slow : {false, true}) {
        groups[{waves, slow}] = std::make_unique<two_ranks>(source, settings.engine, rows, waves,
                                                            slow ? std::chrono::nanoseconds(link_time) : 0ns);
        groups[{waves, slow}]->layer_us(layers, 1);
      }
    for (int round = 0; round < rounds; ++round) // in turns: what else the machine does meets all alike
      for (auto& [k, group] : groups)
        times[k].push_back(group->layer_us(layers, steps));
    const auto us = [&](int waves, bool slow) { return median(times[{waves, slow}]); };
    const double penalty = us(1, true) - us(1, false);
    for (const int waves : {1, 2, 4}) {
      json line{{"bench", "experts"},
                {"what", "expert layer of two ranks, both busy"},
                {"rows_per_rank", rows},
                {"waves", waves},
                {"link_us", std::chrono::duration_cast<std::chrono::microseconds>(link_time).count()},
                {"layer_us", us(waves, false)},
                {"layer_us_slow_links", us(waves, true)},
                {"penalty_us", us(waves, true) - us(waves, false)}};
      if (waves > 1)
        line["hidden_of_one_wave_penalty"] = 1 - (us(waves, true) - us(waves, false)) / penalty;
      line.update(machine_facts());
      if (settings.smoke)
        line["smoke"] = true;
      settings.emit(line);
    }
  }
}

} // namespace troupe
