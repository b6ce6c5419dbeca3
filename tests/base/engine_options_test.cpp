#include "runtime/base/engine_options.hpp"
#include <boost/test/unit_test.hpp>
#include <set>

using namespace troupe;

namespace {

std::string said(const char* key, const std::string& value) {
  engine_options o;
  try {
    set_engine_option(o, *engine_option_of_key(key), {"FILE:3", std::string("engine.") + key, value});
  } catch (const config_error& e) {
    return e.what();
  }
  return "";
}

} // namespace

BOOST_AUTO_TEST_SUITE(engine_options_table)

BOOST_AUTO_TEST_CASE(names_and_keys_find_their_option) {
  std::set<std::string> keys;
  for (const engine_option& o : engine_option_table()) {
    BOOST_TEST(keys.insert(o.key()).second, o.name);
    BOOST_TEST(engine_option_of_key(o.key()) == &o);
    BOOST_TEST(engine_option_of_name(o.name) == &o);
  }
  BOOST_TEST(engine_option_of_key("max-num-seqs") == nullptr);
  BOOST_TEST(engine_option_of_name("max_num_seqs") == nullptr);
  BOOST_CHECK(engine_option_of_key("seed")->type() == engine_option::kind::wide_number);
  BOOST_CHECK(engine_option_of_key("nextn")->type() == engine_option::kind::number);
  BOOST_CHECK(engine_option_of_key("varlen")->type() == engine_option::kind::toggle);
  BOOST_CHECK(engine_option_of_key("yoco")->type() == engine_option::kind::text);
}

BOOST_AUTO_TEST_CASE(the_text_of_a_value_sets_it) {
  for (const engine_option& o : engine_option_table()) {
    const engine_options defaults;
    const auto text = engine_option_text(defaults, o);
    engine_options again;
    if (text)
      set_engine_option(again, o, {"", o.name, *text});
    BOOST_TEST((engine_option_text(again, o) == text), o.name);
    std::set<std::string> values; // of legal ones, each comes back as it was
    switch (o.type()) {
    case engine_option::kind::toggle:
      values = {"true", "false"};
      break;
    case engine_option::kind::number:
      values = {std::to_string(o.low), std::to_string(o.high)};
      break;
    case engine_option::kind::wide_number:
      values = {"0", "18446744073709551615"};
      break;
    case engine_option::kind::text:
      break;
    }
    for (const std::string& value : values) {
      set_engine_option(again, o, {"", o.name, value});
      BOOST_TEST(engine_option_text(again, o).value() == value, o.name);
    }
  }
  // What depends on the model has no text of its own.
  for (const char* key : {"model", "nextn", "varlen", "yoco", "yoco_keep", "seed", "spec_curve"})
    BOOST_TEST(!engine_option_text({}, *engine_option_of_key(key)).has_value(), key);
}

BOOST_AUTO_TEST_CASE(values_that_are_not_legal_name_their_place) {
  BOOST_TEST(said("max_num_seqs", "0") ==
             "FILE:3: engine.max_num_seqs = 0: this is not a whole number in the legal range; "
             "give a number from 1 to 4096");
  BOOST_TEST(said("max_num_seqs", "4097") != "");
  BOOST_TEST(said("max_num_seqs", "1x") != "");
  for (const char* rows : {"127", "1", "0", "-5"})
    BOOST_TEST(said("max_num_batched_tokens", rows) ==
               std::string("FILE:3: engine.max_num_batched_tokens = ") + rows +
                   ": the rows of a step do not fill one cache block, which has 128; give 128 or more");
  BOOST_TEST(said("max_num_batched_tokens", "128") == "");
  BOOST_TEST(said("max_num_batched_tokens", "2x") ==
             "FILE:3: engine.max_num_batched_tokens = 2x: this is not a whole number in the legal range; give a "
             "number from 128 to 1048576");
  BOOST_TEST(said("ttft_bound_steps", "0") ==
             "FILE:3: engine.ttft_bound_steps = 0: prompts that wait for no step wait for no prefill_fill_tokens "
             "either: the two contradict each other; give 1 or more; for prompts that do not wait leave both out");
  BOOST_TEST(said("ttft_bound_steps", "1") == "");
  BOOST_TEST(said("snapshot_interval", "100") ==
             "FILE:3: engine.snapshot_interval = 100: states are kept where a cache "
             "block of 128 tokens ends; give a multiple of 128");
  BOOST_TEST(said("async", "yes") == "FILE:3: engine.async = yes: this is neither true nor false; give one of them");
  BOOST_TEST(said("verify", "block") ==
             "FILE:3: engine.verify = block: there is no such rule; use coupled or rejection");
  BOOST_TEST(said("seed", "18446744073709551616") != "");
}

BOOST_AUTO_TEST_CASE(variables_of_the_environment) {
  const auto none = [](const sourced_value&) { return false; };
  const auto values = engine_values_of({{"DEEPINFER_USE_NEXTN_DECODE", "3"},
                                        {"DEEPINFER_ZERO_OVERHEAD_SCHEDULING", "False"},
                                        {"TROUPE_MODEL", "/b"},
                                        {"HOME", "/root"}},
                                       none);
  BOOST_TEST(values.size() == 3u);
  const engine_options o = engine_options_of(values);
  BOOST_TEST(*o.nextn == 3);
  BOOST_TEST(!o.async);
  BOOST_TEST(o.model == "/b");
  BOOST_TEST(engine_values_of({{"DEEPINFER_HF_MODEL_DIR", "/a"}, {"TROUPE_MODEL", "/b"}}, none).at("model").value ==
             "/a");
  BOOST_CHECK_THROW(engine_values_of({{"DEEPINFER_OTHER", "1"}}, none), config_error);
  std::vector<std::string> heard;
  engine_values_of({{"DEEPINFER_OTHER", "1"}}, [&heard](const sourced_value& v) {
    heard.push_back(v.key + "=" + v.value);
    return true;
  });
  BOOST_TEST(heard == std::vector<std::string>{"DEEPINFER_OTHER=1"});
}

BOOST_AUTO_TEST_SUITE_END()
