#include "actors/mask_threads.hpp"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>

namespace troupe {

struct mask_threads::shared {
  struct loop { // one call of all()
    const std::function<void(std::size_t)>& each;
    std::size_t n;
    std::atomic<std::size_t> next{0}, done{0};
    loop(const std::function<void(std::size_t)>& what, std::size_t times) : each(what), n(times) {}
    void take_part() {
      for (std::size_t i = 0; (i = next.fetch_add(1)) < n;) {
        each(i);
        if (done.fetch_add(1) + 1 == n)
          done.notify_all();
      }
    }
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::shared_ptr<loop> current; // that may still have something to do
  std::deque<std::function<void()>> waiting;
  bool stopping = false;
  std::function<void()> made;

  // Loops first: a step waits for them.
  void serve() {
    std::unique_lock hold(mutex);
    for (;;) {
      changed.wait(hold, [this] { return stopping || current || !waiting.empty(); });
      if (stopping)
        return;
      if (const auto l = std::exchange(current, nullptr)) {
        if (l->next.load() >= l->n)
          continue;
        current = l; // others may join
        hold.unlock();
        l->take_part();
        hold.lock();
        if (current == l)
          current = nullptr;
        continue;
      }
      const auto work = std::move(waiting.front());
      waiting.pop_front();
      hold.unlock();
      work();
      made();
      hold.lock();
    }
  }
};

mask_threads::mask_threads(int threads, std::function<void()> made)
    : wanted_(threads), shared_(std::make_shared<shared>()) {
  shared_->made = std::move(made);
}

mask_threads::~mask_threads() {
  {
    const std::lock_guard hold(shared_->mutex);
    shared_->stopping = true;
    shared_->waiting.clear();
  }
  shared_->changed.notify_all();
  for (std::thread& t : threads_)
    if (t.get_id() == std::this_thread::get_id()) // it told an actor that had ended, and was the last to hold it
      t.detach();
    else
      t.join();
}

// False: there are no threads, nor can there be any.
bool mask_threads::start() {
  while (std::ssize(threads_) < wanted_) {
    try {
      threads_.emplace_back([s = shared_] { s->serve(); });
    } catch (const std::system_error&) {
      wanted_ = static_cast<int>(threads_.size());
    }
  }
  return wanted_ > 0;
}

void mask_threads::all(std::size_t n, const std::function<void(std::size_t)>& each) {
  if (n < 2 || !start()) {
    for (std::size_t i = 0; i < n; ++i)
      each(i);
    return;
  }
  const auto l = std::make_shared<shared::loop>(each, n);
  {
    const std::lock_guard hold(shared_->mutex);
    shared_->current = l;
  }
  shared_->changed.notify_all();
  l->take_part();
  for (std::size_t done = l->done.load(); done < n; done = l->done.load())
    l->done.wait(done);
}

void mask_threads::later(std::function<void()> work) {
  if (!start()) {
    work();
    shared_->made();
    return;
  }
  {
    const std::lock_guard hold(shared_->mutex);
    shared_->waiting.push_back(std::move(work));
  }
  shared_->changed.notify_one();
}

double mask_threads::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

} // namespace troupe
