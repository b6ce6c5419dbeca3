#include "cluster/handoff_frames.hpp"
#include <boost/test/unit_test.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(handoff_frames)

BOOST_AUTO_TEST_CASE(chunks_arrive_field_by_field) {
  const std::vector<std::uint8_t> bytes{1, 2, 3};
  const image_shape shape{5000, 300, 77, "cpu-1 model"};
  const bulk_frame data = frame_of(9, {chunk_kind::data, 4096, bytes, nullptr, {}, 0}, shape);
  BOOST_TEST((data.kind == frame_kind::kv_chunk && !data.last && data.stream == 9u));
  const auto d = chunk_of(data);
  BOOST_REQUIRE(d);
  BOOST_TEST((d->chunk.kind == chunk_kind::data));
  BOOST_TEST(d->chunk.offset == 4096);
  BOOST_TEST(std::ranges::equal(d->chunk.bytes, bytes));
  BOOST_TEST((d->shape == shape));

  image_chunk commit{chunk_kind::commit, 5300, {}, nullptr, {}, 128};
  commit.digest[31] = 200;
  const bulk_frame last = frame_of(9, commit, std::nullopt);
  BOOST_TEST(last.last);
  const auto c = chunk_of(last);
  BOOST_REQUIRE(c);
  BOOST_TEST((c->chunk.kind == chunk_kind::commit && c->chunk.digest == commit.digest));
  BOOST_TEST(c->chunk.offset == 5300);
  BOOST_TEST(c->chunk.cached == 128);
  BOOST_TEST(!c->shape);

  const auto r = chunk_of(frame_of(9, {chunk_kind::renewal, 7, {}, nullptr, {}, 0}, std::nullopt));
  BOOST_TEST((r && r->chunk.kind == chunk_kind::renewal && r->chunk.offset == 7));
}

BOOST_AUTO_TEST_CASE(what_is_no_chunk_is_refused) {
  bulk_frame f = frame_of(9, {chunk_kind::data, 0, {}, nullptr, {}, 0}, std::nullopt);
  const std::string meta = f.meta;
  f.meta[1] = 3; // behind the byte that names the byte order: an unknown kind
  BOOST_TEST(chunk_of(f).failure().code == "bad_meta");
  for (std::size_t cut = 0; cut < meta.size(); ++cut) {
    f.meta = meta.substr(0, cut);
    BOOST_TEST(!chunk_of(f));
  }
  f.meta = meta + "x";
  BOOST_TEST(!chunk_of(f));
  f.meta = meta;
  f.step_or_offset = ~std::uint64_t{0};
  BOOST_TEST(!chunk_of(f));
}

BOOST_AUTO_TEST_SUITE_END()
