// libFuzzer target; see dev/fuzz. The check sums of what comes are mended, or no input would get past them.
#include "tests/support/frame_cases.hpp"
#include <algorithm>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  const byte_span bytes(data, size);
  test::parse_anything(bytes);
  if (size < 2)
    return 0;
  frame_header header = test::sample_header();
  header.kind = static_cast<frame_kind>(data[0]);
  header.flags = data[1];
  const byte_span body = bytes.subspan(2);
  const std::size_t meta = body.empty() ? 0 : std::min<std::size_t>(body[0], body.size());
  test::parse_anything(test::whole_frame(header, body.first(meta), body.subspan(meta)));
  test::parse_anything(test::whole_frame(header, body, {}));
  return 0;
}
