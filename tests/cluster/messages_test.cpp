#include "cluster/gateway_messages.hpp"
#include "cluster/messages.hpp"
#include "tests/support/by_hand.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

namespace {

template <class T> T through_the_wire(caf::actor_system& sys, T value) {
  std::vector<char> bytes;
  caf::binary_serializer out{sys, bytes};
  BOOST_REQUIRE(!out(value));
  T copy{};
  caf::binary_deserializer in{sys, bytes.data(), bytes.size()};
  BOOST_REQUIRE(!in(copy));
  return copy;
}

} // namespace

BOOST_FIXTURE_TEST_SUITE(messages, by_hand)

BOOST_AUTO_TEST_CASE(every_message_survives_the_wire) {
  BOOST_TEST(check_messages(sys) == "");
}

BOOST_AUTO_TEST_CASE(a_job_arrives_field_by_field) {
  submit s;
  s.head = {1, 2, 3, 4};
  s.work.req = {5, 6};
  s.work.branch = 7;
  s.work.attempt = 8;
  s.work.sequence = 9;
  s.work.request_id = "name";
  s.work.tokens = {0, 129279, 3};
  s.work.seed = ~std::uint64_t{0};
  s.work.eos_ids = {1};
  s.work.logit_rows = {2};
  s.work.chunk_checkpoints = {300, 1000};
  auto& p = s.work.params;
  p.temperature = 0.25f, p.top_p = 0.5f, p.top_k = 3, p.min_p = 0.125f, p.max_tokens = 17, p.min_tokens = 2;
  p.ignore_eos = true, p.stop = {"a", ""}, p.stop_token_ids = {4}, p.n = 2, p.logprobs = false, p.top_logprobs = 5;
  p.prompt_logprobs = true, p.logprobs_mode = logprobs_source::processed, p.golden_token_ids = {6, 7};
  p.logit_bias = {{8, -1.5f}};
  p.so_args = {.schema_type = "json",
               .schema = "{}",
               .trigger_token_ids = {9, 10},
               .bound_token_id = 0,
               .strict = false,
               .any_whitespace = true,
               .max_whitespace = 3,
               .indent = {},
               .any_order = true,
               .infer_type = false,
               .lenient = true,
               .dot_excludes_newline = true};
  const submit got = through_the_wire(sys, s);
  BOOST_TEST(got.head.term == 1u);
  BOOST_TEST(got.head.from == 4u);
  BOOST_TEST((got.work.req == req_t{5, 6}));
  BOOST_TEST(got.work.branch == 7u);
  BOOST_TEST(got.work.attempt == 8u);
  BOOST_TEST(got.work.sequence == 9u);
  BOOST_TEST(got.work.request_id == "name");
  BOOST_TEST(got.work.tokens == s.work.tokens, boost::test_tools::per_element());
  BOOST_TEST(got.work.seed == ~std::uint64_t{0});
  BOOST_TEST(got.work.eos_ids == s.work.eos_ids, boost::test_tools::per_element());
  BOOST_TEST(got.work.logit_rows == s.work.logit_rows, boost::test_tools::per_element());
  BOOST_TEST(got.work.chunk_checkpoints == s.work.chunk_checkpoints, boost::test_tools::per_element());
  BOOST_TEST((got.work.params == p)); // every field but seq_seed, which is absent here
}

BOOST_AUTO_TEST_CASE(a_constraint_survives_in_every_form_and_damaged_bytes_give_none) {
  structured_output_args a{.schema_type = "ebnf", .schema = std::string("root ::= \"\0\xff\"", 13)};
  BOOST_TEST(pack_so_args({}) == "");
  BOOST_TEST((unpack_so_args("") == std::nullopt));
  for (int form = 0; form < 256; ++form) {
    const auto bit = [&](int b) { return (form >> b & 1) != 0; };
    a.bound_token_id = bit(0) ? std::optional(-1) : std::nullopt;
    a.indent = bit(1) ? std::optional(0) : std::nullopt;
    a.strict = bit(2), a.any_whitespace = bit(3), a.any_order = bit(4), a.infer_type = bit(5);
    a.dot_excludes_newline = bit(6), a.lenient = bit(7);
    const std::string bytes = pack_so_args(a);
    BOOST_TEST((unpack_so_args(bytes) == a), form);
    for (std::size_t n = 0; n < bytes.size(); ++n)
      BOOST_TEST((unpack_so_args(bytes.substr(0, n)) == std::nullopt));
    BOOST_TEST((unpack_so_args(bytes + '\0') == std::nullopt));
  }
}

BOOST_AUTO_TEST_CASE(tokens_arrive_field_by_field) {
  tokens t;
  t.first_pos = -1;
  t.ids = {3};
  t.top = pack_top({{1, -0.5f}, {2, -3.0f}}) + pack_top({}) + pack_top({{3, -1.0f}});
  t.logits = pack_f32({0.5f, -0.0f, 1e-45f});
  t.end = 3;
  t.error_text = std::string("zero \0 inside", 13);
  t.warnings = {"#/not has no effect", ""};
  const tokens got = through_the_wire(sys, t);
  BOOST_TEST(got.first_pos == -1);
  BOOST_TEST(got.warnings == t.warnings, boost::test_tools::per_element());
  std::vector<std::vector<token_logprob>> top;
  append_top(got.top, top);
  BOOST_REQUIRE(top.size() == 3u);
  BOOST_TEST((top[0] == std::vector<token_logprob>{{1, -0.5f}, {2, -3.0f}}));
  BOOST_TEST(top[1].empty());
  BOOST_TEST((top[2] == std::vector<token_logprob>{{3, -1.0f}}));
  std::vector<float> logits;
  append_f32(got.logits, logits);
  BOOST_REQUIRE(logits.size() == 3u);
  BOOST_TEST(logits[0] == 0.5f);
  BOOST_TEST(std::signbit(logits[1]));
  BOOST_TEST(logits[2] == 1e-45f);
  append_top("\xFF\xFF\xFF\xFF", top); // a length that lies gives an empty list, not memory
  BOOST_TEST(top.back().empty());
  BOOST_TEST(int(got.end) == 3);
  BOOST_TEST(got.error_text == t.error_text);
}

BOOST_AUTO_TEST_CASE(what_processes_say_of_themselves_arrives_field_by_field) {
  cluster_status s;
  s.term = 1, s.mepoch = 2, s.uptime_ms = 3, s.configuration = "digest", s.stopping = true;
  member_report r;
  r.known.who = {member_role::gateway, "batch.1", "n0", 4, ~std::uint64_t{0}, "127.0.0.1", 65535, 5, "build", "digest"};
  r.known.state = member_state::suspect;
  r.progress = {6, 7, 11, 8, 9, 2, -1, "blocks", {1, 2, 3, 4, 5, 6, 7, 8, 9, 1.5, 2.5}};
  r.progress.given_up = {{"decode.0", "exit code 70: it is broken"}};
  spec_report& known = r.progress.speculation;
  known.drafts = 8, known.accepted = 6, known.not_finite = 2, known.tokens_per_step = 1.75, known.useless = true;
  known.positions.resize(2);
  known.positions[1].bin[9] = {4, 3, 3.5};
  known.temperatures = {1, 1.25};
  known.ranks = {{5, 3, 8, 0, 0, 0, {}}};
  r.silent_ms = 10;
  s.members = {member_report{}, r};
  const cluster_status got = through_the_wire(sys, s);
  BOOST_TEST(got.term == 1u);
  BOOST_TEST(got.mepoch == 2u);
  BOOST_TEST(got.uptime_ms == 3u);
  BOOST_TEST(got.configuration == "digest");
  BOOST_TEST(got.stopping);
  BOOST_REQUIRE(got.members.size() == 2u);
  const member_report& m = got.members[1];
  BOOST_TEST((m.known.who.role == member_role::gateway));
  BOOST_TEST(m.known.who.name == "batch.1");
  BOOST_TEST(m.known.who.node == "n0");
  BOOST_TEST(m.known.who.rank == 4u);
  BOOST_TEST(m.known.who.incarnation == ~std::uint64_t{0});
  BOOST_TEST(m.known.who.host == "127.0.0.1");
  BOOST_TEST(m.known.who.port == 65535);
  BOOST_TEST(m.known.who.protocol == 5u);
  BOOST_TEST(m.known.who.build == "build");
  BOOST_TEST(m.known.who.configuration == "digest");
  BOOST_TEST((m.known.state == member_state::suspect));
  BOOST_TEST(m.progress.incarnation == 6u);
  BOOST_TEST(m.progress.steps == 7u);
  BOOST_TEST(m.progress.starved_ms == 11u);
  BOOST_TEST(m.progress.running == 8u);
  BOOST_TEST(m.progress.waiting == 9u);
  BOOST_TEST(m.progress.paused == 2u);
  BOOST_TEST(m.progress.free_blocks == -1);
  BOOST_TEST(m.progress.waits_for == "blocks");
  BOOST_TEST(m.progress.handoffs.receiving == 2u);
  BOOST_TEST(m.progress.handoffs.sent_bytes == 7u);
  BOOST_TEST(m.progress.handoffs.tail_ms_max == 2.5);
  BOOST_REQUIRE(m.progress.given_up.size() == 1u);
  BOOST_TEST(m.progress.given_up[0].name == "decode.0");
  BOOST_TEST(m.progress.given_up[0].how == "exit code 70: it is broken");
  const spec_report& spec = m.progress.speculation;
  BOOST_TEST((spec.drafts == 8 && spec.accepted == 6 && spec.not_finite == 2 && spec.useless));
  BOOST_TEST(spec.tokens_per_step == 1.75);
  BOOST_REQUIRE(spec.positions.size() == 2u);
  const reliability_bin& bin = spec.positions[1].bin[9];
  BOOST_TEST((bin.drafts == 4 && bin.accepted == 3 && bin.confidence == 3.5));
  BOOST_TEST(spec.temperatures == known.temperatures, boost::test_tools::per_element());
  BOOST_REQUIRE(spec.ranks.size() == 1u);
  BOOST_TEST((spec.ranks[0].round == 5 && spec.ranks[0].sequences == 3 && spec.ranks[0].total_q == 8));
  BOOST_TEST(m.silent_ms == 10u);
}

BOOST_AUTO_TEST_CASE(damaged_bytes_give_an_error) {
  std::vector<char> bytes;
  caf::binary_serializer out{sys, bytes};
  submit s;
  s.work.tokens = {1, 2, 3};
  BOOST_REQUIRE(!out(s));
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    submit copy;
    caf::binary_deserializer in{sys, bytes.data(), n};
    BOOST_TEST(bool(in(copy)));
  }
}

BOOST_AUTO_TEST_CASE(packing_and_notes) {
  const std::vector<std::uint32_t> v{0, 1, 0x01020304, 0xFFFFFFFF};
  BOOST_TEST(pack_u32(v).substr(8, 4) == "\x04\x03\x02\x01");
  BOOST_TEST(unpack_u32(pack_u32(v)) == v, boost::test_tools::per_element());
  BOOST_TEST(unpack_u32("abc").empty());
  const error e{"no_space", "needs 9: has 8"};
  BOOST_TEST(error_of({1, ack_code::no_space, note_of(e)}).code == "no_space");
  BOOST_TEST(error_of({1, ack_code::no_space, note_of(e)}).message == e.message);
}

BOOST_AUTO_TEST_CASE(what_a_gateway_and_its_clients_say_arrives_field_by_field) {
  gateway_request q;
  q.number = 1, q.id = "r", q.prompt = {2, 129279}, q.seed = ~std::uint64_t{0}, q.logit_rows = {1};
  q.params.n = 3, q.params.stop = {"a"};
  q.priority = -4, q.deadline_steps = 5, q.cache_salt = std::string("s\0t", 3);
  q.chunk_checkpoints = {7, 1000};
  const gateway_request got = through_the_wire(sys, q);
  BOOST_TEST(got.number == 1u);
  BOOST_TEST(got.id == "r");
  BOOST_TEST(got.prompt == q.prompt, boost::test_tools::per_element());
  BOOST_TEST((got.params == q.params));
  BOOST_TEST(got.seed == ~std::uint64_t{0});
  BOOST_TEST(got.logit_rows == q.logit_rows, boost::test_tools::per_element());
  BOOST_TEST(got.priority == -4);
  BOOST_TEST(got.deadline_steps == 5);
  BOOST_TEST(got.cache_salt == q.cache_salt);
  BOOST_TEST(got.chunk_checkpoints == q.chunk_checkpoints, boost::test_tools::per_element());
  attached a;
  a.code = ack_code::busy, a.why = "why", a.durable = true, a.limits.max_model_len = 7, a.numerics_id = "n",
  a.engines = 8;
  const attached front = through_the_wire(sys, a);
  BOOST_TEST((front.code == ack_code::busy));
  BOOST_TEST(front.why == "why");
  BOOST_TEST(front.durable);
  BOOST_TEST(front.limits.max_model_len == 7);
  BOOST_TEST(front.numerics_id == "n");
  BOOST_TEST(front.engines == 8u);
  const gateway_news news = through_the_wire(sys, gateway_news{{{1, 2, "text", std::string("\0", 1)}, {}}});
  BOOST_REQUIRE(news.news.size() == 2u);
  BOOST_TEST(news.news[0].number == 1u);
  BOOST_TEST(news.news[0].branch == 2);
  BOOST_TEST(news.news[0].text == "text");
  BOOST_TEST(news.news[0].result == std::string("\0", 1));
}

BOOST_AUTO_TEST_CASE(a_result_keeps_all_its_bits_and_damaged_bytes_give_none) {
  generation_result r;
  r.id = "id", r.index = 3, r.text = std::string("a\0\xff", 3), r.token_ids = {1, 129279}, r.finish_reason = "error";
  r.stop_text = "s", r.stop_id = 4, r.prompt_tokens = 5, r.cached_tokens = 6, r.logprobs = {-0.0f, 1e-45f};
  r.top_logprobs = {{{7, -1.5f}}, {}}, r.prompt_logprobs = {-2.0f}, r.logits = {0.25f}, r.seq_seed = ~std::uint64_t{0};
  r.failure = error{"code", "message"};
  r.warnings = {"properties.a.contentEncoding has no effect"};
  r.usage = {8, 9, 10, 11, 12, 13.5, 14.5};
  const std::string bytes = pack_result(r);
  const auto got = unpack_result(bytes);
  BOOST_REQUIRE(got);
  BOOST_TEST(result_line(*got) == result_line(r));
  BOOST_TEST(pack_result(*got) == bytes);
  BOOST_TEST(std::signbit(got->logprobs[0]));
  BOOST_TEST(got->logits == r.logits, boost::test_tools::per_element());
  BOOST_TEST(got->warnings == r.warnings, boost::test_tools::per_element());
  BOOST_TEST(!unpack_result(bytes.substr(0, bytes.size() - 1)));
  BOOST_TEST(!unpack_result(bytes + "x"));
  BOOST_TEST(!unpack_result(""));
}

BOOST_AUTO_TEST_SUITE_END()
