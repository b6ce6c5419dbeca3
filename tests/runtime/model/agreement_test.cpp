// The whole engine on every device of the shared numerics id: the prompts of tests/data/model/golden continued, greedy
// and sampled, with one and two steps out, with and without recorded steps. Equal bits with the cpu device; one line of
// JSON for each case.
#include "runtime/model/safetensors.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/hand_driver.hpp"
#include <chrono>
#include <cstring>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr int length = 896; // longest prompt and its continuation

std::vector<std::int32_t> prompt_of(const std::string& name) {
  const safetensors_file file(TROUPE_TEST_DATA "/model/golden/" + name + ".safetensors");
  const auto* ids = file.find("ids");
  BOOST_REQUIRE(ids != nullptr);
  const bool wide = ids->dtype == tensor_type::i64;
  std::vector<std::int32_t> out(ids->bytes.size() / (wide ? 8 : 4));
  for (std::size_t i = 0; i < out.size(); ++i)
    std::memcpy(&out[i], ids->bytes.data() + i * (wide ? 8 : 4), 4); // little endian: the low half
  return out;
}

struct run_kind {
  decode_form decode;
  std::size_t depth;
};

std::string json(const tiny_device& d, const std::string& prompt, bool sampled, const run_kind& kind,
                 std::size_t tokens, bool equal, double seconds) {
  const auto flag = [](bool on) { return on ? "true" : "false"; };
  return R"({"bench": "agreement", "case": ")" + prompt + (sampled ? " sampled" : " greedy") + R"(", "device": ")" +
         d.name + R"(", "description": ")" + d.dev->description() + R"(", "async": )" + flag(kind.depth == 2) +
         R"(, "graphs": )" + flag(kind.decode == decode_form::automatic) + R"(, "tokens": )" + std::to_string(tokens) +
         R"(, "equal_bits": )" + flag(equal) + R"(, "seconds": )" + std::to_string(seconds) + "}";
}

} // namespace

BOOST_AUTO_TEST_SUITE(engine_agreement)

BOOST_AUTO_TEST_CASE(prompts_continue_with_equal_bits) {
  const bool with_a_gpu = no_gpu().empty() || needs_gpu();
  if (!with_a_gpu)
    BOOST_TEST_MESSAGE("cuda-reference skipped: " << no_gpu());
  const std::vector<std::string> names = with_gpu({"queued cpu"});
  const int tokens = with_a_gpu ? 64 : 6;
  const std::vector<std::string> prompts =
      with_a_gpu ? std::vector<std::string>{"one_token", "chat_lighthouse", "chat_json", "chat_two_turns",
                                            "code_130",  "doc_257",         "doc_300",   "doc_700"}
                 : std::vector<std::string>{"chat_lighthouse", "code_130"};
  const tiny_device cpu("cpu", length);
  std::vector<std::unique_ptr<tiny_device>> devices;
  for (const std::string& name : names)
    devices.push_back(std::make_unique<tiny_device>(name, length));
  for (const std::string& prompt : prompts)
    for (const bool sampled : {false, true}) {
      sampling_params p;
      p.max_tokens = tokens;
      p.temperature = sampled ? 0.8f : 0.0f;
      p.top_p = sampled ? 0.95f : 1.0f;
      p.top_logprobs = 2;
      const auto run = [&](const tiny_device& d, const run_kind& kind, double& seconds) {
        hand_run s(7, prompt_of(prompt), p);
        s.place(3, 5, length);
        const auto engine = d.engine(kind.decode);
        const auto start = std::chrono::steady_clock::now();
        run_to_end(*engine, s, kind.depth, 160);
        seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        return s;
      };
      double seconds = 0;
      const hand_run expected = run(cpu, {decode_form::eager, 1}, seconds);
      BOOST_REQUIRE(expected.output().size() == static_cast<std::size_t>(tokens));
      for (const auto& d : devices)
        for (const run_kind kind : {run_kind{decode_form::eager, 1}, run_kind{decode_form::eager, 2},
                                    run_kind{decode_form::automatic, 1}, run_kind{decode_form::automatic, 2}}) {
          const hand_run got = run(*d, kind, seconds);
          const bool equal = got.bits() == expected.bits();
          BOOST_TEST(equal, prompt << (sampled ? " sampled on " : " greedy on ") << d->name);
          BOOST_TEST_MESSAGE(json(*d, prompt, sampled, kind, got.output().size(), equal, seconds));
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
