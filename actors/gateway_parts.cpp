#include "actors/gateway_parts.hpp"
#include "actors/engine_snapshot_of.hpp"
#include "cluster/shutdown.hpp"
#include "runtime/model/checkpoint_digest.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace troupe {

using namespace std::chrono_literals;

model_texts load_texts(const std::string& model) {
  const auto source = std::make_shared<const checkpoint>(model);
  return {std::shared_ptr<const model_config>(source, &source->config()),
          std::make_shared<const tokenizer>(tokenizer::load(model + "/tokenizer.json")), texts_digest(model)};
}

gateway_parts::gateway_parts(caf::actor_system& system, const gateway_source& source)
    : texts(load_texts(source.model)), system_(system) {
  gateway_setup g;
  g.replays = true;
  g.serves_others = source.serves_others;
  g.vocabulary = texts.vocabulary;
  g.texts = texts.digest;
  g.eos_ids = {texts.config->eos_token_id};
  g.seed = source.seed;
  g.engine_wait = source.engine_wait;
  g.max_attempts = source.max_attempts;
  g.unacked_messages = source.unacked_messages;
  g.random_bits = random_bits_of_system;
  if (source.ledger) {
    g.recovered = std::move(source.ledger->open);
    g.ledger = ledger_ = system.spawn<caf::detached>(ledger_keeper, ledger_keeper_setup{source.ledger});
  }
  gateway = system.spawn(troupe::gateway, g);
  directory = system.spawn<caf::detached>(engine_directory, gateway, source.engines);
}

void gateway_parts::end() {
  tell_from_outside(directory, stop{});
  tell_from_outside(gateway, stop{});
  if (ledger_) { // last: the sessions have told it everything by then
    wait_for_actors(system_, 30s, 1);
    tell_from_outside(ledger_, stop{});
  }
  if (const std::size_t left = wait_for_actors(system_, 30s))
    give_up_on_actors(left);
}

directory_report gateway_parts::engines(caf::scoped_actor& self) const {
  return report_of<directory_report>(self, directory, directory_query{});
}

std::string gateway_parts::metrics(const std::string& cluster) const {
  caf::scoped_actor self{system_};
  const auto front = report_of<gateway_report>(self, gateway, gateway_query{});
  std::vector<engine_snapshot> all;
  for (const engine_info& i : engines(self).engines) {
    engine_snapshot& e = all.emplace_back(snapshot_of(self, i.scheduler, i.kv));
    if (i.rank < front.metrics.size())
      e.requests = front.metrics[i.rank];
  }
  return metrics_text(cluster, all, {}); // verifiers and grammar pools are in the workers
}

} // namespace troupe
