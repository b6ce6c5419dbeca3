// Device cuda-reference: loading of the plug-in everywhere; with a GPU every operation against the reference device bit
// by bit, and the asynchronous machinery. Cases that need a GPU print why they skip.
#include "kernels/reference/sample.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/row_cases.hpp"
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <unistd.h>

using namespace troupe;
using namespace troupe::row_cases;
using test::gpu;

namespace {

std::string refusal(const std::string& device) {
  try {
    (void)make_device(device, {});
  } catch (const config_error& e) {
    return e.what();
  }
  return "";
}
bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct plugin_folder {
  explicit plugin_folder(const std::string& folder) {
    if (const char* old = std::getenv("TROUPE_PLUGIN_DIR"))
      before = old;
    ::setenv("TROUPE_PLUGIN_DIR", folder.c_str(), 1);
  }
  ~plugin_folder() {
    if (before.empty())
      ::unsetenv("TROUPE_PLUGIN_DIR");
    else
      ::setenv("TROUPE_PLUGIN_DIR", before.c_str(), 1);
  }
  std::string before;
};
struct temporary_folder {
  temporary_folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "troupe.XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  ~temporary_folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

// Floats as bits, for comparisons that see -0 and name the first difference.
void expect_equal_bits(const std::vector<float>& have, const std::vector<float>& want, const std::string& what) {
  BOOST_REQUIRE(have.size() == want.size());
  for (std::size_t i = 0; i < have.size(); ++i)
    BOOST_REQUIRE_MESSAGE(float_bits(have[i]) == float_bits(want[i]),
                          what << ": element " << i << " is " << have[i] << ", not " << want[i]);
}

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_plugin)

BOOST_AUTO_TEST_CASE(a_missing_file_is_named) {
  const plugin_folder set("/no/such/folder");
  const std::string why = refusal("cuda-reference");
  BOOST_TEST(says(why, "/no/such/folder/troupe_cuda.so"));
  BOOST_TEST(says(why, "no such plug-in"));
}

BOOST_AUTO_TEST_CASE(a_damaged_file_is_refused) {
  const temporary_folder folder;
  const plugin_folder set(folder.path.string());
  std::ofstream(folder.path / "troupe_cuda.so") << "not a library";
  BOOST_TEST(says(refusal("cuda-reference"), "cannot be loaded"));
}

BOOST_AUTO_TEST_CASE(another_library_is_refused) {
  Dl_info facts;
  BOOST_REQUIRE(::dladdr(::dlsym(RTLD_DEFAULT, "fopen"), &facts) != 0);
  const temporary_folder folder;
  const plugin_folder set(folder.path.string());
  std::filesystem::create_symlink(std::filesystem::canonical(facts.dli_fname), folder.path / "troupe_cuda.so");
  BOOST_TEST(says(refusal("cuda-reference"), "not a device plug-in"));
}

BOOST_AUTO_TEST_CASE(another_build_is_refused) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "other_build";
  const plugin_folder set(folder.string());
  const std::string why = refusal("cuda-reference:0");
  BOOST_TEST(says(why, "another build"));
  BOOST_TEST(says(why, "0123456789abcdef"));
}

BOOST_AUTO_TEST_CASE(unusable_devices_say_why) {
  const std::string why = refusal("cuda-reference");
  if (!why.empty()) { // no plug-in, or no GPU for it
    BOOST_TEST_MESSAGE(why);
    BOOST_TEST((says(why, "no such plug-in") || says(why, "no NVIDIA driver") || says(why, "too old") ||
                says(why, "no GPU") || says(why, "compute capability")));
  }
  BOOST_TEST(says(refusal("cuda-reference2"), "unknown device"));
  if (says(why, "no such plug-in"))
    return;
  BOOST_TEST(says(refusal("cuda-reference:x"), "is a number"));
  BOOST_TEST(says(refusal("cuda-reference:-1"), "is a number"));
  if (gpu())
    BOOST_TEST(says(refusal("cuda-reference:99"), "no GPU of this index"));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(cuda_ops)

BOOST_AUTO_TEST_CASE(every_operation_has_the_reference_bits) {
  if (!gpu())
    return;
  const auto oracle = make_device("reference", {}), d = make_device("cuda-reference", {});
  BOOST_TEST(d->numerics_id() == oracle->numerics_id());
  BOOST_TEST_MESSAGE(d->name() << ": " << d->description());
  const std::vector<int> batch = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20}, shuffled = {6, 23, 0, 20, 2, 12, 1, 14, 18};
  for (const row_case& c : op_cases()) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const row_bits want = c.run(*oracle, seed, batch);
      BOOST_REQUIRE_MESSAGE(c.run(*d, seed, batch) == want, c.name << " seed " << seed);
      BOOST_REQUIRE_MESSAGE(c.run(*d, seed, shuffled) == c.run(*oracle, seed, shuffled), c.name << " seed " << seed);
      for (std::size_t i = 0; i < batch.size(); i += 5) {
        const std::vector<int> alone = {batch[i]};
        BOOST_REQUIRE_MESSAGE(c.run(*d, seed, alone)[0] == want[i], c.name << " seed " << seed << " row " << batch[i]);
      }
    }
    BOOST_TEST_MESSAGE(c.name << ": equal bits");
  }
}

// Sizes of the released model: many blocks, long sums, every tail of the row tiles.
BOOST_AUTO_TEST_CASE(products_of_large_sizes) {
  if (!gpu())
    return;
  const auto oracle = make_device("reference", {}), d = make_device("cuda-reference", {});
  numbers n(7, 1);
  for (const int groups : {1, 4})
    for (const weight_format f : {weight_format::fp8_block, weight_format::mxfp4}) {
      const std::int64_t outputs = 1300, cols = 2560;
      const auto source = make_weight_source(f, outputs, cols, numbers(7, 2, groups));
      for (const int rows : {1, 7, 8, 9, 33}) {
        const std::vector<float> x = n.reals(rows * groups * cols);
        std::vector<float> out[2];
        for (device* which : {oracle.get(), d.get()}) {
          arena m(*which);
          const auto w = which->pack(source->source);
          const auto to = m.room<float>(static_cast<std::size_t>(rows * outputs));
          which->ops().linear(*m.s, {m.put(x), w.get(), rows, groups, to});
          out[which == d.get()] = m.get(dev_ptr<const float>(to), static_cast<std::size_t>(rows * outputs));
        }
        expect_equal_bits(out[1], out[0], "linear of " + std::to_string(rows) + " rows");
      }
    }
}

// More keys than a block's own memory holds: the scratch of attention.
BOOST_AUTO_TEST_CASE(attention_over_a_long_step) {
  if (!gpu())
    return;
  const auto oracle = make_device("reference", {}), d = make_device("cuda-reference", {});
  constexpr int rows = 4200, heads = 2, dim = 32, window = 64;
  numbers n(8, 1);
  const std::vector<float> x = n.reals(rows * dim), q = n.reals(rows * heads * dim), sink = n.reals(heads);
  std::vector<std::int32_t> position(rows), sequence(rows, 0), low(rows), zero = {0}, count = {rows}, slot = {1};
  for (int i = 0; i < rows; ++i) {
    position[static_cast<std::size_t>(i)] = i;
    low[static_cast<std::size_t>(i)] = std::max(0, i - window + 1);
  }
  std::vector<float> out[2];
  for (device* which : {oracle.get(), d.get()}) {
    arena m(*which);
    attention_args a;
    a.map.rows = rows;
    a.map.sequences = 1;
    a.map.key_rows = rows;
    a.map.position = m.put(position);
    a.map.sequence = m.put(sequence);
    a.map.window_lo = m.put(low);
    a.map.window_hi = a.map.position;
    a.map.first_row = m.put(zero);
    a.map.row_count = m.put(count);
    a.map.start = m.put(zero);
    a.map.slot = m.put(slot);
    a.heads = heads;
    a.dim = dim;
    a.scale = 0.2f;
    a.q = m.put(q);
    a.ring = {m.room<std::byte>(2 * window * record_bytes(kv_format::fp8_ue8m0_32, dim)),
              window * record_bytes(kv_format::fp8_ue8m0_32, dim), window, dim, kv_format::fp8_ue8m0_32};
    const auto own = m.room<std::byte>(static_cast<std::size_t>(rows * record_bytes(a.ring.format, dim)));
    which->ops().encode(*m.s, {m.put(x), rows, dim, a.ring.format, own});
    a.own = own;
    a.sink = m.put(sink);
    a.out = m.room<float>(rows * heads * dim);
    which->ops().attention(*m.s, a);
    out[which == d.get()] = m.get(dev_ptr<const float>(a.out), rows * heads * dim);
  }
  expect_equal_bits(out[1], out[0], "attention");
}

// The released vocabulary: every filter, masks, ties, flat and steep rows, long top lists.
BOOST_AUTO_TEST_CASE(sampling_over_a_large_vocabulary) {
  if (!gpu())
    return;
  constexpr int vocab = 129280, rows = 24, max_top = 40;
  std::vector<float> logits;
  std::vector<sample_row_params> params;
  std::vector<std::uint32_t> masks;
  for (int r = 0; r < rows; ++r) {
    numbers n(9, 1, r);
    const float scale = r % 3 == 0 ? 0.01f : r % 3 == 1 ? 4.0f : 30.0f;
    for (int i = 0; i < vocab; ++i)
      logits.push_back(r % 4 == 3 ? static_cast<float>(n.between(-9, 9)) : n.real(scale));
    sample_row_params p;
    p.temperature = r % 6 == 5 ? 0.0f : 0.2f + 0.1f * static_cast<float>(n.below(18));
    p.top_p = n.below(2) == 0 ? 1.0f : 0.5f + 0.1f * static_cast<float>(n.below(5));
    p.top_k = n.below(2) == 0 ? -1 : n.between(1, 5000);
    p.min_p = n.below(2) == 0 ? 0.0f : 0.001f * static_cast<float>(n.between(1, 300));
    p.seed = n.bits();
    p.position = n.below(5000);
    p.processed = n.below(2) == 0 ? 1 : 0;
    p.top_logprobs = n.below(max_top + 1);
    if (r % 2 == 0) { // half full words, or mostly empty ones
      p.mask = r / 2;
      for (int w = 0; w < vocab / 32; ++w)
        masks.push_back(r % 4 == 0 || n.below(8) == 0 ? n.bits() : 0u);
    }
    params.push_back(p);
  }
  std::vector<std::int32_t> tokens[2], status[2];
  std::vector<float> logprobs[2];
  std::vector<std::pair<std::int32_t, float>> tops[2];
  for (const char* name : {"reference", "cuda-reference"}) {
    const auto d = make_device(name, {});
    arena m(*d);
    sample_rows_args a;
    a.logits = m.put(logits);
    a.rows = rows;
    a.vocab = vocab;
    a.params = m.put(params);
    a.masks = m.put(masks);
    a.max_top = max_top;
    a.token = m.room<std::int32_t>(rows);
    a.status = m.room<std::int32_t>(rows);
    a.logprob = m.room<float>(rows);
    a.top = m.room<std::pair<std::int32_t, float>>(rows * max_top);
    d->ops().sample_rows(*m.s, a);
    const int which = d->name() == "reference" ? 0 : 1;
    tokens[which] = m.get(dev_ptr<const std::int32_t>(a.token), rows);
    status[which] = m.get(dev_ptr<const std::int32_t>(a.status), rows);
    logprobs[which] = m.get(dev_ptr<const float>(a.logprob), rows);
    tops[which] = m.get(dev_ptr<const std::pair<std::int32_t, float>>(a.top), rows * max_top);
  }
  BOOST_TEST(tokens[1] == tokens[0], boost::test_tools::per_element());
  BOOST_TEST(status[1] == status[0], boost::test_tools::per_element());
  expect_equal_bits(logprobs[1], logprobs[0], "log-probability");
  for (std::size_t i = 0; i < tops[0].size(); ++i) {
    BOOST_REQUIRE_MESSAGE(tops[1][i].first == tops[0][i].first, "entry " << i << " of the top lists");
    BOOST_REQUIRE(float_bits(tops[1][i].second) == float_bits(tops[0][i].second));
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(cuda_streams)

BOOST_AUTO_TEST_CASE(memory_is_zeroed_and_refused_when_too_large) {
  if (!gpu())
    return;
  const auto d = make_device("cuda-reference", {});
  const auto s = d->make_stream();
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{5} << 20}) {
    const buffer b = d->allocate(n, "test");
    BOOST_TEST(b.bytes() == n);
    BOOST_TEST(reinterpret_cast<std::uintptr_t>(b.as<char>().raw()) % 64 == 0u);
    std::vector<char> back(n, 1);
    s->to_host(back.data(), b.as<std::byte>(), n);
    s->synchronise();
    BOOST_TEST(std::all_of(back.begin(), back.end(), [](char c) { return c == 0; }));
  }
  const device_memory m = d->memory();
  BOOST_TEST(m.available > 0u);
  BOOST_TEST(m.total >= m.available);
  for (const std::size_t n : {m.total + (std::size_t{1} << 30), std::size_t{1} << 60}) {
    std::string why;
    try {
      (void)d->allocate(n, "the KV pool");
    } catch (const device_error& e) {
      why = e.what();
    }
    BOOST_TEST_MESSAGE(why);
    BOOST_TEST(says(why, "the KV pool: needs " + std::to_string(n) + " bytes, "));
    BOOST_TEST(says(why, "bytes are available"));
  }
  (void)d->allocate(1024, "after a refusal");
}

// Sources may change when to_device returns; more than the staging memory holds, in many sizes.
BOOST_AUTO_TEST_CASE(copies_keep_their_order_and_their_source) {
  if (!gpu())
    return;
  const auto d = make_device("cuda-reference", {});
  const auto s = d->make_stream();
  const std::size_t n = std::size_t{30} << 20;
  const buffer a = d->allocate(n, "test"), b = d->allocate(n, "test");
  std::vector<unsigned char> source(n), back(n);
  numbers r(3, 1);
  for (unsigned char& c : source)
    c = static_cast<unsigned char>(r.bits());
  const std::vector<unsigned char> want = source;
  for (std::size_t at = 0, step = 1; at < n; at += step, step = step * 3 + 1) {
    const std::size_t part = std::min(step, n - at);
    s->to_device(a.as<std::byte>() + static_cast<std::int64_t>(at), source.data() + at, part);
    std::fill_n(source.begin() + static_cast<std::ptrdiff_t>(at), part, 0xee);
  }
  s->copy(b.as<std::byte>(), a.as<std::byte>(), n);
  s->zero(a.as<std::byte>(), n);
  s->to_host(back.data(), b.as<std::byte>(), n);
  s->synchronise();
  BOOST_TEST((back == want));
  s->copy(b.as<std::byte>() + 5, b.as<std::byte>(), n - 5); // overlapping
  s->to_host(back.data(), b.as<std::byte>(), n);
  const auto e = s->record();
  e->wait();
  BOOST_TEST(std::equal(want.begin(), want.end() - 5, back.begin() + 5));
  for (int i = 0; i < 10; ++i)
    s->copy(b.as<std::byte>(), a.as<std::byte>(), n);
  const auto later = s->record();
  later->wait();
  const double ms = later->ms_since(*e); // ten copies; a host's clock would count the wait before them too
  BOOST_TEST((ms > 0 && ms < 1000), ms);
}

BOOST_AUTO_TEST_CASE(events_are_seen_without_blocking_and_order_streams) {
  if (!gpu())
    return;
  const auto d = make_device("cuda-reference", {});
  const auto first = d->make_stream(), second = d->make_stream();
  const std::size_t n = 64 << 20;
  const buffer a = d->allocate(n, "test"), b = d->allocate(n, "test");
  for (int round = 0; round < 20; ++round) {
    const int value = 1000 + round;
    int seen = 0;
    first->zero(a.as<std::byte>(), n);
    for (int i = 0; i < 10; ++i) // some work in front
      first->copy(a.as<std::byte>(), b.as<std::byte>(), n);
    first->to_device(a.as<std::byte>(), &value, sizeof value);
    const auto written = first->record();
    second->wait_for(*written);
    second->to_host(&seen, a.as<std::byte>(), sizeof seen);
    const auto arrived = second->record();
    while (!arrived->done())
      std::this_thread::yield();
    BOOST_TEST(seen == value);
    BOOST_TEST(written->done());
  }
}

// A captured step reads and writes the same places at every launch.
BOOST_AUTO_TEST_CASE(graphs_repeat_a_step) {
  if (!gpu())
    return;
  const auto d = make_device("cuda-reference", {});
  const auto s = d->make_stream();
  const auto source = make_weight_source(weight_format::fp8_block, 96, 64, numbers(4, 1));
  const auto w = d->pack(source->source);
  const buffer x = d->allocate(64 * sizeof(float), "test"), y = d->allocate(96 * sizeof(float), "test"),
               scale = d->allocate(64 * sizeof(float), "test");
  std::vector<float> ones(64, 1.0f), out(96), again(96);
  const auto step = [&](float* to) {
    s->to_device(scale.as<std::byte>(), ones.data(), ones.size() * sizeof(float)); // its bytes belong to the graph
    d->ops().rms_norm(*s, {x.as<float>(), scale.as<float>(), 1, 64, 1e-6f, x.as<float>()});
    d->ops().linear(*s, {x.as<float>(), w.get(), 1, 1, y.as<float>()});
    s->to_host(to, y.as<std::byte>(), out.size() * sizeof(float));
  };
  s->begin_capture();
  BOOST_CHECK_THROW((void)s->record(), device_error);
  BOOST_CHECK_THROW(s->synchronise(), device_error);
  step(out.data());
  const auto g = s->end_capture();
  BOOST_REQUIRE(g);
  std::fill(ones.begin(), ones.end(), -7.0f);
  for (int round = 0; round < 3; ++round) {
    const std::vector<float> input = numbers(4, 2, round).reals(64);
    s->to_device(x.as<std::byte>(), input.data(), input.size() * sizeof(float));
    s->launch(*g);
    s->synchronise();
    std::fill(ones.begin(), ones.end(), 1.0f);
    s->to_device(x.as<std::byte>(), input.data(), input.size() * sizeof(float));
    step(again.data());
    s->synchronise();
    std::fill(ones.begin(), ones.end(), -7.0f);
    expect_equal_bits(out, again, "graph");
  }
  BOOST_CHECK_THROW((void)s->end_capture(), device_error);
}

// Damaged arguments that a kernel finds come back as an error of the stream; the device goes on.
BOOST_AUTO_TEST_CASE(faults_in_arguments_are_reported) {
  if (!gpu())
    return;
  const auto d = make_device("cuda-reference", {});
  arena m(*d);
  const auto x = m.put(std::vector<float>(8, 2.0f)), out = m.room<float>(8);
  d->ops().copy_rows(*m.s, {x, m.put(std::vector<std::int32_t>{0, -1}), 2, 4, out});
  BOOST_CHECK_EXCEPTION(m.s->synchronise(), device_error,
                        [](const device_error& e) { return says(e.what(), "row number lies outside"); });
  d->ops().copy_rows(*m.s, {x, m.put(std::vector<std::int32_t>{0, 1}), 2, 4, out});
  const auto back = m.get(dev_ptr<const float>(out), 8);
  BOOST_TEST(back[7] == 2.0f);
  // an object of another device, a stream of another device
  const auto reference = make_device("reference", {});
  const auto source = make_weight_source(weight_format::f32, 4, 4, numbers(1, 1));
  const auto theirs = reference->pack(source->source);
  BOOST_CHECK_THROW(d->ops().linear(*m.s, {x, theirs.get(), 1, 1, out}), device_error);
  BOOST_CHECK_THROW(d->ops().copy_columns(*reference->make_stream(), {x, 4, 1, 4, out, 4, false}), device_error);
  weight_source bad = source->source;
  bad.cols = 5;
  BOOST_CHECK_THROW((void)d->pack(bad), device_error);
}

BOOST_AUTO_TEST_SUITE_END()

// Last, in a process of its own: a wild address breaks the GPU's context for good. Every later call says so, none
// hangs.
BOOST_AUTO_TEST_SUITE(cuda_broken)

BOOST_AUTO_TEST_CASE(a_broken_gpu_is_an_error_and_no_hang) {
  if (!gpu())
    return;
  if (const char* tool = std::getenv("TROUPE_GPU_CHECKER"); tool != nullptr) {
    BOOST_TEST_MESSAGE("skipped under a memory checker, which would report the wild address");
    return;
  }
  const auto d = make_device("cuda-reference", {});
  const auto s = d->make_stream();
  const buffer out = d->allocate(64, "test");
  d->ops().copy_columns(
      *s, {dev_ptr<const float>(reinterpret_cast<const float*>(0x40)), 4, 1, 4, out.as<float>(), 4, false});
  std::string why;
  try {
    s->synchronise();
  } catch (const device_error& e) {
    why = e.what();
  }
  BOOST_TEST_MESSAGE(why);
  BOOST_TEST(says(why, "cudaError"));
  BOOST_CHECK_THROW(s->synchronise(), device_error);
  BOOST_CHECK_THROW((void)d->allocate(64, "test"), device_error);
  BOOST_CHECK_THROW((void)s->record(), device_error);
}

BOOST_AUTO_TEST_SUITE_END()
