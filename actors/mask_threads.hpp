// The threads that make masks beside a scheduler (docs/decisions/5). They are started with the first work for them:
// most engines never see a constraint.
#pragma once
#include "runtime/scheduler/mask_helpers.hpp"
#include <memory>
#include <thread>
#include <vector>

namespace troupe {

class mask_threads final : public mask_helpers {
public:
  // threads: 0 = everything is done by the caller, at once. made: is called behind every work of later(), by whoever
  // did it.
  mask_threads(int threads, std::function<void()> made);
  ~mask_threads() override; // work under way is waited for, other work is dropped
  mask_threads(const mask_threads&) = delete;
  mask_threads& operator=(const mask_threads&) = delete;

  void all(std::size_t n, const std::function<void(std::size_t)>& each) override;
  void later(std::function<void()> work) override;
  double seconds() const override;

private:
  struct shared; // with the threads
  bool start();

  int wanted_;
  std::shared_ptr<shared> shared_;
  std::vector<std::thread> threads_;
};

} // namespace troupe
