#include "cluster/messages.hpp"
#include <bit>

namespace troupe {

namespace {

template <class T> std::string bytes_of(caf::actor_system& system, T& value) {
  std::vector<char> bytes;
  caf::binary_serializer out{system, bytes};
  if (out(value))
    return "unwritable";
  return {bytes.begin(), bytes.end()};
}

// Writes the value, reads it into a fresh one, writes that: the bytes must be equal and not those of a fresh one.
template <class T> bool survives(caf::actor_system& system, T value) {
  const std::string first = bytes_of(system, value);
  T copy{};
  caf::binary_deserializer in{system, first.data(), first.size()};
  return !in(copy) && bytes_of(system, copy) == first;
}

const req_t some_req{3, 4};
const stamp some_stamp{1, 2, 3, 4};

job some_job() {
  job j;
  j.req = some_req;
  j.branch = 1;
  j.attempt = 2;
  j.sequence = 77;
  j.request_id = "r1";
  j.tokens = {0, 5, 129279};
  j.params.temperature = 0.7f;
  j.params.stop = {"\n\n", "end"};
  j.params.logit_bias = {{3, -1.5f}};
  j.params.logprobs_mode = logprobs_source::processed;
  j.params.so_args = structured_output_args{.schema_type = "regex", .schema = "a*"};
  j.seed = 0xDEADBEEFCAFEBABE;
  j.eos_ids = {1};
  j.logit_rows = {0, 2};
  j.emitted = {6, 7};
  j.priority = -3;
  j.deadline_steps = 9;
  j.cache_salt = "tenant";
  j.chunk_checkpoints = {128, 500};
  j.fork_of = 76;
  j.handoff = {5, true, 2, "n0", "tcp://127.0.0.1:48001", 7};
  return j;
}

engine_metrics some_metrics() {
  engine_metrics m;
  m.prefill_steps = 3;
  m.speculation.take_sequence(5, 3);
  m.speculation.take_step(16, 4.5, 10, 4, 12);
  m.masks.in_time = 7;
  m.masks.fill_time.observe(3e-6);
  m.iteration_tokens.observe(9);
  m.prefill_time.observe(1e6);
  return m;
}

grammar_report some_grammar_report() {
  grammar_report r{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, {}};
  r.compile_time.observe(0.001);
  return r;
}

branch_record some_record() {
  branch_record r;
  r.rank = 1;
  r.finish_reason = "abort";
  r.cause = "caller";
  r.output_tokens = 7;
  r.end = 1.5;
  r.gaps.observe(0.02);
  return r;
}

tokens some_tokens() {
  tokens t;
  t.req = some_req;
  t.branch = 2;
  t.first_pos = 1000;
  t.ids = {7, 8};
  t.logprobs = pack_f32({-0.5f, -9999.0f});
  t.top = pack_top({{7, -0.5f}, {9, -1.0f}}) + pack_top({});
  t.prompt_logprobs = pack_f32({-1.0f});
  t.logits = pack_f32({1.0f, -2.0f});
  t.end = 4;
  t.stop_id = 1;
  t.error_code = "device_error";
  t.error_text = "text";
  t.steps = 9;
  t.preemptions = 2;
  t.cached_tokens = 128;
  return t;
}

spec_report some_spec_report() {
  spec_report r;
  r.decisions = 9;
  r.late = 1;
  r.drafts = 8;
  r.accepted = 6;
  r.not_finite = 2;
  r.tokens_per_step = 1.75;
  r.positions.resize(2);
  r.positions[1].bin[9] = {4, 3, 3.5};
  r.temperatures = {1.25};
  r.useless = true;
  r.ranks = {{5, 3, 8, 0.5, 0.25, 0.125, {{1, 10.0}, {8, 11.5}}}};
  return r;
}

rank_intent some_intent() {
  rank_intent i{rank_id{2}, 3, 1ull << 40, 4, {}, 17};
  i.wishes.decode = i.wishes.kv_low = true;
  i.wishes.held_tokens = 512;
  i.wishes.steps_since_prefill = 6;
  return i;
}

kv_report some_kv_report() {
  kv_report r{10, 9, 8, false, {}};
  r.statistics.hit_tokens = 256;
  r.statistics.used_slots = 3;
  return r;
}

} // namespace

std::string check_messages(caf::actor_system& system) {
  const auto first_bad = [](std::initializer_list<std::pair<const char*, bool>> checks) {
    for (const auto& [name, good] : checks)
      if (!good)
        return std::string(name);
    return std::string();
  };
  return first_bad({
      {"stamp", survives(system, some_stamp)},
      {"ack", survives(system, ack{3, ack_code::no_space, "no_space: full"})},
      {"submit", survives(system, submit{some_stamp, some_job()})},
      {"cancel", survives(system, cancel{some_stamp, some_req, 1, 77, "client"})},
      {"rank_lost", survives(system, rank_lost{1, "killed"})},
      {"rank_back", survives(system, rank_back{})},
      {"hold_steps", survives(system, hold_steps{true})},
      {"masks_made", survives(system, masks_made{})},
      {"scheduler_report",
       survives(system,
                scheduler_report{
                    1, 2, 3, 4, 5, 6, some_metrics(), {1, 2, 3, 4, 5, 6, 7, 8, 9, 1.5, 2.5}, false, 7, 8, "blocks"})},
      {"kv_turn_done", survives(system, kv_turn_done{12})},
      {"kv_query", survives(system, kv_query{true})},
      {"kv_report", survives(system, some_kv_report())},
      {"step_done", survives(system, step_done{99})},
      {"device_check", survives(system, device_check{})},
      {"step_check", survives(system, step_check{98})},
      {"spec_load", survives(system, spec_load{5,
                                               1,
                                               3,
                                               300,
                                               pack_f32({0.9f, 0.5f}),
                                               {{8, 3, 290, 1.5, 0.25, false}, {4, 3, 280, 1.25, 0, false}},
                                               "\2",
                                               "\1",
                                               pack_f32({0.75f, 0.5f}),
                                               3})},
      {"spec_plan", survives(system, spec_plan{5, 2, {4, 7}})},
      {"spec_report", survives(system, some_spec_report())},
      {"rank_intent", survives(system, some_intent())},
      {"step_decision", survives(system, step_decision{3, 9, 4, step_kind::prefill})},
      {"group_view", survives(system, group_view{4, 9, {rank_id{0}, rank_id{2}}, {rank_id{1}}, {{rank_id{1}, true}}})},
      {"join_group", survives(system, join_group{3})},
      {"group_ping", survives(system, group_ping{})},
      {"group_alive", survives(system, group_alive{3, 7})},
      {"group_tick", survives(system, group_tick{})},
      {"grammar_unwanted", survives(system, grammar_unwanted{4})},
      {"grammar_tick", survives(system, grammar_tick{})},
      {"grammar_report", survives(system, some_grammar_report())},
      {"load", survives(system, load{1, 2, pack_u32({1, 2, 0xFFFFFFFF})})},
      {"slot_table", survives(system, slot_table{1, 2, 1, 3, 2, {0, 1, 2, -1}, 9, {5, 6, 7}, 0.75})},
      {"tokens", survives(system, some_tokens())},
      {"tok_ack", survives(system, tok_ack{7, 1002, 1})},
      {"begun", survives(system, begun{1, 2})},
      {"reserved", survives(system, reserved{1, 2})},
      {"moved", survives(system, moved{1, 2})},
      {"handoff_lost", survives(system, handoff_lost{1, 2, "lease_expired", "text"})},
      {"done", survives(system, done{some_req, {some_record()}})},
  });
}

namespace {

void put_u32(std::string& bytes, std::uint32_t v) {
  for (int shift = 0; shift < 32; shift += 8)
    bytes.push_back(static_cast<char>(v >> shift & 0xFF));
}
std::uint32_t get_u32(const std::string& bytes, std::size_t at) {
  std::uint32_t v = 0;
  for (std::size_t b = 0; b < 4; ++b)
    v |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + b])) << (8 * b);
  return v;
}

} // namespace

std::string pack_u32(const std::vector<std::uint32_t>& values) {
  std::string bytes;
  bytes.reserve(4 * values.size());
  for (const std::uint32_t v : values)
    put_u32(bytes, v);
  return bytes;
}

std::vector<std::uint32_t> unpack_u32(const std::string& bytes) {
  std::vector<std::uint32_t> values;
  if (bytes.size() % 4 != 0)
    return values;
  values.reserve(bytes.size() / 4);
  for (std::size_t i = 0; i < bytes.size(); i += 4)
    values.push_back(get_u32(bytes, i));
  return values;
}

std::string pack_f32(const std::vector<float>& values) {
  std::string bytes;
  bytes.reserve(4 * values.size());
  for (const float v : values)
    put_u32(bytes, std::bit_cast<std::uint32_t>(v));
  return bytes;
}

void append_f32(const std::string& bytes, std::vector<float>& out) {
  for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4)
    out.push_back(std::bit_cast<float>(get_u32(bytes, i)));
}

std::string pack_top(const std::vector<token_logprob>& list) {
  std::string bytes;
  put_u32(bytes, static_cast<std::uint32_t>(list.size()));
  for (const auto& [id, lp] : list) {
    put_u32(bytes, static_cast<std::uint32_t>(id));
    put_u32(bytes, std::bit_cast<std::uint32_t>(lp));
  }
  return bytes;
}

void append_top(const std::string& bytes, std::vector<std::vector<token_logprob>>& out) {
  for (std::size_t at = 0; at + 4 <= bytes.size();) {
    std::uint32_t count = get_u32(bytes, at);
    at += 4;
    auto& list = out.emplace_back();
    for (; count > 0 && at + 8 <= bytes.size(); --count, at += 8)
      list.emplace_back(static_cast<std::int32_t>(get_u32(bytes, at)), std::bit_cast<float>(get_u32(bytes, at + 4)));
  }
}

std::string pack_so_args(const std::optional<structured_output_args>& a) {
  std::string bytes;
  if (!a)
    return bytes;
  const auto put_int = [&](std::int32_t v) { put_u32(bytes, static_cast<std::uint32_t>(v)); };
  for (const std::string* s : {&a->schema_type, &a->schema}) {
    put_u32(bytes, static_cast<std::uint32_t>(s->size()));
    bytes += *s;
  }
  put_u32(bytes, static_cast<std::uint32_t>(a->trigger_token_ids.size()));
  for (const std::int32_t id : a->trigger_token_ids)
    put_int(id);
  put_int(a->bound_token_id.value_or(0));
  put_int(a->max_whitespace);
  put_int(a->indent.value_or(0));
  std::uint32_t flags = 0;
  for (const bool b : {a->bound_token_id.has_value(), a->indent.has_value(), a->strict, a->any_whitespace, a->any_order,
                       a->infer_type, a->lenient, a->dot_excludes_newline})
    flags = 2 * flags + (b ? 1 : 0);
  put_u32(bytes, flags);
  return bytes;
}

std::optional<structured_output_args> unpack_so_args(const std::string& bytes) {
  std::size_t at = 0;
  bool good = !bytes.empty();
  const auto take_u32 = [&] {
    good = good && bytes.size() - at >= 4;
    if (!good)
      return std::uint32_t{0};
    at += 4;
    return get_u32(bytes, at - 4);
  };
  const auto take_int = [&] { return static_cast<std::int32_t>(take_u32()); };
  structured_output_args a;
  for (std::string* s : {&a.schema_type, &a.schema}) {
    const std::size_t size = take_u32();
    good = good && bytes.size() - at >= size;
    if (!good)
      return {};
    *s = bytes.substr(at, size);
    at += size;
  }
  for (std::uint32_t left = take_u32(); good && left > 0; --left)
    a.trigger_token_ids.push_back(take_int());
  a.bound_token_id = take_int();
  a.max_whitespace = take_int();
  a.indent = take_int();
  std::uint32_t flags = take_u32();
  if (!good || at != bytes.size())
    return {};
  const auto take_flag = [&] { return (std::exchange(flags, flags / 2) & 1) != 0; };
  a.dot_excludes_newline = take_flag();
  a.lenient = take_flag();
  a.infer_type = take_flag();
  a.any_order = take_flag();
  a.any_whitespace = take_flag();
  a.strict = take_flag();
  if (!take_flag())
    a.indent.reset();
  if (!take_flag())
    a.bound_token_id.reset();
  return a;
}

std::string note_of(const error& e) {
  return e.code + ": " + e.message;
}

error error_of(const ack& a) {
  const auto colon = a.note.find(": ");
  if (colon == std::string::npos)
    return {"refused", a.note};
  return {a.note.substr(0, colon), a.note.substr(colon + 2)};
}

} // namespace troupe
