#include "runtime/model/config.hpp"
#include "runtime/model/engram.hpp"
#include "runtime/model/numpy_random.hpp"
#include "runtime/model/safetensors.hpp"
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <fstream>
#include <numeric>
#include <sstream>

using namespace troupe;

namespace {

// Rows of a table of numbers; lines that start with # are comments.
std::vector<std::vector<std::uint64_t>> read_table(const std::string& name) {
  std::ifstream in(TROUPE_TEST_DATA "/model/" + name);
  std::vector<std::vector<std::uint64_t>> rows;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#')
      continue;
    std::istringstream fields(line);
    rows.emplace_back();
    for (std::uint64_t v; fields >> v;)
      rows.back().push_back(v);
  }
  return rows;
}

std::vector<std::int32_t> ints_of(std::span<const std::byte> bytes) {
  std::vector<std::int32_t> v(bytes.size() / 4);
  std::memcpy(v.data(), bytes.data(), v.size() * 4);
  return v;
}

// By trial division, as the training code does it, restarting for each (layer, order) and skipping used primes.
std::vector<std::vector<std::int64_t>> primes_by_definition(std::int64_t vocab, int layers, int orders, int heads) {
  auto prime = [](std::int64_t n) {
    for (std::int64_t d = 2; d * d <= n; ++d)
      if (n % d == 0)
        return false;
    return n >= 2;
  };
  std::vector<std::int64_t> used;
  std::vector<std::vector<std::int64_t>> out(static_cast<std::size_t>(layers));
  for (auto& layer : out)
    for (int i = 0; i < orders; ++i) {
      std::int64_t at = vocab - 1;
      for (int j = 0; j < heads; ++j) {
        do
          ++at;
        while (!prime(at) || std::find(used.begin(), used.end(), at) != used.end());
        used.push_back(at);
        layer.push_back(at);
      }
    }
  return out;
}

} // namespace

BOOST_AUTO_TEST_SUITE(engram)

BOOST_AUTO_TEST_CASE(random_integers_equal_numpy) {
  const auto table = read_table("numpy_integers.tsv");
  BOOST_REQUIRE(table.size() == 48u); // 8 seeds, 6 bounds; two bounds reject a fourth and a half of the draws
  for (const auto& row : table) {
    numpy_random random(row[0]);
    for (std::size_t i = 2; i < row.size(); ++i)
      BOOST_TEST(random.below(row[1]) == row[i], "seed " << row[0] << " bound " << row[1] << " draw " << i - 2);
  }
}

BOOST_AUTO_TEST_CASE(multipliers_equal_numpy) {
  const auto table = read_table("engram_multipliers.tsv");
  BOOST_REQUIRE(table.size() == 88u);
  for (const auto& row : table) {
    const auto m =
        engram_multipliers(static_cast<int>(row[0]), static_cast<std::int64_t>(row[1]), static_cast<int>(row[2]));
    BOOST_REQUIRE(m.size() == row[2]);
    for (std::size_t i = 0; i < m.size(); ++i) {
      BOOST_TEST(m[i] == static_cast<std::int64_t>(row[3 + i]), "layer " << row[0] << " vocabulary " << row[1]);
      BOOST_TEST(m[i] % 2 == 1);
      BOOST_TEST(m[i] <= INT64_MAX / static_cast<std::int64_t>(row[1])); // no product of the hash overflows
    }
  }
}

BOOST_AUTO_TEST_CASE(prime_sums_of_the_released_model) {
  const auto primes = engram_primes(16000000, 2, 3, 8);
  BOOST_REQUIRE(primes.size() == 2u);
  BOOST_TEST(primes[0].size() == 24u);
  BOOST_TEST(std::accumulate(primes[0].begin(), primes[0].end(), std::int64_t{0}) == 384006168);
  BOOST_TEST(std::accumulate(primes[1].begin(), primes[1].end(), std::int64_t{0}) == 384016682);
}

BOOST_AUTO_TEST_CASE(primes_equal_the_definition) {
  const int shapes[][4] = {{3, 2, 3, 4},    {4, 1, 1, 1},    {200, 2, 3, 2},
                           {4000, 2, 3, 2}, {7919, 3, 2, 5}, {1 << 20, 2, 3, 8}};
  for (const auto& s : shapes)
    BOOST_TEST((engram_primes(s[0], s[1], s[2], s[3]) == primes_by_definition(s[0], s[1], s[2], s[3])),
               "from " << s[0]);
  // Strong pseudoprimes to several small bases, and primes beside them: 3215031751 = 151 * 751 * 28351, 2^31 - 1 is
  // prime.
  BOOST_TEST(engram_primes(3215031751, 1, 1, 1)[0][0] == 3215031767);
  BOOST_TEST(engram_primes(2147483646, 1, 1, 1)[0][0] == 2147483647);
}

BOOST_AUTO_TEST_CASE(context_pads_before_the_start_and_behind_images) {
  const std::vector<std::int32_t> ids{10, 11, -1, 13, 14, 15, 16};
  auto context = [&](std::int64_t t) {
    std::vector<std::int32_t> c(4);
    engram_context(ids, t, 99, c);
    return c;
  };
  BOOST_TEST(context(0) == (std::vector<std::int32_t>{10, 99, 99, 99}));
  BOOST_TEST(context(1) == (std::vector<std::int32_t>{11, 10, 99, 99}));
  BOOST_TEST(context(3) == (std::vector<std::int32_t>{13, 99, 99, 99}));
  BOOST_TEST(context(4) == (std::vector<std::int32_t>{14, 13, 99, 99}));
  BOOST_TEST(context(6) == (std::vector<std::int32_t>{16, 15, 14, 13}));
}

BOOST_AUTO_TEST_CASE(rows_equal_the_golden_values) {
  const model_config config = load_config(TROUPE_SOURCE_DIR "/models/tiny-v41");
  const auto tables = engram_tables(config);
  BOOST_REQUIRE(tables.size() == 2u);
  const mapped_file map(TROUPE_TEST_DATA "/tokenizer/embedded_engram_ids.i32");
  const auto compressed_of = ints_of(map.bytes());
  BOOST_REQUIRE(compressed_of.size() == 8192u);
  const std::int32_t pad = compressed_of[static_cast<std::size_t>(config.engram_pad_token_id)];
  std::size_t compared = 0;
  for (const char* name :
       {"one_token", "chat_lighthouse", "chat_json", "chat_two_turns", "code_130", "doc_257", "doc_300", "doc_700"}) {
    const safetensors_file file(std::string(TROUPE_TEST_DATA "/model/golden/") + name + ".safetensors");
    const auto golden = ints_of(file.find("engram_rows")->bytes); // [T, layers, columns]
    std::vector<std::int32_t> compressed;
    for (std::int32_t id : ints_of(file.find("ids")->bytes))
      compressed.push_back(compressed_of[static_cast<std::size_t>(id)]);
    std::vector<std::int32_t> context(4);
    std::vector<std::int64_t> rows(6);
    std::vector<std::int32_t> got;
    for (std::size_t t = 0; t < compressed.size(); ++t) {
      engram_context(compressed, static_cast<std::int64_t>(t), pad, context);
      for (const engram_table& table : tables) {
        engram_hash_rows(table, context, rows);
        got.insert(got.end(), rows.begin(), rows.end());
      }
    }
    BOOST_TEST((got == golden), name);
    compared += golden.size();
  }
  BOOST_TEST(compared == 12u * 1342u); // two layers, six columns, all prompts together
}

BOOST_AUTO_TEST_CASE(rows_stay_inside_their_part_of_the_table) {
  const model_config config = load_config(TROUPE_SOURCE_DIR "/models/tiny-v41");
  const auto tables = engram_tables(config);
  for (std::size_t i = 0; i < tables.size(); ++i)
    BOOST_TEST(tables[i].rows == config.engram_num_embeddings[i]);
  const std::int32_t last = config.engram_compressed_vocab_size - 1;
  const std::vector<std::int32_t> context(4, last); // largest products
  std::vector<std::int64_t> rows(6);
  engram_hash_rows(tables[1], context, rows);
  for (std::size_t i = 0; i < 6; ++i) {
    BOOST_TEST(rows[i] >= tables[1].offsets[i]);
    BOOST_TEST(rows[i] < tables[1].offsets[i] + tables[1].primes[i]);
  }
}

BOOST_AUTO_TEST_SUITE_END()
