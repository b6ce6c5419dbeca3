#include "cli/requests.hpp"
#include "actors/cluster_access.hpp"
#include "cli/line_io.hpp"
#include "cli/log.hpp"
#include "cli/progress.hpp"
#include "cli/verbs.hpp"
#include "runtime/base/pending_file.hpp"
#include "runtime/model/config.hpp"
#include "runtime/request/seeds.hpp"
#include <array>
#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace troupe {

namespace {

// Events from engine threads to the calling thread. Lives as long as the last callback that knows it.
class mailbox {
public:
  mailbox() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (fd_ < 0)
      throw std::runtime_error("the system gave no descriptor for events");
  }
  ~mailbox() { ::close(fd_); }
  mailbox(const mailbox&) = delete;
  mailbox& operator=(const mailbox&) = delete;

  int fd() const { return fd_; }

  void put(const generation_event& event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(event);
    }
    wake();
  }
  void put_awaited(const std::string& what) {
    {
      const std::lock_guard lock(mutex_);
      awaited_ = what;
    }
    wake();
  }

  std::vector<generation_event> take() {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(fd_, &count, sizeof count); // only resets the descriptor
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }
  std::optional<std::string> take_awaited() {
    const std::lock_guard lock(mutex_);
    return std::exchange(awaited_, {});
  }

private:
  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written =
        ::write(fd_, &one, sizeof one); // can only fail when it is readable already
  }

  int fd_;
  std::mutex mutex_;
  std::vector<generation_event> events_;
  std::optional<std::string> awaited_; // LLM::ask_what_is_awaited
};

class runner {
public:
  using clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds silence{5};  // so long nobody asks why there are no results
  static constexpr std::chrono::seconds farewell{2}; // so long requests that are left have to say that they ended

  runner(LLM& engine, interrupts& signals, request_source& source, int window, bool streaming,
         const std::function<bool(const generation_event&)>& receive)
      : engine_(engine), signals_(signals), source_(source), window_(window), streaming_(streaming), receive_(receive) {
  }

  run_outcome run(const std::function<void()>& idle) {
    while (true) {
      heed_signals();
      bool waiting = false;
      if (!outcome_.interrupted && !outcome_.stopped && !ended_)
        waiting = !take_new();
      deliver();
      if (!asked_ && clock::now() >= look_at_)
        ask_what_is_awaited();
      heed_silence();
      if (live_.empty() && (ended_ || outcome_.interrupted || outcome_.stopped))
        return outcome_;
      heed_signals(); // those that came meanwhile
      if (clock::now() >= leave_at_)
        return outcome_;
      const std::array fds{mail_->fd(), waiting ? source_.fd() : -1};
      signals_.wait(fds, 100);
      if (idle)
        idle();
    }
  }

private:
  void heed_signals() {
    const int count = signals_.count();
    if (count >= 1 && !outcome_.interrupted) {
      outcome_.interrupted = true;
      if (!live_.empty())
        spdlog::warn("interrupted: finishing {} requests in flight; Ctrl-C again stops at once", live_.size());
      if (!asked_)
        ask_what_is_awaited();
    }
    if (count >= 2) { // whoever computes the rest may not answer
      stop();
      leave_at_ = clock::now();
    }
  }

  void look_later() { look_at_ = clock::now() + (outcome_.interrupted ? std::chrono::seconds(1) : silence); }

  void ask_what_is_awaited() {
    asked_ = true;
    engine_.ask_what_is_awaited([mail = mail_](const std::string& what) { mail->put_awaited(what); });
  }

  // Requests may wait for a cluster that is not there at the moment. That is said, and whoever wants an end has it
  // then.
  void heed_silence() {
    const auto why = mail_->take_awaited();
    if (!why)
      return;
    asked_ = false;
    look_later();
    if (live_.empty() || outcome_.stopped)
      return;
    if (!why->empty() && outcome_.interrupted) {
      spdlog::warn("interrupted: {} requests that wait are left: {}", live_.size(), *why);
      stop();
      leave_at_ = std::min(leave_at_, clock::now() + farewell);
    } else if (!why->empty() && *why != said_) {
      spdlog::warn("{} requests wait: {}", live_.size(), *why);
    }
    said_ = *why;
  }

  // False if the source has nothing at the moment.
  bool take_new() {
    while (branches_ == 0 || branches_ < window_) {
      engine_request next;
      switch (source_.next(next)) {
      case request_source::state::waiting:
        return false;
      case request_source::state::end:
        ended_ = true;
        return true;
      case request_source::state::ready:
        submit(next);
        break;
      }
      if (outcome_.stopped || signals_.count() > 0)
        return true;
    }
    return true;
  }

  void submit(const engine_request& r) {
    const auto on_event = [mail = mail_, streaming = streaming_](const generation_event& e) {
      if (streaming || e.result)
        mail->put(e);
    };
    const result<std::string> id = engine_.submit(r.request, r.params, on_event);
    if (id) {
      live_[*id] = r.params.n;
      branches_ += r.params.n;
      return;
    }
    const int branches = r.params.n >= 1 && r.params.n <= max_branches ? r.params.n : 1;
    for (int index = 0; index < branches; ++index) { // each has its line, as it has when the engine ends the request
      generation_event refused{.id = r.request.id, .index = index, .text = {}, .result = generation_result{}};
      refused.result->id = r.request.id;
      refused.result->index = index;
      if (r.params.seq_seed)
        refused.result->seq_seed = branch_seed(*r.params.seq_seed, static_cast<std::uint32_t>(index));
      refused.result->finish_reason = "error";
      refused.result->failure = id.failure();
      hand_over(refused);
    }
  }

  void deliver() {
    const std::vector<generation_event> events = mail_->take();
    if (!events.empty())
      look_later();
    for (const generation_event& event : events) {
      if (event.result) {
        const auto found = live_.find(event.id);
        if (found != live_.end()) {
          --branches_;
          if (--found->second == 0)
            live_.erase(found);
        }
      }
      if (!outcome_.stopped)
        hand_over(event);
    }
  }

  void hand_over(const generation_event& event) {
    if (!receive_(event))
      stop();
  }

  void stop() {
    if (outcome_.stopped)
      return;
    outcome_.stopped = true;
    for (const auto& [id, branches] : live_)
      engine_.abort(id);
  }

  LLM& engine_;
  interrupts& signals_;
  request_source& source_;
  int window_;
  bool streaming_;
  const std::function<bool(const generation_event&)>& receive_;
  std::shared_ptr<mailbox> mail_ = std::make_shared<mailbox>();
  std::map<std::string, int> live_; // branches that have not ended, by request
  int branches_ = 0;
  bool ended_ = false;
  run_outcome outcome_;
  clock::time_point look_at_ = clock::now() + silence; // whether requests wait for something
  bool asked_ = false;                                 // likewise, and nothing was said yet
  std::string said_;                                   // that they wait for
  clock::time_point leave_at_ = clock::time_point::max();
};

} // namespace

namespace {

// Made beside the main thread, which shows how far it is and ends the process on Ctrl-C.
// slow: what is said once when that takes longer than people wait in silence; empty: nothing.
std::unique_ptr<LLM> made_beside(interrupts& signals, const std::string& title, const std::atomic<int>& percent,
                                 const std::string& slow, const std::function<std::unique_ptr<LLM>()>& make) {
  progress_line progress(title);
  const auto say_at = std::chrono::steady_clock::now() + runner::silence;
  bool said = slow.empty();
  auto loading = std::async(std::launch::async, make);
  while (loading.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
    if (signals.count() > 0)
      ::_exit(exit_interrupted);
    if (!said && std::chrono::steady_clock::now() >= say_at) {
      said = true;
      progress.clear();
      spdlog::warn("{}", slow);
    }
    progress.show(percent, 100, "%,");
  }
  progress.clear();
  return loading.get();
}

} // namespace

engine_session::engine_session(const cluster_access& cluster, const std::string& metrics) : metrics_file(metrics) {
  if (!metrics_file.empty())
    check_replaceable(metrics_file, {});
  const std::atomic<int> percent{0};
  engine = made_beside(signals, "reaching " + cluster.identity.name, percent,
                       cluster.identity.name + " has no engine yet that takes requests, or does not answer; still "
                                               "waiting (troupe status says what is there)",
                       [&cluster] { return std::make_unique<LLM>(cluster); });
  spdlog::debug("{}", engine->description());
}

engine_session::engine_session(const engine_options& options, const std::string& metrics) : metrics_file(metrics) {
  if (!metrics_file.empty())
    check_replaceable(metrics_file, {});
  std::atomic<int> percent{0};
  engine_options watched = options;
  watched.on_load_progress = [&percent](double share) { percent = static_cast<int>(share * 100); };
  engine = made_beside(signals, "loading " + options.model, percent, "",
                       [&watched] { return std::make_unique<LLM>(watched); });
  if (engine->config().num_nextn_predict_layers == 0 && !options.nextn)
    spdlog::info("{}: the checkpoint has no drafter: no speculation", options.model);
  spdlog::debug("{}", engine->description());
}

engine_session::~engine_session() {
  signals.release();
  engine.reset();
}

run_outcome run_requests(engine_session& session, request_source& source, int window, bool streaming,
                         const std::function<bool(const generation_event&)>& receive,
                         const std::function<void()>& idle) {
  run_outcome outcome = runner(*session.engine, session.signals, source, window, streaming, receive).run(idle);
  if (session.signals.count() >= 2) // who asks for metrics waits, too
    outcome.metrics_lost = !session.metrics_file.empty();
  else if (!session.metrics_file.empty())
    outcome.metrics_lost = !succeeded(write_whole_file(session.metrics_file, session.engine->metrics()));
  return outcome;
}

} // namespace troupe
