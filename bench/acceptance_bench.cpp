#include "bench/drafts_bench.hpp"
#include "devices/device.hpp"
#include "runtime/model/checkpoint.hpp"
#include "runtime/model/runner.hpp"
#include "runtime/request/seeds.hpp"
#include "runtime/speculation/agreement.hpp"
#include "runtime/tokenizer/compressed_vocabulary.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include <cmath>
#include <numeric>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;
using ids = std::vector<std::int32_t>;

constexpr int most_positions = 2048, blocks_each = most_positions / 128;

struct at_position { // of a block, over the drafts that verification reached
  std::int64_t reached = 0, accepted = 0;
  double foretold = 0, variance = 0, common = 0; // sums
};

// Sequences that sample side by side. The host waits for every step, so nothing is in flight.
class sampler {
public:
  sampler(const engine_options& options, std::vector<ids> prompts)
      : dev_(make_device(options.device, {.threads = threads_of(options), .cores = {}})), text_(std::move(prompts)) {
    const auto source = std::make_shared<const checkpoint>(options.model);
    const model_config& c = source->config();
    if (c.num_nextn_predict_layers == 0)
      throw config_error("", "model", options.model, "the checkpoint has no drafter", "measure one that has");
    const auto map = compressed_vocabulary(tokenizer::load(options.model + "/tokenizer.json"), options.model,
                                           c.engram_compressed_vocab_size);
    block_ = c.dspark_block_size;
    vocab_ = c.vocab_size;
    const auto n = static_cast<int>(text_.size());
    runner_options r;
    r.max_rows = std::max(512, n * (block_ + 1));
    r.max_sequences = n;
    r.kv_blocks = 1 + n * blocks_each;
    r.state_slots = 1 + n;
    r.max_model_len = most_positions;
    r.max_logit_rows = n * (block_ + 1);
    r.nextn = block_;
    r.rejection = true; // keeps the drafter's logits
    runner_ =
        std::make_unique<model_runner>(load_weights(source, *dev_, {true, most_positions + block_ + 1}, map), *dev_, r);
    const auto rows = text_.size() * static_cast<std::size_t>(block_ + 1);
    for (buffer* b : {&token_, &status_, &logprob_, &outcome_, &drafts_, &confidence_})
      *b = dev_->allocate(16 * rows, "acceptance");
    rules_ = dev_->allocate(sizeof(sample_row_params) * text_.size(), "acceptance");
    index_ = dev_->allocate(4, "acceptance");
    for (std::size_t q = 0; q < text_.size(); ++q) {
      sample_row_params p;
      p.seed = branch_seed(7, static_cast<std::uint32_t>(q));
      p.logprob = 0;
      rules_here_.push_back(p);
    }
    runner_->work().to_device(rules_.as<std::byte>(), rules_here_.data(), sizeof(sample_row_params) * text_.size());
    at_.resize(static_cast<std::size_t>(block_));
    draft_.resize(text_.size());
    for (std::size_t q = 0; q < text_.size(); ++q)
      take_prompt(q);
    propose();
  }

  // False: some sequence is as long as it may be.
  bool step() {
    step_rows rows;
    for (std::size_t q = 0; q < text_.size(); ++q) {
      if (static_cast<int>(text_[q].size()) + block_ + 1 >= most_positions)
        return false;
      ids tokens{text_[q].back()};
      tokens.insert(tokens.end(), draft_[q].begin(), draft_[q].end());
      feed(rows, q, static_cast<std::int32_t>(text_[q].size()) - 1, tokens);
      rows.drafts.push_back(block_);
      rows.draws.push_back(block_ + 1);
    }
    const std::vector<float> draft_logits = logits_of_drafts();
    runner_->forward(rows);
    ids all(rows.tokens.size());
    std::iota(all.begin(), all.end(), 0);
    const auto target = runner_->logits(all);
    std::vector<float> logits(all.size() * static_cast<std::size_t>(vocab_));
    runner_->work().to_host(logits.data(), target.as<const std::byte>(), 4 * logits.size());
    draw(target, static_cast<std::int32_t>(all.size()), runner_->row_sequences(), runner_->row_positions());
    runner_->verify(token_.as<const std::int32_t>(), status_.as<const std::int32_t>(), {}, outcome_.as<std::int32_t>());
    ids token(all.size());
    runner_->work().to_host(token.data(), token_.as<const std::byte>(), 4 * token.size());
    runner_->work().synchronise();
    for (std::size_t q = 0; q < text_.size(); ++q)
      judge(q, logits, draft_logits, token);
    propose();
    return true;
  }

  std::span<const at_position> positions() const { return at_; }

private:
  void feed(step_rows& rows, std::size_t q, std::int32_t start, const ids& tokens) const {
    rows.slot.push_back(static_cast<std::int32_t>(q) + 1);
    rows.start.push_back(start);
    rows.rows.push_back(static_cast<std::int32_t>(tokens.size()));
    rows.first_block.push_back(static_cast<std::int32_t>(rows.blocks.size()));
    rows.blocks_of.push_back(blocks_each);
    for (int b = 0; b < blocks_each; ++b)
      rows.blocks.push_back(1 + static_cast<std::int32_t>(q) * blocks_each + b);
    for (std::int32_t at = start - runner_->state().ngram + 1; at < start; ++at)
      rows.history.push_back(at < 0 ? -1 : text_[q][static_cast<std::size_t>(at)]);
    rows.tokens.insert(rows.tokens.end(), tokens.begin(), tokens.end());
  }

  void draw(dev_ptr<const float> logits, std::int32_t rows, dev_ptr<const std::int32_t> rule,
            dev_ptr<const std::int32_t> position) {
    sample_rows_args a;
    a.logits = logits;
    a.rows = rows;
    a.vocab = vocab_;
    a.params = rules_.as<const sample_row_params>();
    a.rule = rule;
    a.row_position = position;
    a.token = token_.as<std::int32_t>();
    a.status = status_.as<std::int32_t>();
    a.logprob = logprob_.as<float>();
    dev_->ops().sample_rows(runner_->work(), a);
  }

  dev_ptr<const std::int32_t> index(std::int32_t value) {
    runner_->work().to_device(index_.as<std::byte>(), &value, sizeof value);
    return index_.as<const std::int32_t>();
  }

  void take_prompt(std::size_t q) {
    step_rows rows;
    feed(rows, q, 0, text_[q]);
    rows.drafts = {0};
    rows.draws = {1};
    runner_->forward(rows);
    const auto last = static_cast<std::int32_t>(text_[q].size()) - 1;
    const auto logits = runner_->logits(std::span(&last, 1));
    draw(logits, 1, index(static_cast<std::int32_t>(q)), runner_->row_positions() + last);
    runner_->verify(token_.as<const std::int32_t>(), status_.as<const std::int32_t>(), index(0),
                    outcome_.as<std::int32_t>());
    std::int32_t token = 0;
    runner_->work().to_host(&token, token_.as<const std::byte>(), sizeof token);
    runner_->work().synchronise();
    text_[q].push_back(token);
  }

  void propose() {
    ids slots(text_.size()), all(text_.size() * static_cast<std::size_t>(block_));
    std::iota(slots.begin(), slots.end(), 1);
    runner_->draft(slots, rules_here_, drafts_.as<std::int32_t>(), confidence_.as<float>());
    runner_->work().to_host(all.data(), drafts_.as<const std::byte>(), 4 * all.size());
    runner_->work().synchronise();
    for (std::size_t q = 0; q < text_.size(); ++q)
      draft_[q].assign(all.begin() + static_cast<std::ptrdiff_t>(q) * block_,
                       all.begin() + static_cast<std::ptrdiff_t>(q + 1) * block_);
  }

  std::vector<float> logits_of_drafts() const {              // [sequences, block, vocab]
    const std::int64_t each = std::int64_t{block_} * vocab_; // slot 0 is no sequence's
    std::vector<float> out(text_.size() * static_cast<std::size_t>(each));
    runner_->work().to_host(out.data(), (runner_->state().logits + each).as<const std::byte>(), 4 * out.size());
    runner_->work().synchronise();
    return out;
  }

  void judge(std::size_t q, const std::vector<float>& target, const std::vector<float>& draft, const ids& token) {
    const auto v = static_cast<std::size_t>(vocab_), block = static_cast<std::size_t>(block_);
    for (std::size_t j = 0;; ++j) {
      const std::size_t row = q * (block + 1) + j;
      text_[q].push_back(token[row]);
      if (j == block)
        return;
      const auto p = std::span(target).subspan(row * v, v), d = std::span(draft).subspan((q * block + j) * v, v);
      const double agreement = coupled_agreement(p, d);
      at_position& at = at_[j];
      ++at.reached;
      at.foretold += agreement;
      at.variance += agreement * (1 - agreement);
      at.common += common_mass(p, d);
      if (token[row] != draft_[q][j])
        return;
      ++at.accepted;
    }
  }

  std::unique_ptr<device> dev_; // first: outlives what it made
  std::vector<ids> text_;       // [sequences] prompt and what was drawn
  std::int32_t block_ = 0, vocab_ = 0;
  std::unique_ptr<model_runner> runner_;
  buffer token_, status_, logprob_, outcome_, drafts_, confidence_, rules_, index_;
  std::vector<sample_row_params> rules_here_;
  std::vector<ids> draft_; // [sequences, block]
  std::vector<at_position> at_;
};

std::vector<ids> prompts_of(const engine_options& options, int count) {
  const tokenizer vocabulary = tokenizer::load(options.model + "/tokenizer.json");
  std::vector<ids> out;
  for (const generation_request& r : trained_questions(count))
    out.push_back(vocabulary.encode(*r.prompt, encode_mode::full));
  return out;
}

} // namespace

void bench_acceptance(const bench_settings& settings) {
  sampler s(settings.engine, prompts_of(settings.engine, settings.smoke ? 8 : 32));
  for (int left = settings.smoke ? 20 : 1 << 30; left > 0 && s.step(); --left)
    ;
  for (std::size_t j = 0; j < s.positions().size(); ++j) {
    const at_position& at = s.positions()[j];
    const auto n = static_cast<double>(std::max<std::int64_t>(at.reached, 1));
    json line{
        {"bench", "acceptance"}, {"case", "position " + std::to_string(j + 1)}, {"device", settings.engine.device}};
    line.update(machine_facts());
    if (settings.smoke)
      line["smoke"] = true;
    line.update({{"reached", at.reached},
                 {"accepted_share", static_cast<double>(at.accepted) / n},
                 {"foretold_share", at.foretold / n},
                 {"standard_deviation", std::sqrt(at.variance) / n},
                 {"common_mass", at.common / n}});
    settings.emit(line);
  }
}

} // namespace troupe
