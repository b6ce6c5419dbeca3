#include "runtime/request/json_request.hpp"

#include <boost/test/unit_test.hpp>
#include <string>

using namespace troupe;

namespace {

// Parses a good line.
json_request good(const std::string& line) {
  parsed_line p = parse_request_line(line, 3, 1000);
  BOOST_REQUIRE_MESSAGE(p.request, line << ": " << (p.request ? "" : p.request.failure().message));
  return *p.request;
}

void bad(const std::string& line, const std::string& code, const std::string& message_part) {
  const parsed_line p = parse_request_line(line, 3, 1000);
  BOOST_REQUIRE_MESSAGE(!p.request, line);
  BOOST_TEST(p.request.failure().code == code, line << ": " << p.request.failure().code);
  BOOST_TEST(p.request.failure().message.find(message_part) != std::string::npos,
             line << ": " << p.request.failure().message);
}

void bad_params(const std::string& params, const std::string& code, const std::string& message_part) {
  bad("{\"id\":\"a\",\"prompt\":\"x\",\"params\":" + params + "}", code, message_part);
}

} // namespace

BOOST_AUTO_TEST_SUITE(request_json)

BOOST_AUTO_TEST_CASE(reads_all_parameters) {
  const json_request r =
      good(R"({"id":"r1","prompt":"hi","rows":[4,0],"params":{"temperature":0.7,"top_p":0.9,"top_k":40,
    "min_p":0.05,"max_tokens":7,"min_tokens":2,"ignore_eos":true,"stop":["a","b"],"stop_token_ids":[5],"n":3,
    "logprobs":false,"top_logprobs":4,"prompt_logprobs":true,"logprobs_mode":"processed","seq_seed":18446744073709551615,
    "golden_token_ids":[9,8],"logit_bias":{"12":-1.5,"3":2}}})");
  sampling_params p;
  p.temperature = 0.7f;
  p.top_p = 0.9f;
  p.top_k = 40;
  p.min_p = 0.05f;
  p.max_tokens = 7;
  p.min_tokens = 2;
  p.ignore_eos = true;
  p.stop = {"a", "b"};
  p.stop_token_ids = {5};
  p.n = 3;
  p.logprobs = false;
  p.top_logprobs = 4;
  p.prompt_logprobs = true;
  p.logprobs_mode = logprobs_source::processed;
  p.seq_seed = ~0ull;
  p.golden_token_ids = {9, 8};
  p.logit_bias = {{3, 2.0f}, {12, -1.5f}};
  BOOST_TEST((r.params == p));
  BOOST_TEST(*r.prompt == "hi");
  BOOST_TEST(!r.prompt_ids.has_value());
  BOOST_TEST(r.rows == (std::vector<std::int32_t>{4, 0}));
}

BOOST_AUTO_TEST_CASE(priority_and_salt_stand_beside_the_params) {
  const json_request plain = good(R"({"prompt":"x"})");
  BOOST_TEST(plain.priority == 0);
  BOOST_TEST(plain.cache_salt == "");
  const json_request r = good(R"({"prompt":"x","priority":-7,"cache_salt":"tenant ü"})");
  BOOST_TEST(r.priority == -7);
  BOOST_TEST(r.cache_salt == "tenant ü");
  BOOST_TEST(good(R"({"prompt":"x","cache_salt":null})").cache_salt == "");
  BOOST_TEST(plain.deadline_steps == 0);
  BOOST_TEST(good(R"({"prompt":"x","deadline_steps":null})").deadline_steps == 0);
  BOOST_TEST(good(R"({"prompt":"x","deadline_steps":1})").deadline_steps == 1);
  for (const char* value : {"0", "-5"})
    bad(R"({"prompt":"x","deadline_steps":)" + std::string(value) + "}", "invalid_params",
        "deadline_steps = " + std::string(value) + " is out of range: at least 1");
  bad(R"({"prompt":"x","deadline_steps":2147483648})", "invalid_params", "deadline_steps = 2147483648 is out of range");
  bad(R"({"prompt":"x","deadline_steps":"9"})", "invalid_params", "deadline_steps = \"9\" has the wrong type");
  bad_params(R"({"deadline_steps":1})", "invalid_request", "unknown key \"deadline_steps\" in params");
  bad(R"({"prompt":"x","priority":1.5})", "invalid_params", "priority = 1.5 has the wrong type: an integer");
  bad(R"({"prompt":"x","priority":2147483648})", "invalid_params", "priority = 2147483648 is out of range");
  bad(R"({"prompt":"x","cache_salt":""})", "invalid_request", "cache_salt = \"\" is out of range");
  bad(R"({"prompt":"x","cache_salt":3})", "invalid_params", "cache_salt = 3 has the wrong type");
  BOOST_TEST(plain.chunk_checkpoints.empty());
  BOOST_TEST(good(R"({"prompt":"x","chunk_checkpoints":null})").chunk_checkpoints.empty());
  BOOST_TEST(good(R"({"prompt":"x","chunk_checkpoints":[5,1000]})").chunk_checkpoints ==
             (std::vector<std::int32_t>{5, 1000}));
  const auto checkpoints = [](const std::string& list) { return R"({"prompt":"x","chunk_checkpoints":)" + list + "}"; };
  bad(checkpoints("[0]"), "invalid_params", "chunk_checkpoints[0] = 0 is out of range: positive and ascending");
  bad(checkpoints("[-3]"), "invalid_params", "chunk_checkpoints[0] = -3 is out of range");
  bad(checkpoints("[7,7]"), "invalid_params", "chunk_checkpoints[1] = 7 is out of range");
  bad(checkpoints("[2147483648]"), "invalid_params", "chunk_checkpoints[0] = 2147483648");
  bad(checkpoints("128"), "invalid_params", "chunk_checkpoints = 128 has the wrong type");
  std::string many = "[1";
  for (int i = 2; i <= 32; ++i)
    many += ',' + std::to_string(i);
  BOOST_TEST(good(checkpoints(many + "]")).chunk_checkpoints.size() == 32u);
  bad(checkpoints(many + ",33]"), "invalid_params", "chunk_checkpoints has 33 positions: at most 32");
  bad_params(R"({"chunk_checkpoints":[1]})", "invalid_request", "unknown key \"chunk_checkpoints\" in params");
  bad_params(R"({"priority":1})", "invalid_request", "unknown key \"priority\" in params");
}

BOOST_AUTO_TEST_CASE(forms_of_prompt_and_id) {
  BOOST_TEST((good(R"({"prompt":"x"})").params == sampling_params{}));
  BOOST_TEST(*parse_request_line(R"({"prompt":"x"})", 12).id == "12");
  BOOST_TEST(*parse_request_line(R"({"prompt":"x","id":"q"})", 12).id == "q");
  BOOST_TEST(*good(R"({"prompt_ids":[0,999]})").prompt_ids == (std::vector<std::int32_t>{0, 999}));
  const auto m = *good(R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":""}]})").messages;
  BOOST_TEST((m == std::vector<chat_message>{{"system", "s"}, {"user", ""}}));
  BOOST_TEST(*good(R"({"prompt":""})").prompt == "");
  BOOST_TEST((good(R"({"prompt":"x","params":{"stop":"one"}})").params.stop == std::vector<std::string>{"one"}));
  BOOST_TEST(
      (good(R"({"prompt":"x","params":{"seq_seed":null,"stop":null,"so_args":null}})").params == sampling_params{}));
  bad(R"({})", "invalid_request", "exactly one of prompt, prompt_ids and messages");
  bad(R"({"prompt":"x","prompt_ids":[1]})", "invalid_request", "exactly one of");
  bad(R"({"prompt_ids":[]})", "invalid_request", "prompt_ids = []");
  bad(R"({"prompt_ids":[1,1000]})", "invalid_request", "prompt_ids[1] = 1000 is out of range: token ids are 0..999");
  bad(R"({"prompt_ids":[1,-1]})", "invalid_request", "prompt_ids[1] = -1");
  bad(R"({"prompt_ids":[1.5]})", "invalid_params", "prompt_ids[0] = 1.5 has the wrong type");
  bad(R"({"prompt":5})", "invalid_params", "prompt = 5 has the wrong type: a string");
  bad(R"({"messages":[]})", "invalid_request", "messages = []");
  bad(R"({"messages":[{"role":"robot","content":"s"}]})", "invalid_params",
      "messages[0].role = \"robot\" is out of range");
  bad(R"({"messages":[{"role":"user"}]})", "invalid_request", "messages[0]");
  bad(R"({"prompt":"x","rows":[-1]})", "invalid_request", "rows[0] = -1");
}

BOOST_AUTO_TEST_CASE(faults_name_key_and_value) {
  bad_params(R"({"temprature":1})", "invalid_request",
             "unknown key \"temprature\" in params; known keys: temperature,");
  bad(R"({"prompt":"x","parms":{}})", "invalid_request", "unknown key \"parms\"");
  bad_params(R"({"temperature":"hot"})", "invalid_params", "temperature = \"hot\" has the wrong type: a number");
  bad_params(R"({"temperature":true})", "invalid_params", "temperature = true has the wrong type");
  bad_params(R"({"temperature":null})", "invalid_params", "temperature = null has the wrong type");
  bad_params(R"({"temperature":-1})", "invalid_params", "temperature = -1 is out of range");
  bad_params(R"({"temperature":1e39})", "invalid_params", "temperature = 1e+39 is out of range");
  bad_params(R"({"top_p":0})", "invalid_params", "top_p = 0 is out of range: above 0, at most 1");
  bad_params(R"({"top_p":1e-60})", "invalid_params", "top_p = 0 is out of range");
  bad_params(R"({"top_k":1.0})", "invalid_params", "top_k = 1.0 has the wrong type: an integer");
  bad_params(R"({"max_tokens":4294967296})", "invalid_params", "max_tokens = 4294967296 is out of range");
  bad_params(R"({"max_tokens":-9223372036854775808})", "invalid_params", "max_tokens");
  bad_params(R"({"max_tokens":18446744073709551615})", "invalid_params", "max_tokens");
  bad_params(R"({"max_tokens":0})", "invalid_params", "max_tokens = 0");
  bad_params(R"({"seq_seed":-1})", "invalid_params", "seq_seed = -1 is out of range");
  bad_params(R"({"seq_seed":18446744073709551616})", "invalid_params", "seq_seed");
  BOOST_TEST((good(R"({"prompt":"x","params":{"seq_seed":-0}})").params.seq_seed == std::uint64_t{0}));
  bad_params(R"({"seq_seed":-0.0})", "invalid_params", "seq_seed = -0.0 is out of range: an integer from 0");
  bad_params(R"({"seq_seed":1.5})", "invalid_params", "seq_seed = 1.5");
  bad_params(R"({"seq_seed":"7"})", "invalid_params", "seq_seed = \"7\" has the wrong type");
  bad_params(R"({"logprobs":1})", "invalid_params", "logprobs = 1 has the wrong type: true or false");
  bad_params(R"({"logprobs_mode":"cooked"})", "invalid_params",
             "logprobs_mode = \"cooked\" is out of range: raw or processed");
  bad_params(R"({"stop":[1]})", "invalid_params", "stop[0] = 1 has the wrong type");
  bad_params(R"({"stop":""})", "invalid_params", "stop = \"\" is out of range");
  bad_params(R"({"stop_token_ids":[1,1000]})", "invalid_params",
             "stop_token_ids = 1000 is out of range: token ids are 0..999");
  bad_params(R"({"logit_bias":{"x":1}})", "invalid_params", "logit_bias: key \"x\" is no token id");
  bad_params(R"({"logit_bias":{"1":"y"}})", "invalid_params", "logit_bias[1] = \"y\" has the wrong type");
  bad_params(R"({"logit_bias":[1]})", "invalid_params", "logit_bias = [1] has the wrong type");
  bad_params(R"({"logit_bias":{"01":1,"1":2}})", "invalid_params", "twice");
  bad_params(R"([])", "invalid_params", "params = [] has the wrong type");
}

BOOST_AUTO_TEST_CASE(so_args_are_read) {
  const auto read = [](const std::string& text) { return good(R"({"prompt":"x","params":{"so_args":)" + text + "}}"); };
  const auto plain = *read(R"({"schema_type":"regex","schema":"a+"})").params.so_args;
  BOOST_TEST((plain == structured_output_args{.schema_type = "regex", .schema = "a+"}));
  const auto full = *read(R"({"schema_type":"json","schema":"{\"b\":1,\"a\":1.50}","trigger_token_ids":[5,999],
    "bound_token_id":0,"strict":false,"any_whitespace":false,"max_whitespace":3,"indent":2,"any_order":true,
    "infer_type":false,"lenient":true})")
                         .params.so_args;
  BOOST_TEST(full.schema == "{\"b\":1,\"a\":1.50}"); // to the letter
  BOOST_TEST((full.trigger_token_ids == std::vector<std::int32_t>{5, 999}));
  BOOST_TEST((full.bound_token_id == 0));
  BOOST_TEST((!full.strict && !full.any_whitespace && full.max_whitespace == 3 && full.indent == 2 && full.any_order &&
              !full.infer_type && full.lenient && !full.dot_excludes_newline));
  const auto dot =
      *read(R"({"schema_type":"regex","schema":".","dot_excludes_newline":true,"indent":null})").params.so_args;
  BOOST_TEST((dot == structured_output_args{.schema_type = "regex", .schema = ".", .dot_excludes_newline = true}));
  BOOST_TEST(
      (*read(R"({"schema_type":"ebnf","schema":"","trigger_token_ids":null,"bound_token_id":null})").params.so_args ==
       structured_output_args{.schema_type = "ebnf"}));
}

BOOST_AUTO_TEST_CASE(faults_in_so_args_name_key_and_value) {
  const auto bad_args = [](const std::string& text, const std::string& message) {
    bad_params(R"({"so_args":)" + text + "}", "so_invalid_args", message);
  };
  bad_args("7", "so_args = 7 has the wrong type: an object");
  bad_args(R"({"type":"json"})", "unknown key \"type\" in so_args; known keys: schema_type, schema,");
  bad_args(R"({"schema":"{}"})", "so_args.schema_type is missing");
  bad_args(R"({"schema_type":"json"})", "so_args.schema is missing");
  bad_args(R"({"schema_type":"xml","schema":""})",
           "so_args.schema_type = \"xml\" is out of range: json, regex or ebnf");
  bad_args(R"({"schema_type":1,"schema":""})", "so_args.schema_type = 1 has the wrong type");
  bad_args(R"({"schema_type":"json","schema":{"type":"null"}})",
           "so_args.schema = {\"type\":\"null\"} has the wrong type: a string is expected");
  bad_args(R"({"schema_type":"json","schema":"{}","serialized":"x"})", "so_args.serialized");
  bad_args(R"({"schema_type":"json","schema":"{}","trigger_token_ids":[1],"bound_token_ids":[2]})",
           "so_args.bound_token_ids is an old name: give bound_token_id");
  bad_args(R"({"schema_type":"json","schema":"{}","trigger_token_ids":7})",
           "so_args.trigger_token_ids = 7 has the wrong type");
  bad_args(R"({"schema_type":"json","schema":"{}","trigger_token_ids":[1,true]})",
           "so_args.trigger_token_ids[1] = true has the wrong type");
  bad_args(R"({"schema_type":"json","schema":"{}","trigger_token_ids":[-1]})",
           "so_args.trigger_token_ids = -1 is out of range: token ids are 0..999");
  bad_args(R"({"schema_type":"json","schema":"{}","trigger_token_ids":[1000]})", "so_args.trigger_token_ids = 1000");
  bad_args(R"({"schema_type":"json","schema":"{}","bound_token_id":7})",
           "so_args.bound_token_id = 7 needs trigger_token_ids");
  bad_args(R"({"schema_type":"json","schema":"{}","trigger_token_ids":[],"bound_token_id":7})", "needs trigger");
  bad_args(R"({"schema_type":"json","schema":"{}","trigger_token_ids":[1],"bound_token_id":1.5})",
           "so_args.bound_token_id = 1.5 has the wrong type");
  bad_args(R"({"schema_type":"json","schema":"{}","trigger_token_ids":[1],"bound_token_id":1000})",
           "so_args.bound_token_id = 1000 is out of range");
  bad_args(R"({"schema_type":"json","schema":"{}","strict":1})",
           "so_args.strict = 1 has the wrong type: true or false");
  bad_args(R"({"schema_type":"json","schema":"{}","max_whitespace":-1})",
           "so_args.max_whitespace = -1 is out of range");
  bad_args(R"({"schema_type":"json","schema":"{}","indent":65})", "so_args.indent = 65 is out of range: 0..64");
  bad_args(R"({"schema_type":"json","schema":"{}","lenient":1})",
           "so_args.lenient = 1 has the wrong type: true or false");
  bad_args(R"({"schema_type":"json","schema":"{}","so_json_lenient":true})",
           "unknown key \"so_json_lenient\" in so_args");
  // Keys of another kind of constraint, also with the value that they have anyway.
  for (const std::string key : {"strict", "any_whitespace", "any_order", "infer_type", "lenient"})
    for (const std::string kind : {"regex", "ebnf"})
      bad_args(R"({"schema_type":")" + kind + R"(","schema":"a",")" + key + "\":true}",
               "so_args." + key + " = true has no effect with schema_type " + kind +
                   ", it belongs to json; leave it out");
  bad_args(R"({"schema_type":"ebnf","schema":"a","max_whitespace":64})", "so_args.max_whitespace = 64 has no effect");
  bad_args(R"({"schema_type":"regex","schema":"a","indent":0})", "so_args.indent = 0 has no effect");
  for (const std::string kind : {"json", "ebnf"})
    bad_args(R"({"schema_type":")" + kind + R"(","schema":"{}","dot_excludes_newline":false})",
             "so_args.dot_excludes_newline = false has no effect with schema_type " + kind + ", it belongs to regex");
  bad_args(R"({"schema_type":"xml","schema":"","strict":true})", "so_args.schema_type = \"xml\" is out of range");
}

BOOST_AUTO_TEST_CASE(a_bad_line_keeps_a_good_id) {
  BOOST_TEST(*parse_request_line(R"({"id":"a","prompt":"x","params":{"top_p":7}})", 5).id == "a");
  BOOST_TEST(*parse_request_line(R"({"params":{}})", 5).id == "5");
  BOOST_TEST(!parse_request_line(R"({"id":7,"prompt":"x"})", 5).id.has_value());
  BOOST_TEST(!parse_request_line(R"({"id":"","prompt":"x"})", 5).id.has_value());
  BOOST_TEST(!parse_request_line("nonsense", 5).id.has_value());
}

BOOST_AUTO_TEST_CASE(broken_json_is_one_clear_error) {
  bad("", "invalid_json", "not a JSON object");
  bad("{\"prompt\":", "invalid_json", "parse error");
  bad("[1]", "invalid_json", "the line holds [1]");
  bad("{\"prompt\":\"\xff\"}", "invalid_json", "UTF-8");
  bad(R"({"prompt":"x","prompt":"y"})", "invalid_json", "key \"prompt\" occurs twice");
  bad(R"({"prompt":"x","params":{"n":1,"n":2}})", "invalid_json", "key \"n\" occurs twice");
  bad(std::string(50, '['), "invalid_json", "parse error");
  bad(std::string(100000, '[') + std::string(100000, ']'), "invalid_json", "nested deeper than 64");
  std::string deep;
  for (int i = 0; i < 100000; ++i)
    deep += "{\"a\":";
  bad(deep + "1" + std::string(100000, '}'), "invalid_json", "nested deeper than 64");
  bad(R"({"prompt":"x"} trailing)", "invalid_json", "parse error");
}

BOOST_AUTO_TEST_CASE(params_alone) {
  BOOST_TEST(parse_sampling_params(R"({"top_k":3})")->top_k == 3);
  BOOST_TEST(parse_sampling_params(R"({"top_k":0})").failure().code == "invalid_params");
}

BOOST_AUTO_TEST_SUITE_END()
