#include "runtime/model/step_engine.hpp"
#include <algorithm>
#include <array>

namespace troupe {
namespace {

// Sends host values to a device buffer that grows when it must.
template <class T> void send(device& dev, stream& s, buffer& to, const std::vector<T>& values, const char* what) {
  const std::size_t bytes = values.size() * sizeof(T);
  if (to.bytes() < bytes || !to)
    to = dev.allocate(std::max<std::size_t>(2 * bytes, 256), what);
  if (bytes > 0)
    s.to_device(to.as<std::byte>(), values.data(), bytes);
}

void reserve(device& dev, buffer& b, std::size_t bytes, const char* what) {
  if (b.bytes() < bytes || !b)
    b = dev.allocate(std::max<std::size_t>(bytes, 256), what);
}

constexpr std::array<const char*, 4> unusable{"", "the model's logits hold NaN", "the model's logits hold +infinity",
                                              "no token is left to draw: every logit is -infinity"};

} // namespace

model_step_engine::model_step_engine(std::shared_ptr<const model_weights> weights, device& dev, const runner_options& options,
                                     expert_backend* experts)
    : dev_(dev), runner_(std::move(weights), dev, options, experts), max_logit_rows_(options.max_logit_rows),
      vocab_(runner_.config().vocab_size) {}

void model_step_engine::collect(const step_plan& plan) {
  wanted_.clear();
  for (std::size_t q = 0; q < plan.sequences.size(); ++q) {
    const auto& s = plan.sequences[q];
    const auto& give = s.spec->logit_rows;
    const bool score = s.spec->params.prompt_logprobs;
    const auto first_row = s.first_token; // rows of a step are numbered as its tokens
    auto next_given = std::lower_bound(give.begin(), give.end(), s.start);
    const std::int32_t from = score || next_given != give.end() ? 0 : s.rows - 1; // otherwise only the last row can matter
    for (std::int32_t r = from; r < s.rows; ++r) {
      const std::int32_t position = s.start + r;
      wanted_row w{first_row + r, static_cast<std::int32_t>(q)};
      w.draw = s.sample && r == s.rows - 1;
      w.score = score && position + 1 < s.spec->prompt_tokens;
      if (w.score)
        w.forced = r + 1 < s.rows ? plan.tokens[first_row + r + 1] : s.next;
      while (next_given != give.end() && *next_given < position)
        ++next_given;
      w.give = next_given != give.end() && *next_given == position;
      if (w.draw || w.score || w.give)
        wanted_.push_back(w);
    }
  }
}

void model_step_engine::params_of(const planned_sequence& s, const wanted_row& w, sample_row_params& p) {
  const auto& from = s.spec->params;
  p.temperature = from.temperature;
  p.top_p = from.top_p;
  p.min_p = from.min_p;
  p.top_k = from.top_k;
  p.seed = s.spec->seq_seed;
  p.position = static_cast<std::uint64_t>(s.start) + (w.row - s.first_token) + 1;
  p.processed = from.logprobs_mode == logprobs_source::processed;
  p.forced = w.forced;
  if (w.score) {
    p.logprob = 1;
    return;
  }
  const auto emitted = static_cast<std::int64_t>(p.position) - s.spec->prompt_tokens;
  p.logprob = from.logprobs;
  p.top_logprobs = std::min(from.top_logprobs, vocab_);
  if (emitted >= 0 && emitted < static_cast<std::int64_t>(from.golden_token_ids.size()))
    p.forced = from.golden_token_ids[emitted];
  p.first_bias = static_cast<std::int32_t>(bias_.size());
  p.biases = static_cast<std::int32_t>(from.logit_bias.size());
  bias_.insert(bias_.end(), from.logit_bias.begin(), from.logit_bias.end());
  if (emitted < from.min_tokens) { // EOS and stop ids cannot end the output yet
    p.first_suppressed = static_cast<std::int32_t>(suppressed_.size());
    if (!from.ignore_eos)
      suppressed_.insert(suppressed_.end(), s.spec->eos_ids.begin(), s.spec->eos_ids.end());
    suppressed_.insert(suppressed_.end(), from.stop_token_ids.begin(), from.stop_token_ids.end());
    p.suppressed = static_cast<std::int32_t>(suppressed_.size()) - p.first_suppressed;
  }
}

// Logits of wanted rows [first, first + count), then one sample_rows over them.
void model_step_engine::sample(const step_plan& plan, std::size_t first, std::size_t count, step_result& out) {
  logit_rows_.clear();
  params_.assign(count, {});
  bias_.clear();
  suppressed_.clear();
  max_top_ = 0;
  bool any = false;
  for (std::size_t i = 0; i < count; ++i) {
    const auto& w = wanted_[first + i];
    logit_rows_.push_back(w.row);
    params_of(plan.sequences[w.sequence], w, params_[i]);
    max_top_ = std::max(max_top_, params_[i].top_logprobs);
    any |= w.draw || w.score;
  }
  auto& s = runner_.work();
  auto logits = runner_.logits(logit_rows_);
  token_.resize(count);
  logprob_.resize(count);
  status_.resize(count);
  top_.resize(count * max_top_);
  if (any) {
    send(dev_, s, params_on_device_, params_, "sampling parameters");
    send(dev_, s, bias_on_device_, bias_, "logit bias");
    send(dev_, s, suppressed_on_device_, suppressed_, "suppressed ids");
    reserve(dev_, token_on_device_, count * 4, "sampled tokens");
    reserve(dev_, logprob_on_device_, count * 4, "log-probabilities");
    reserve(dev_, status_on_device_, count * 4, "sampler status");
    reserve(dev_, top_on_device_, top_.size() * sizeof top_[0], "top log-probabilities");
    sample_rows_args args;
    args.logits = logits;
    args.rows = static_cast<std::int32_t>(count);
    args.vocab = vocab_;
    args.params = params_on_device_.as<const sample_row_params>();
    args.bias = bias_on_device_.as<const std::pair<std::int32_t, float>>();
    args.suppressed = suppressed_on_device_.as<const std::int32_t>();
    args.max_top = max_top_;
    args.token = token_on_device_.as<std::int32_t>();
    args.logprob = logprob_on_device_.as<float>();
    args.top = top_on_device_.as<std::pair<std::int32_t, float>>();
    args.status = status_on_device_.as<std::int32_t>();
    dev_.ops().sample_rows(s, args);
    s.to_host(token_.data(), args.token.as<const std::byte>(), count * 4);
    s.to_host(logprob_.data(), args.logprob.as<const std::byte>(), count * 4);
    s.to_host(status_.data(), args.status.as<const std::byte>(), count * 4);
    if (max_top_ > 0)
      s.to_host(top_.data(), args.top.as<const std::byte>(), top_.size() * sizeof top_[0]);
  }
  for (std::size_t i = 0; i < count; ++i)
    if (wanted_[first + i].give) { // a row of logits that the request asked for
      auto& r = out.sequences[wanted_[first + i].sequence];
      r.logits.resize(r.logits.size() + vocab_);
      s.to_host(r.logits.data() + r.logits.size() - vocab_, (logits + static_cast<std::int64_t>(i) * vocab_).as<const std::byte>(),
                static_cast<std::size_t>(vocab_) * sizeof(float));
      s.synchronise(); // the next row may move the vector
    }
  s.synchronise();
}

void model_step_engine::take(const step_plan& plan, std::size_t first, std::size_t count, step_result& out) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto& w = wanted_[first + i];
    auto& r = out.sequences[w.sequence];
    if (!w.draw && !w.score)
      continue;
    if (status_[i] != 0) {
      r.failure = std::string(unusable[std::clamp<std::int32_t>(status_[i], 1, 3)]) + " at position "
                  + std::to_string(plan.sequences[w.sequence].start + w.row - plan.sequences[w.sequence].first_token);
    } else if (w.score) {
      r.prompt_logprobs.push_back(logprob_[i]);
    } else {
      r.sampled = true;
      r.token = token_[i];
      r.logprob = logprob_[i];
      auto top = top_.begin() + static_cast<std::ptrdiff_t>(i) * max_top_;
      r.top.assign(top, top + params_[i].top_logprobs);
    }
  }
}

step_result model_step_engine::run(const step_plan& plan) {
  rows_.slot.clear(), rows_.start.clear(), rows_.rows.clear(), rows_.first_block.clear(), rows_.blocks_of.clear();
  step_result out;
  out.number = plan.number;
  for (const auto& s : plan.sequences) {
    rows_.slot.push_back(s.slot.value);
    rows_.start.push_back(s.start);
    rows_.rows.push_back(s.rows);
    rows_.first_block.push_back(s.first_block);
    rows_.blocks_of.push_back(s.blocks);
    out.sequences.emplace_back().id = s.spec->id;
  }
  rows_.tokens = plan.tokens;
  rows_.blocks = plan.blocks;
  rows_.history = plan.history;
  runner_.forward(rows_);
  collect(plan);
  for (std::size_t first = 0; first < wanted_.size(); first += max_logit_rows_) {
    const std::size_t count = std::min<std::size_t>(max_logit_rows_, wanted_.size() - first);
    sample(plan, first, count, out);
    take(plan, first, count, out);
  }
  auto counts = runner_.expert_counts();
  out.expert_counts.assign(counts.begin(), counts.end());
  return out;
}

} // namespace troupe
