// Computes the routed experts of one contiguous range of slots for every engine of the process. Detached.
#pragma once
#include "actors/expert_exchange.hpp"

namespace troupe {

// What an expert executor drives; one thread. Leaves with an exception when the device fails.
class expert_compute {
public:
  virtual ~expert_compute() = default;
  // Writes y of the (row, slot) pairs whose expert lies here, finished when it returns.
  virtual void run(int layer, const experts_args& args) = 0;
};

struct expert_executor_state {
  expert_executor_state() = default;
  static inline const char* name = "expert_executor";
  std::shared_ptr<expert_compute> compute;
};

expert_executor_actor::behavior_type
expert_executor(expert_executor_actor::stateful_pointer<expert_executor_state> self,
                std::shared_ptr<expert_compute> compute);

} // namespace troupe
