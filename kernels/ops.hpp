// Arguments of every operation of the op table (devices/device.hpp): shapes, units and the formula each one stands for.
// All arrays are row-major in device memory, fp32 unless the type says otherwise.
// The order of every sum is fixed by docs/numerics.md and depends on the row alone, never on the number of rows.
#pragma once
#include "runtime/base/dev_ptr.hpp"
#include "runtime/base/ids.hpp"
#include <cstddef>
#include <cstdint>
#include <utility>

namespace troupe {

// Weights in a device's own layout, made by device::pack; [rows = outputs, cols = inputs].
class weight {
public:
  virtual ~weight() = default;
  std::int64_t rows = 0, cols = 0;
};
// A table whose rows are gathered by index (embeddings, Engram); may stay in host memory.
class row_table {
public:
  virtual ~row_table() = default;
  std::int64_t rows = 0, cols = 0;
};
// Routed experts of one layer that live on this device, in slots 0..slots-1.
class expert_set {
public:
  virtual ~expert_set() = default;
  std::int32_t slots = 0;
  std::int64_t hidden = 0, intermediate = 0;
};

// How a cached vector is stored (model.md §9). One record holds the values, then its scales.
enum class kv_format : std::uint8_t {
  f32,          // 4*dim bytes (roundings off)
  fp8_ue8m0_32, // dim bytes e4m3, then dim/32 bytes UE8M0 (window KV, drafter KV, main KV without FP4)
  fp4_e4m3_16,  // dim/2 bytes e2m1 (element 2i in the low nibble), then dim/16 bytes e4m3 scales (main compressed KV)
  fp4_ue8m0_32, // dim/2 bytes e2m1, then dim/32 bytes UE8M0 (index keys)
};
constexpr std::int64_t record_bytes(kv_format f, std::int64_t dim) {
  switch (f) {
  case kv_format::f32:
    return 4 * dim;
  case kv_format::fp8_ue8m0_32:
    return dim + dim / 32;
  case kv_format::fp4_e4m3_16:
    return dim / 2 + dim / 16;
  case kv_format::fp4_ue8m0_32:
    return dim / 2 + dim / 32;
  }
  return 0;
}

// Rings of one kind for all state slots: entry e of slot s lies at base + s*slot_stride + e*record_bytes(format, dim);
// position p lives in entry p % entries.
struct ring_view {
  dev_ptr<std::byte> base;
  std::int64_t slot_stride = 0;
  std::int32_t entries = 0;
  std::int32_t dim = 0;
  kv_format format = kv_format::f32;
};
// Paged records of one kind: entry j of block b lies at base + b*block_stride + j*record_bytes(format, dim).
struct block_view {
  dev_ptr<std::byte> base;
  std::int64_t block_stride = 0;
  std::int32_t entries = 0; // per block: 128 / ratio
  std::int32_t dim = 0;
  kv_format format = kv_format::f32;
};

// The rows that an operation computes (query rows) and the sequences they belong to. Key rows are all rows of the step,
// those of one sequence consecutive and at consecutive positions. Query rows are the key rows, or some of them in any
// order where a rank computes its share of a step (runtime/model/context_split.hpp).
struct row_map {
  std::int32_t rows = 0, sequences = 0, key_rows = 0;
  dev_ptr<const std::int32_t> position;    // [rows] zero-based position in prompt + output
  dev_ptr<const std::int32_t> sequence;    // [rows] index into the arrays below
  dev_ptr<const std::int32_t> window_lo;   // [rows] lowest window key position this row may see
  dev_ptr<const std::int32_t> window_hi;   // [rows] highest: its own position; for draft rows the block's last one
  dev_ptr<const std::int32_t> first_row;   // [sequences] its first key row
  dev_ptr<const std::int32_t> row_count;   // [sequences] its key rows
  dev_ptr<const std::int32_t> start;       // [sequences] position of its first key row
  dev_ptr<const std::int32_t> slot;        // [sequences] state slot
  dev_ptr<const std::int32_t> block_table; // [sequences, block_stride] KV block of position / 128
  std::int32_t block_stride = 0;
};

// What a device keeps of the sequence in each state slot from one step to the next (speculation.md §4), whether or not
// the host knows it yet.
struct decode_state {
  std::int32_t ngram = 1, block = 0; // ids and drafts kept of each sequence
  dev_ptr<std::int32_t> position;    // [slots] of the newest token, whose row has not been computed
  dev_ptr<std::int32_t> ids;         // [slots, ngram] the newest token, last, and those before it; -1 = none
  dev_ptr<std::int32_t> drafts;      // [slots, block] for the positions behind the newest token
  dev_ptr<float> confidence;         // [slots, block]
  dev_ptr<std::int32_t> stopped;     // [slots] not 0: nothing comes behind the newest token, or behind one before it
  dev_ptr<float> logits;             // [slots, block, vocab] that the drafts were drawn from, or null
};

// Rows of a step by the position and by the compressed blocks of one ratio that they complete (model.md §5.1).
struct compressed_layout {
  std::int32_t ratio = 1, entries = 0;  // entries of a KV block
  dev_ptr<std::int32_t> visible;        // [rows] compressed positions that the row sees
  dev_ptr<std::int32_t> last_row;       // [rows] the row itself where it completes a block, else -1
  dev_ptr<std::int32_t> first_position; // [rows] position of that block's first token
  dev_ptr<std::int64_t> entry;          // [rows] its place, KV block * entries + index inside; -1 = none
};

// How many drafts neighbouring sequences verify whose newest tokens are in flight: each gets a row for that token and
// one for each draft. One that has stopped verifies none (engine.md §17, D22). The last `sharing` ones share theirs out
// by the confidences of their newest blocks (speculation.md §6.2, runtime/base/draft_split.hpp), the others verify
// those that are planned. Rows that are left over go to the sequence of placeholders behind them, in state slot 0.
struct share_drafts_args {
  row_map map; // of the key rows; its arrays are those written below
  decode_state state;
  std::int32_t width = 0;              // drafts of a block that may be verified
  dev_ptr<const std::int32_t> shared;  // [4] first sequence; how many; how many share; drafts of these, <= them * width
  dev_ptr<float> survival;             // [sharing, width], working memory
  dev_ptr<std::int32_t> drafts;        // [sequences] as below; planned ones are given
  dev_ptr<std::int32_t> draws;         // [sequences] as below
  dev_ptr<std::int32_t> first_row;     // [sequences] that of the first one is given
  dev_ptr<std::int32_t> row_count;     // [sequences]
  dev_ptr<std::int32_t> sequence, ids; // [rows]
  dev_ptr<std::int32_t> live;          // [1] rows that are not placeholders
};

// Completes a step that was planned before its inputs were known. ids: token_in_flight and draft_in_flight become the
// newest token and the drafts of the row's state slot. A sequence that `moves` starts at its newest token, with that
// token's history; the rest of the layout of its rows follows from there. Its rows at `limit` and behind store nothing
// but window keys and see no compressed position. Placeholders, in state slot 0, all lie at its position.
struct lay_out_rows_args {
  row_map map; // of the key rows; its arrays are those written below
  decode_state state;
  std::int32_t window = 0;
  dev_ptr<const std::int32_t> drafts;                        // [sequences] rows that hold drafts, its last ones
  dev_ptr<const std::int32_t> limit;                         // [sequences] 0 = none
  dev_ptr<const std::int32_t> moves;                         // [sequences]
  dev_ptr<std::int32_t> ids, position, window_lo, window_hi; // [rows]
  dev_ptr<std::int32_t>
      verifies; // [rows] slot * block + number of the draft that the row's token decides about; -1 = none
  dev_ptr<std::int32_t> start;   // [sequences]
  dev_ptr<std::int32_t> history; // [sequences, ngram-1]
  compressed_layout ratio[2];    // written where a sequence moves; entries 0: the step has none
};

struct sample_row_params;

// How many drafts of each sequence were right (exactness.md §4), after sample_rows. Row k of those that draw decides
// about the draft in row k + 1: it is right if it is the token drawn. The drawn token behind the last right draft
// becomes the sequence's newest token. A row that could not be drawn from ends the walk before it; if it is the first,
// token 0 stands for what was not drawn, so that a step behind this one has an id. A sequence has stopped if that
// happens, if the newest token lies at `limit`, or if one of the tokens is an id of its rule that ends it.
struct verify_drafts_args {
  row_map map; // of the key rows
  decode_state state;
  dev_ptr<const std::int32_t> ids;           // [key rows] inputs of the step
  dev_ptr<const std::int32_t> history;       // [sequences, ngram-1]
  dev_ptr<const std::int32_t> draws;         // [sequences] rows that draw, its last ones; 0 = none
  dev_ptr<const std::int32_t> limit;         // [sequences] rows at this position and behind do not count; 0 = none
  dev_ptr<const std::int32_t> first_drawn;   // [sequences] place in token of the first of them; null: its row number
  dev_ptr<const std::int32_t> token, status; // of sample_rows
  dev_ptr<const sample_row_params> rules;    // [sequences] by which they draw; null: no id ends one
  dev_ptr<const std::int32_t> suppressed;    // of sample_rows
  // [sequences, 4] start; drafts verified; how many were right, -1 = nothing was drawn; place in token of the first
  dev_ptr<std::int32_t> outcome;
};

// The rows of draft blocks behind the newest tokens (speculation.md §3), sequence by sequence: token and noise ids,
// each row sees the window before the block and the whole block.
struct lay_out_drafts_args {
  decode_state state;
  std::int32_t sequences = 0, window = 0, noise = 0;
  dev_ptr<const std::int32_t> slot;                                    // [sequences]
  dev_ptr<std::int32_t> ids, position, sequence, window_lo, window_hi; // [sequences, block]
  dev_ptr<std::int32_t> first_row, row_count, start;                   // [sequences]
  dev_ptr<std::int32_t> position_of; // [block, sequences] position of the rows, by number in the block
  dev_ptr<std::int64_t> before;      // [sequences] the newest tokens, as Markov inputs
};

// Draft number `number` of every sequence goes into its state: the token, its confidence sigmoid(score / temperature)
// or NaN where the score is not finite and, where the state has room, its logits.
struct keep_drafts_args {
  decode_state state;
  std::int32_t sequences = 0, number = 0, vocab = 0;
  float temperature = 1;
  dev_ptr<const std::int32_t> slot;  // [sequences]
  dev_ptr<const std::int32_t> token; // [sequences] of sample_rows; where it is none, id 0 is kept
  dev_ptr<const float> score;        // [sequences] of the confidence head
  dev_ptr<const float> logits;       // [sequences, vocab]
  dev_ptr<std::int64_t> before;      // [sequences] the token, as the next Markov input
  dev_ptr<std::int32_t> drafts;      // [sequences, block] column `number`
  dev_ptr<float> confidence;         // [sequences, block] likewise
};

// out[i, s, :] = table[ids[i], :] for every stream s < streams.
struct embed_args {
  const row_table* table = nullptr; // [V, H]
  dev_ptr<const std::int32_t> ids;  // [rows], each in [0, V)
  std::int32_t rows = 0, streams = 1;
  dev_ptr<float> out; // [rows, streams, H]
};

// Engram row numbers of every position (model.md §8). c_j = compressed id of the token j positions back, or the
// compressed pad before the start of the request; 64-bit products and XOR; row = offset + hash_i mod prime.
struct engram_rows_args {
  row_map map;
  dev_ptr<const std::int32_t> tokens;      // [key rows] raw ids
  dev_ptr<const std::int32_t> history;     // [sequences, ngram-1] raw ids before `start`, nearest last; -1 = none
  dev_ptr<const std::int32_t> token_map;   // [V] raw id -> compressed id
  std::int32_t pad = 0;                    // compressed id of the pad token
  std::int32_t ngram = 4, heads = 0;       // orders 2..ngram
  dev_ptr<const std::int64_t> multipliers; // [ngram]
  dev_ptr<const std::int64_t> primes;      // [ngram-1, heads]
  dev_ptr<const std::int64_t> offsets;     // [ngram-1, heads]
  dev_ptr<std::int64_t> out;               // [rows, (ngram-1)*heads]
};

// out[i, :] = concatenation of table[index[i, j], :] for j < per_row, dequantised.
struct gather_args {
  const row_table* table = nullptr;
  dev_ptr<const std::int64_t> index; // [rows, per_row]
  std::int32_t rows = 0, per_row = 1;
  dev_ptr<float> out; // [rows, per_row*cols]
};

// Per stream m: dot = sum_d S*k*qk_weight * rsqrt(mean S^2 + eps) * rsqrt(mean k^2 + eps) * H^-0.5;
// S_m += sigmoid(sign(dot)*sqrt(max(|dot|,1e-6))) * v. kv holds the M keys, then the value.
struct engram_gate_args {
  dev_ptr<float> trunk;           // [rows, M, H], updated
  dev_ptr<const float> kv;        // [rows, M+1, H]
  dev_ptr<const float> qk_weight; // [M, H] q_weight*k_weight
  std::int32_t rows = 0, streams = 0, hidden = 0;
  float eps = 0;
};

// out[i, :] = sum over m ascending of pre[i, m] * trunk[i, m, :]   (mHC collapse)
struct hc_collapse_args {
  dev_ptr<const float> trunk; // [rows, M, H]
  dev_ptr<const float> pre;   // [rows, M]
  std::int32_t rows = 0, streams = 0, hidden = 0;
  dev_ptr<float> out; // [rows, H]
};

// The mixes of one mHC site (model.md §3).
struct hc_mixes_args {
  dev_ptr<const float> trunk; // [rows, M*H]
  const weight* fn = nullptr; // fp32 [M*(M+2), M*H]
  dev_ptr<const float> scale; // [3]
  dev_ptr<const float> base;  // [M*(M+2)]
  std::int32_t rows = 0, streams = 0, hidden = 0, sinkhorn_iters = 0;
  float hc_eps = 0, norm_eps = 0;
  dev_ptr<float> pre;  // [rows, M]
  dev_ptr<float> post; // [rows, M]
  dev_ptr<float> comb; // [rows, M, M]
};

// trunk_new[k] = post[k]*y + sum over j ascending of comb[j][k]*trunk[j], in place.
struct hc_expand_args {
  dev_ptr<const float> y;    // [rows, H]
  dev_ptr<const float> post; // [rows, M]
  dev_ptr<const float> comb; // [rows, M, M]
  std::int32_t rows = 0, streams = 0, hidden = 0;
  dev_ptr<float> trunk; // [rows, M, H], updated
};

// out[i*out_stride + d] = mean over the streams (drafter features).
struct hc_mean_args {
  dev_ptr<const float> trunk; // [rows, M, H]
  std::int32_t rows = 0, streams = 0, hidden = 0;
  dev_ptr<float> out; // row i at out + i*out_stride
  std::int64_t out_stride = 0;
};

// out = x / sqrt(mean(x^2) + eps) * w. The mean square is the row reduction with 16 partials.
struct rms_norm_args {
  dev_ptr<const float> x; // [rows, cols]
  dev_ptr<const float> w; // [cols]
  std::int32_t rows = 0, cols = 0;
  float eps = 0;
  dev_ptr<float> out; // [rows, cols]; may be x
};

// out = x rounded onto a number format and back. fp8_ue8m0_32: the activation format of FP8 and FP4 products;
// fp4_ue8m0_32: index queries. cols is a multiple of 32.
struct round_args {
  dev_ptr<const float> x; // [rows, cols]
  std::int32_t rows = 0, cols = 0;
  kv_format format = kv_format::fp8_ue8m0_32;
  dev_ptr<float> out; // may be x
};

// out[i, o] = fma over k ascending of x[i, k] * w[o, k], one accumulator.
// groups > 1: output o of group g = o / (w->rows/groups) sees inputs [g*cols, (g+1)*cols) only; x is [rows,
// groups*cols].
struct linear_args {
  dev_ptr<const float> x;
  const weight* w = nullptr;
  std::int32_t rows = 0, groups = 1;
  dev_ptr<float> out; // [rows, w->rows]
};

// Rotates adjacent pairs of the last rope_dim channels of each head by the angle of the row's position.
struct rope_args {
  dev_ptr<float> x; // [rows, heads, dim], in place
  std::int32_t rows = 0, heads = 1, dim = 0, rope_dim = 0;
  dev_ptr<const std::int32_t> position; // [rows]
  dev_ptr<const float> cos_sin;         // [max_len, rope_dim]: cosines of the rope_dim/2 angles, then their sines
  bool inverse = false;
};

// records[i] = x[i] in `format`.
struct encode_args {
  dev_ptr<const float> x; // [rows, dim]
  std::int32_t rows = 0, dim = 0;
  kv_format format = kv_format::f32;
  dev_ptr<std::byte> records; // [rows, record_bytes]
};

// Copies each sequence's last ring.entries rows of this step into its ring.
struct ring_commit_args {
  row_map map;                      // of the key rows
  dev_ptr<const std::byte> records; // [key rows, record_bytes(ring.format, ring.dim)]
  ring_view ring;
};

// Encodes x[i] into entry entry[i] % entries of block entry[i] / entries; entry -1 is skipped.
struct block_store_args {
  dev_ptr<const float> x;            // [rows, dim]
  dev_ptr<const std::int64_t> entry; // [rows] block * entries + index inside
  std::int32_t rows = 0;
  block_view blocks;
};

// Compressor of ratio 2: out[b] = sum over the block's two tokens of k_t * softmax over those tokens of g_t, per
// channel. The last token of block b is row last_row[b] of the step; its partner is the row before, or lies in the
// ring. A block whose last_row is -1 is left out: its part of `out` stays as it is.
struct compress_args {
  row_map map;                          // of the key rows
  dev_ptr<const float> kg;              // [key rows, 2*dim]: k, then g
  ring_view pending;                    // f32, dim 2*dim
  dev_ptr<const std::int32_t> last_row; // [blocks] key rows
  std::int32_t blocks = 0, dim = 0;
  dev_ptr<float> out; // [blocks, dim]
};

// score[i, b] = sum over heads ascending of a[i, h] * max(q[i, h] . key_b, 0) for b < visible[i]; the products over
// channels and the sum over heads are sequential fma. Scores of other b are left unwritten.
// Only rows [first, first+count) of the step are computed; q, a, visible and map are indexed by the step's row.
struct index_scores_args {
  row_map map;
  std::int32_t first = 0, count = 0;
  std::int32_t heads = 0, dim = 0;
  dev_ptr<const float> q; // [rows, heads, dim]
  dev_ptr<const float> a; // [rows, heads]
  block_view keys;
  dev_ptr<const std::int32_t> visible; // [rows] visible compressed positions
  dev_ptr<float> scores;               // [count, stride]
  std::int64_t stride = 0;
};

// candidates[i] = the `limit` best blocks of `block` compressed positions each, ascending, -1 padded (model.md §5.3).
struct candidate_args {
  std::int32_t first = 0, count = 0;
  dev_ptr<const float> scores; // [count, stride]
  std::int64_t stride = 0;
  dev_ptr<const std::int32_t> visible; // [rows]
  std::int32_t block = 8, limit = 0;
  dev_ptr<std::int32_t> candidates; // [rows, limit]
};

// selected[i] = the topk best visible positions, ascending, -1 padded; equal scores: smaller index first.
// candidates set: only positions inside the row's candidate blocks compete. scores null: all visible positions (<=
// topk).
struct select_args {
  std::int32_t first = 0, count = 0;
  dev_ptr<const float> scores; // [count, stride] or null
  std::int64_t stride = 0;
  dev_ptr<const std::int32_t> visible;    // [rows]
  dev_ptr<const std::int32_t> candidates; // [rows, candidate_limit] or null
  std::int32_t candidate_block = 8, candidate_limit = 0;
  std::int32_t topk = 0;
  dev_ptr<std::int32_t> selected; // [rows, topk]
};

// Attention of every row and head over its window keys by position (ring, then the step's key rows), then its selected
// compressed keys by position; the sink enters the denominator last (model.md §5, exactness.md §2).
struct attention_args {
  row_map map;
  std::int32_t heads = 0, dim = 0;
  float scale = 1;
  dev_ptr<const float> q;               // [rows, heads, dim]
  dev_ptr<const std::byte> own;         // [key rows] records of the step's rows in ring.format
  ring_view ring;                       // keys at positions before the sequence's first key row
  block_view blocks;                    // compressed keys; unused without selected
  dev_ptr<const std::int32_t> selected; // [rows, topk] ascending, -1 padded; null: window only
  std::int32_t topk = 0;
  dev_ptr<const float> sink; // [heads]
  dev_ptr<float> out;        // [rows, heads, dim]
};

// s = sqrt(softplus(logit)); the k experts of largest s + bias, ties to the smaller index, best first;
// weight = s / (sum of the selected s in that order + 1e-20) * scale. Rows from *live on are placeholders: their
// experts are -1, their weights 0.
struct route_args {
  dev_ptr<const float> logits; // [rows, experts]
  dev_ptr<const float> bias;   // [experts]
  std::int32_t rows = 0, experts = 0, k = 0;
  float scale = 1;
  dev_ptr<std::int32_t> expert;     // [rows, k]
  dev_ptr<float> weight;            // [rows, k]
  dev_ptr<const std::int32_t> live; // [1] or null: all rows
  dev_ptr<std::uint32_t> counts;    // [experts] or null: grows by the rows routed to each expert
};

// out = silu(min(gate, limit)) * clamp(up, -limit, limit).
struct swiglu_args {
  dev_ptr<const float> gate, up; // [rows, cols]
  std::int32_t rows = 0, cols = 0;
  float limit = 0;
  dev_ptr<float> out; // may be gate
};

// y[i, j] = w2( (silu(min(w1 x_i, limit)) * clamp(w3 x_i, +-limit)) * weight[i, j] ) of expert[i, j], for every (i, j)
// whose expert has a slot here; the others, and those of expert -1, are left untouched. w2's input is rounded onto
// fp8_ue8m0_32 when round_inner.
struct experts_args {
  const expert_set* set = nullptr;
  dev_ptr<const std::int32_t> slot_of; // [experts] logical expert -> local slot, -1 = not here
  dev_ptr<const float> x;              // [rows, H], already rounded where the roundings ask for it
  dev_ptr<const std::int32_t> expert;  // [rows, k], -1 = nobody's
  dev_ptr<const float> weight;         // [rows, k]
  std::int32_t rows = 0, k = 0;
  float limit = 0;
  bool round_inner = false;
  dev_ptr<float> y; // [rows, k, H]
};

// out = shared; out += y[0]; ... out += y[k-1], fp32; with round_bf16 shared and every y are rounded to BF16 first.
struct combine_args {
  dev_ptr<const float> shared; // [rows, H]
  dev_ptr<const float> y;      // [rows, k, H]
  std::int32_t rows = 0, k = 0, hidden = 0;
  bool round_bf16 = false;
  dev_ptr<float> out; // [rows, H]; may be shared
};

// out[i] = x[index[i]] for rows of `cols` floats.
struct copy_rows_args {
  dev_ptr<const float> x;
  dev_ptr<const std::int32_t> index; // [rows]
  std::int32_t rows = 0;
  std::int64_t cols = 0;
  dev_ptr<float> out;
};

// out[i*out_stride + c] = x[i*x_stride + c], added to what is there when `add`.
struct copy_columns_args {
  dev_ptr<const float> x;
  std::int64_t x_stride = 0;
  std::int32_t rows = 0;
  std::int64_t cols = 0;
  dev_ptr<float> out;
  std::int64_t out_stride = 0;
  bool add = false;
};

// How a token is drawn from the distribution of a row (exactness.md §4).
enum class draw_rule : std::uint8_t {
  coupled,  // largest z + noise: a draft and its target draw alike
  fresh,    // by weights; a row that verifies a draft accepts it or draws from the residual
  proposal, // by weights, in the drafter's own stream
};

// How rows of logits become tokens; fields as in exactness.md §4-5. Lists are ranges of the flat arrays of
// sample_rows_args. One rule may serve all rows of a sequence.
struct sample_row_params {
  float temperature = 1, top_p = 1, min_p = 0;
  std::int32_t top_k = -1;
  std::uint64_t seed = 0;
  std::uint64_t position = 0;                // of the token to draw, zero-based in prompt + output
  std::int32_t top_logprobs = 0;             // entries wanted, at most max_top
  std::int32_t first_forced = 0, forced = 0; // tokens of the positions from forced_at on, whatever the row says
  std::uint64_t forced_at = 0;
  std::int32_t first_bias = 0, biases = 0;
  std::int32_t first_suppressed = 0, suppressed = 0;  // ids that end the sequence
  std::uint64_t suppressed_until = ~std::uint64_t{0}; // position from which on they may be drawn
  std::int32_t mask = -1;                             // row of masks; -1: everything is allowed
  std::uint8_t logprob = 1;                           // log-probability of the token wanted
  std::uint8_t processed = 0; // log-probabilities of what was drawn from, not of the model's own row
  draw_rule draw = draw_rule::coupled;
};

// Draws a token from every row of logits: bias, masks, temperature, filters, seeded noise, log-probabilities.
struct sample_rows_args {
  dev_ptr<const float> logits; // [rows, vocab]
  std::int32_t rows = 0, vocab = 0;
  dev_ptr<const sample_row_params> params;            // [any]
  dev_ptr<const std::int32_t> rule;                   // [rows] place in params; null: the row's number
  dev_ptr<const std::int32_t> row_position;           // [rows] that of the token before; null: params say it
  dev_ptr<const std::int32_t> forced;                 // ids of all rules, each below vocab
  dev_ptr<const std::pair<std::int32_t, float>> bias; // [id, value] of all rules
  dev_ptr<const std::int32_t> suppressed;             // ids of all rules, masked unless that would leave nothing
  dev_ptr<const std::int32_t> blacklist;              // [blacklisted] never drawn by any row
  std::int32_t blacklisted = 0;
  dev_ptr<const std::uint32_t> masks; // [any, ceil(vocab/32)]: bit i % 32 of word i / 32 allows id i
  // For draw_rule::fresh: the draft that each row verifies, -1 = none, or null for all, as a place in
  dev_ptr<const std::int32_t> verifies; // [rows]
  dev_ptr<const std::int32_t> drafts;   // [any]
  dev_ptr<const float> draft_logits;    // [any, vocab]
  std::int32_t draft_number = 0;        // for draw_rule::proposal: of all rows in their blocks
  std::int32_t max_top = 0;
  dev_ptr<std::int32_t> token;                 // [rows], -1 where status is not 0
  dev_ptr<float> logprob;                      // [rows], 0 when not wanted
  dev_ptr<std::pair<std::int32_t, float>> top; // [rows, max_top] id, log-probability; [-1, -9999] behind the last
  dev_ptr<std::int32_t> status;                // [rows] a sample_status, 0 = ok
};

} // namespace troupe
