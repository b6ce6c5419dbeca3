// Step plans as bytes for the other ranks of an engine: cereal's portable binary form behind a version and a check sum.
// What never changes during a sequence's life travels once: the reader keeps it by state slot. So every plan that a
// writer has written must be read, in that order.
#pragma once
#include "cluster/frame.hpp"
#include "runtime/base/result.hpp"
#include "runtime/scheduler/plan.hpp"
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

// The specs of the sequences that had the state slots last.
using specs_by_slot = std::vector<std::shared_ptr<const sequence_spec>>;

class plan_writer {
public:
  byte_span write(const step_plan& plan); // valid until the next one

private:
  specs_by_slot known_;     // to the reader
  detail::out_bytes bytes_; // keeps its memory
};

class plan_reader {
public:
  // Into `plan`, whose memory is used again. Failures, after which the reader is of no more use: "damaged" (not the
  // bytes of a whole plan, or one that points outside itself), "version".
  status read(byte_span bytes, step_plan& plan);

private:
  specs_by_slot known_;
};

} // namespace troupe
