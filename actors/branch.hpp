// One branch of a request as its reader sees it: tokens become text, stop strings end it, the result is put together.
// A value without actors or clocks; the session feeds it.
#pragma once
#include "cluster/messages.hpp"
#include "runtime/request/ledger.hpp"
#include "runtime/request/result_line.hpp"
#include "runtime/request/stop.hpp"
#include "runtime/scheduler/finish.hpp"
#include "runtime/tokenizer/streaming.hpp"
#include <memory>
#include <span>
#include <string>

namespace troupe {

struct branch_setup {
  std::string id; // of the request
  int index = 0;
  std::int32_t prompt_tokens = 0;
  sampling_params params;
  std::uint64_t seed = 0;
  std::uint32_t max_attempts = default_max_attempts; // engines that may try
};

class branch {
public:
  branch(std::shared_ptr<const tokenizer> vocabulary, const branch_setup& setup);

  // What changed: text that became visible, the end, and whether the engine still computes this branch and must be
  // told.
  struct update {
    std::string text;
    bool ended = false;
    bool cancel = false;
  };
  // Times are milliseconds since the request was accepted. Nothing changes once the branch has ended.
  update take(const tokens& t, double now_ms);
  // What an earlier process had taken of it, before anything else: `attempt` is the one that goes on behind that.
  update restore(const tokens& taken, std::uint32_t attempt, double now_ms);
  // The end from this side: abort, whose cause is the failure's code, or an error that the engine could not report.
  update end(finish_reason why, const error& failure, double now_ms);
  // Another engine will compute it from the prompt on: false if all attempts are used, to which one that no engine has
  // begun does not count. What came is kept, but for the rows of a prompt that gave no token yet: they come again.
  bool begin_next_attempt(bool begun = true);

  bool ended() const { return ended_; }
  std::int64_t next_position() const { return ledger_.next_position(); }
  std::uint32_t attempt() const { return ledger_.attempt(); }
  std::span<const std::int32_t> emitted() const { return ledger_.tokens(); }
  std::size_t outputs() const { return result_.token_ids.size(); } // tokens of its result so far
  const generation_result& result() const { return result_; }
  // For the metrics, once the branch has ended; without rank and max_tokens.
  branch_record record() const;

private:
  bool append(const tokens& t, std::size_t index, update& u);
  void close(finish_reason why, double now_ms, update& u);
  void note_arrival(double now_ms);
  void forget_prompt_rows();

  std::shared_ptr<const tokenizer> vocabulary_;
  streaming_decoder decoder_;
  stop_scanner scanner_;
  token_ledger ledger_;
  bool wants_logprobs_, wants_top_;
  bool ended_ = false;
  generation_result result_;
  generation_usage earlier_;       // of attempts before this one, as far as their engines told
  std::int64_t told_accepted_ = 0; // by the engine of this attempt
  std::string cause_;              // of an abort or an error
  double last_token_ms_ = 0;
  histogram<bounds::between_tokens> gaps_;
};

} // namespace troupe
