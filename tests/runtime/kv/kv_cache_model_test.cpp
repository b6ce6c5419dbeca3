// The KV cache against a slow model made of maps and scans, and against a simulated memory that remembers what was
// written into which block and slot: random turns with growth, publications, snapshots, hits, forks, aborts and
// preemption.
#include "runtime/kv/kv_cache.hpp"
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <random>
#include <set>

using namespace troupe;

namespace {

using tokens = std::vector<std::int32_t>;
using content = std::int32_t; // a prefix of whole blocks under one salt; 0..2 are the empty prefixes of the salts

// Names prefixes of whole blocks.
struct dictionary {
  std::map<std::pair<content, tokens>, content> names;
  content child(content parent, const tokens& ids) {
    return names.try_emplace({parent, ids}, static_cast<content>(names.size()) + 3).first->second;
  }
};

struct model {
  using handle = std::int64_t; // a block or slot, never used twice
  struct node {
    content parent = 0;
    int depth = 0;
    handle block = 0;
    std::uint64_t used = 0;
    handle snapshot = 0;
    std::uint64_t snapshot_used = 0, restored_in = 0;
  };
  struct unfilled {
    std::int32_t at;
    handle slot;
    bool rolling;
  };
  struct sequence {
    std::vector<handle> table;
    content end = 0;
    int published = 0;
    std::vector<unfilled> snapshots;
    content rolling = -1;
    handle rolling_slot = 0;
    std::uint64_t since = 0;
  };
  struct admitted {
    fit outcome = fit::later;
    std::int32_t computed = 0, blocks = 0;
    bool restores = false, copies = false, keeps = false;
    std::int32_t keeps_at = 0, parts_at = 0;
  };
  struct arrival {
    content salt = 0;
    std::vector<content> contents; // of the prompt's whole blocks inside the hit limit
    int prompt = 0, rows = 1, room = 0, interval = -1;
    std::vector<std::int32_t> checkpoints{};
    std::uint64_t fork_of = 0;
    std::int32_t fork_at = 0;
  };

  int blocks = 0, slots = 0, snapshot_slots = 0;
  std::map<content, node> tree;
  std::map<std::uint64_t, sequence> live;
  std::uint64_t turn = 0, stamp = 0;
  handle next = 1;

  int tables_with(handle b) const {
    int n = 0;
    for (const auto& [id, s] : live)
      n += static_cast<int>(std::count(s.table.begin(), s.table.end(), b));
    return n;
  }
  bool idle(const node& n) const { return tables_with(n.block) == 0; }
  int free_blocks() const {
    std::set<handle> used;
    for (const auto& [id, s] : live)
      used.insert(s.table.begin(), s.table.end());
    for (const auto& [c, n] : tree)
      used.insert(n.block);
    return blocks - 1 - static_cast<int>(used.size());
  }
  int idle_blocks() const {
    return static_cast<int>(std::count_if(tree.begin(), tree.end(), [&](const auto& n) { return idle(n.second); }));
  }
  int waiting_snapshots() const {
    int n = 0;
    for (const auto& [id, s] : live)
      n += static_cast<int>(s.snapshots.size());
    return n;
  }
  int found_snapshots() const {
    return static_cast<int>(
        std::count_if(tree.begin(), tree.end(), [](const auto& n) { return n.second.snapshot != 0; }));
  }
  int free_slots() const { return slots - 1 - static_cast<int>(live.size()) - waiting_snapshots() - found_snapshots(); }

  void publish(std::uint64_t id, dictionary& names, const std::vector<tokens>& ids) {
    sequence& s = live.at(id);
    for (const tokens& block : ids) {
      const content c = names.child(s.end, block);
      const handle own = s.table[static_cast<std::size_t>(s.published)];
      if (!tree.contains(c)) {
        tree[c].parent = s.end;
        tree[c].depth = s.published + 1;
        tree[c].block = own;
      } else if (tree[c].block != own && idle(tree[c])) {
        tree[c].block = own;
      }
      tree[c].used = ++stamp;
      s.end = c;
      ++s.published;
      for (std::size_t i = 0; i < s.snapshots.size(); ++i)
        if (s.snapshots[i].at == 128 * s.published) {
          const unfilled done = s.snapshots[i];
          s.snapshots.erase(s.snapshots.begin() + static_cast<std::ptrdiff_t>(i));
          tree[c].snapshot_used = ++stamp;
          if (tree[c].snapshot != 0)
            break;
          tree[c].snapshot = done.slot;
          if (done.rolling) {
            if (tree.contains(s.rolling) && tree[s.rolling].snapshot == s.rolling_slot)
              tree[s.rolling].snapshot = 0;
            s.rolling = c;
            s.rolling_slot = done.slot;
          }
          break;
        }
    }
  }

  void release(std::uint64_t id) {
    if (!live.contains(id))
      return;
    ++stamp;
    for (auto& [c, n] : tree)
      if (std::count(live[id].table.begin(), live[id].table.end(), n.block) != 0)
        n.used = stamp;
    live.erase(id);
  }

  void evict() {
    std::map<content, int> children;
    for (const auto& [c, n] : tree)
      ++children[n.parent];
    content victim = -1;
    const auto rank = [&](content c) { return std::pair(tree[c].snapshot != 0, tree[c].used); };
    for (const auto& [c, n] : tree)
      if (!children.contains(c) && idle(n) && (victim < 0 || rank(c) < rank(victim)))
        victim = c;
    if (victim < 0)
      return reclaim();
    for (auto& [id, s] : live)
      if (s.end == victim) {
        tree[victim].block = s.table[static_cast<std::size_t>(s.published) - 1];
        return;
      }
    tree.erase(victim);
  }

  void reclaim() {
    for (auto& [id, s] : live) {
      content c = s.end;
      for (std::size_t i = s.table.size(); i-- > static_cast<std::size_t>(s.published);) {
        const auto at =
            std::find_if(tree.begin(), tree.end(), [&](const auto& n) { return n.second.block == s.table[i]; });
        if (at != tree.end()) {
          c = at->first;
          break;
        }
      }
      for (; tree.contains(c); c = tree[c].parent)
        if (idle(tree[c]))
          tree[c].block = s.table[static_cast<std::size_t>(tree[c].depth) - 1];
    }
  }

  bool grow(std::vector<handle>& table, int to) {
    const int more = to - static_cast<int>(table.size());
    if (more > free_blocks() + idle_blocks())
      return false;
    while (free_blocks() < more)
      evict();
    while (static_cast<int>(table.size()) < to)
      table.push_back(next++);
    return true;
  }

  content oldest_snapshot() const {
    content oldest = -1;
    for (const auto& [c, n] : tree)
      if (n.snapshot != 0 && n.restored_in != turn && (oldest < 0 || n.snapshot_used < tree.at(oldest).snapshot_used))
        oldest = c;
    return oldest;
  }

  bool snapshot(std::uint64_t id, std::int32_t at, bool rolling) {
    sequence& s = live.at(id);
    for (const unfilled& u : s.snapshots)
      if (u.at == at)
        return false;
    if (at <= 128 * s.published || waiting_snapshots() >= snapshot_slots)
      return false;
    if (free_slots() == 0) {
      if (oldest_snapshot() < 0)
        return false;
      tree[oldest_snapshot()].snapshot = 0;
    }
    s.snapshots.push_back({at, next++, rolling});
    return true;
  }

  admitted admit(std::uint64_t id, const arrival& w) {
    admitted a;
    int shared = 0, idle_shared = 0, cached = 0;
    const int whole_prompt = (std::max(w.prompt, w.fork_at) + 127) / 128;
    if (whole_prompt > blocks - 1 || slots < 2 || (w.fork_of != 0 && !live.contains(w.fork_of)))
      return a.outcome = fit::never, a;
    if (free_slots() == 0 && oldest_snapshot() < 0)
      return a;
    sequence s;
    s.end = w.salt;
    s.since = turn;
    content hit = -1;
    if (w.fork_of != 0) {
      const sequence& parent = live[w.fork_of];
      if (parent.since == turn)
        return a;
      shared = w.fork_at / 128;
      s.table.assign(parent.table.begin(), parent.table.begin() + shared);
      s.published = std::min(parent.published, shared);
      s.end = parent.end;
      while (tree.contains(s.end) && tree[s.end].depth > s.published)
        s.end = tree[s.end].parent;
    } else {
      for (std::size_t i = 0; i < w.contents.size() && tree.contains(w.contents[i]); ++i, cached += 128)
        if (tree[w.contents[i]].snapshot != 0) {
          shared = static_cast<int>(i) + 1;
          hit = w.contents[i];
        }
      for (int i = 0; i < shared; ++i) {
        idle_shared += idle(tree[w.contents[static_cast<std::size_t>(i)]]) ? 1 : 0;
        s.table.push_back(tree[w.contents[static_cast<std::size_t>(i)]].block);
      }
      s.published = shared;
      s.end = shared > 0 ? hit : w.salt;
    }
    const int computed = w.fork_of != 0 ? w.fork_at : 128 * shared;
    const int total = (std::max(computed, std::min(computed + w.rows, w.prompt)) + 127) / 128;
    if (std::max(total, whole_prompt) - shared + w.room > free_blocks() + idle_blocks() - idle_shared)
      return a;
    const bool slot_free = free_slots() > 0;
    live[id] = s;
    if (w.fork_of == 0)
      ++stamp;
    for (int i = 0; i < shared && w.fork_of == 0; ++i)
      tree[w.contents[static_cast<std::size_t>(i)]].used = stamp;
    if (hit >= 0) {
      tree[hit].snapshot_used = stamp;
      a.restores = true;
    }
    BOOST_REQUIRE(grow(live[id].table, total));
    // A slot: evicting blocks may have freed one; live already counts the sequence.
    if (!slot_free && free_slots() < 0) {
      const std::uint64_t before = hit >= 0 ? std::exchange(tree[hit].restored_in, turn) : 0;
      if (const content oldest = oldest_snapshot(); oldest >= 0) {
        tree[oldest].snapshot = 0;
      } else {
        BOOST_REQUIRE((hit >= 0 && before != turn));
        tree[hit].snapshot = 0;
        a.restores = false;
      }
    }
    if (hit >= 0)
      tree[hit].restored_in = turn;
    a.outcome = fit::ok;
    a.computed = computed;
    a.blocks = total;
    a.copies = w.fork_at % 128 != 0;
    a.restores = a.restores || (w.fork_of != 0 && w.fork_at > 0);
    // The first multiple of the interval behind what is computed, the last multiple of 128 before the prompt's end, or
    // one that a checkpoint lies at or behind, before the next.
    for (int at = 128; w.interval >= 0 && at < w.prompt && a.keeps_at == 0; at += 128)
      if (at > computed && (at + 128 >= w.prompt || (w.interval > 0 && at % w.interval == 0) ||
                            std::ranges::any_of(w.checkpoints, [&](int c) { return c >= at && c < at + 128; })))
        a.keeps_at = at;
    if (a.keeps_at > 0 && cached > computed) {
      a.parts_at = cached;
      a.keeps_at = std::min(a.keeps_at, cached);
    }
    if (a.keeps_at > computed + w.rows)
      a.keeps_at = 0;
    a.keeps = a.keeps_at > 0 && snapshot(id, a.keeps_at, false);
    return a;
  }
};

// A state: which tokens it has seen.
struct state {
  content salt = 0;
  tokens seen;
  bool operator==(const state&) const = default;
};

// A request as its scheduler sees it.
struct request {
  content salt = 0;
  tokens ids; // all that it will ever compute
  std::int32_t computed = 0, published = 0;
  std::int32_t keep_at = 0; // a snapshot that a later step fills
  slot_id keep;
  int preempted = 0;
};

class world {
public:
  world(unsigned seed, std::uint64_t mask)
      : random_(seed), blocks_(2 + pick(40)), slots_(2 + pick(10)), snapshot_slots_(std::min(slots_ - 1, pick(6))),
        cache_({.blocks = blocks_,
                .slots = slots_,
                .snapshot_slots = snapshot_slots_,
                .numerics_id = "n",
                .model_id = "m",
                .hash_mask = mask}) {
    model_.blocks = blocks_;
    model_.slots = slots_;
    model_.snapshot_slots = snapshot_slots_;
  }

  void turn() {
    want_.clear();
    ++model_.turn;
    marks_.clear();
    plan();
    cache_.turn(want_, got_);
    BOOST_REQUIRE(cache_.conserved());
    check_running();
    check_admissions();
    BOOST_REQUIRE_EQUAL(got_.free_blocks, model_.free_blocks() + model_.idle_blocks());
    BOOST_REQUIRE_EQUAL(got_.free_slots, model_.free_slots() + model_.found_snapshots());
    BOOST_REQUIRE_EQUAL(cache_.statistics().cached_blocks, static_cast<std::int32_t>(model_.tree.size()));
    BOOST_REQUIRE_EQUAL(cache_.statistics().cached_snapshots, model_.found_snapshots());
    run_step();
    check_contents();
  }

  void end() {
    want_.clear();
    for (const auto& [id, r] : running_)
      want_.release.push_back(sequence_id{id});
    cache_.turn(want_, got_);
    BOOST_REQUIRE(cache_.conserved());
    BOOST_REQUIRE_EQUAL(got_.free_blocks, blocks_ - 1);
    BOOST_REQUIRE_EQUAL(got_.free_slots, slots_ - 1);
    BOOST_REQUIRE_EQUAL(cache_.statistics().used_blocks, 0);
    BOOST_REQUIRE_EQUAL(cache_.statistics().used_slots, 0);
  }
  const kv_cache& cache() const { return cache_; }

private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  // Few different blocks, so that prompts meet.
  tokens some_text() {
    tokens t;
    const int whole = pick(5);
    for (int b = 0; b < whole; ++b)
      t.insert(t.end(), 128, pick(4) == 0 ? 1 : 0);
    t.insert(t.end(), static_cast<std::size_t>(1 + pick(127)), pick(2));
    return t;
  }

  content prefix_of(const request& r, std::int32_t whole) {
    content c = r.salt;
    for (std::int32_t b = 0; b < whole; ++b)
      c = names_.child(c, tokens(r.ids.begin() + 128 * b, r.ids.begin() + 128 * (b + 1)));
    return c;
  }

  void plan() {
    for (auto& [id, r] : running_) {
      const std::int32_t whole = std::min(r.computed, static_cast<std::int32_t>(r.ids.size())) / 128 - r.published;
      if (whole > 0 && pick(3) != 0)
        plan_publication(id, r, 1 + pick(whole));
    }
    for (auto at = running_.begin(); at != running_.end();) {
      const bool done = at->second.computed >= static_cast<std::int32_t>(at->second.ids.size());
      const bool leaves = done ? pick(3) == 0 : pick(25) == 0; // finished, aborted or preempted
      if (leaves) {
        want_.release.push_back(sequence_id{at->first});
        model_.release(at->first);
        if (!done && pick(2) == 0) {
          at->second.preempted++;
          waiting_.emplace_back(at->first, at->second);
        }
      }
      at = leaves ? running_.erase(at) : std::next(at);
    }
    if (pick(5) == 0)
      want_.release.push_back(sequence_id{9999}); // never lived
    for (auto& [id, r] : running_) {
      const int have = static_cast<int>(model_.live[id].table.size()), need = blocks_for(std::ssize(r.ids));
      if (have < need && pick(2) == 0) {
        const int to = have + 1 + pick(need - have);
        want_.grow.push_back({sequence_id{id}, to});
        grown_.push_back(model_.grow(model_.live[id].table, to));
      }
    }
    for (auto& [id, r] : running_) {
      const std::int32_t next = (r.computed / 128 + 1) * 128;
      if (r.keep_at == 0 &&
          next <= std::min<std::int32_t>(128 * static_cast<std::int32_t>(model_.live[id].table.size()),
                                         static_cast<std::int32_t>(r.ids.size())) &&
          pick(3) == 0)
        plan_snapshot(id, next);
    }
    plan_admissions();
  }

  void plan_publication(std::uint64_t id, request& r, std::int32_t blocks) {
    std::vector<tokens> ids;
    for (std::int32_t b = r.published; b < r.published + blocks; ++b)
      ids.emplace_back(r.ids.begin() + 128 * b, r.ids.begin() + 128 * (b + 1));
    want_.publish.push_back({sequence_id{id}, blocks});
    for (const tokens& block : ids)
      want_.ids.insert(want_.ids.end(), block.begin(), block.end());
    model_.publish(id, names_, ids);
    r.published += blocks;
  }

  void plan_snapshot(std::uint64_t id, std::int32_t at) {
    const bool rolling = pick(2) == 0;
    want_.snapshots.push_back({sequence_id{id}, at, rolling});
    marks_.push_back(model_.snapshot(id, at, rolling));
  }

  void plan_admissions() {
    const int count = pick(2) * pick(3);
    for (int i = 0; i < count; ++i) {
      entering e;
      std::uint64_t fork_of = 0;
      if (!waiting_.empty() && pick(2) == 0) {
        std::tie(e.id, e.what) = waiting_.front();
        waiting_.erase(waiting_.begin());
      } else {
        e.id = ++last_id_;
        e.what.salt = pick(6) == 0 ? 1 + pick(2) : 0;
        e.what.ids = some_text();
        if (!running_.empty() && pick(3) == 0) {
          const auto parent = std::next(running_.begin(), pick(static_cast<int>(running_.size())));
          fork_of = parent->first;
          e.fork_at = parent->second.computed;
          tokens ids(parent->second.ids.begin(), parent->second.ids.begin() + e.fork_at);
          ids.insert(ids.end(), e.what.ids.begin(), e.what.ids.end());
          e.what.ids = ids;
          e.what.salt = parent->second.salt;
          e.parent_slot = slot_of_[fork_of];
        } else if (pick(30) == 0) {
          fork_of = 7777; // unknown
        }
      }
      const auto size = std::ssize(e.what.ids);
      const std::int32_t limit = fork_of != 0   ? 0
                                 : pick(4) == 0 ? pick(static_cast<int>(size))
                                                : static_cast<int>(size) - 1;
      model::arrival w{.salt = e.what.salt,
                       .contents = {},
                       .prompt = static_cast<int>(size),
                       .fork_of = fork_of,
                       .fork_at = e.fork_at};
      w.rows = pick(4) == 0 ? static_cast<int>(size) : 1 + pick(400);
      w.room = pick(6) == 0 ? pick(6) : 0;
      w.interval = std::max(128 * (pick(4) - 1), -1);
      for (int at = pick(3) == 0 ? 1 + pick(300) : 1 << 20; at < 2 * size; at += 1 + pick(300))
        w.checkpoints.push_back(at);
      static const char* const salts[] = {"", "first", "second"};
      want_.admit.push_back({.id = sequence_id{e.id},
                             .prompt = std::make_shared<const tokens>(e.what.ids),
                             .salt = std::make_shared<const std::string>(salts[e.what.salt]),
                             .hit_limit = limit,
                             .rows = w.rows,
                             .room = w.room,
                             .snapshot_interval = w.interval,
                             .checkpoints = std::make_shared<const tokens>(w.checkpoints),
                             .fork_of = sequence_id{fork_of},
                             .fork_at = e.fork_at});
      for (std::int32_t b = 1; b <= limit / 128; ++b)
        w.contents.push_back(prefix_of(e.what, b));
      if (entering_.empty() || entering_.back().expected.outcome == fit::ok)
        e.expected = model_.admit(e.id, w);
      entering_.push_back(std::move(e));
    }
  }

  void check_running() {
    for (std::size_t i = 0; i < grown_.size(); ++i)
      BOOST_REQUIRE((got_.grow[i].outcome == (grown_[i] ? fit::ok : fit::later)));
    grown_.clear();
    BOOST_REQUIRE_EQUAL(got_.snapshots.size(), marks_.size());
    for (std::size_t i = 0; i < marks_.size(); ++i)
      BOOST_REQUIRE_EQUAL(got_.snapshots[i].value != 0, marks_[i]);
  }

  void check_admissions() {
    BOOST_REQUIRE_EQUAL(got_.admit.size(), entering_.size());
    for (std::size_t i = 0; i < entering_.size(); ++i) {
      entering& e = entering_[i];
      const kv_got::admitted& a = got_.admit[i];
      BOOST_REQUIRE((a.outcome == e.expected.outcome));
      if (a.outcome != fit::ok) {
        if (e.what.preempted > 0)
          waiting_.emplace_back(e.id, e.what);
        continue;
      }
      BOOST_REQUIRE_EQUAL(a.computed, e.expected.computed);
      BOOST_REQUIRE_EQUAL(a.count, e.expected.blocks);
      BOOST_REQUIRE_EQUAL(a.restore_from.value != 0, e.expected.restores);
      BOOST_REQUIRE_EQUAL(a.copy_from.value != 0, e.expected.copies);
      BOOST_REQUIRE_EQUAL(a.snapshot.value != 0, e.expected.keeps);
      BOOST_REQUIRE_EQUAL(a.snapshot_at, e.expected.keeps_at);
      BOOST_REQUIRE_EQUAL(a.parts_at, e.expected.parts_at);
      const auto table = cache_.table(sequence_id{e.id});
      BOOST_REQUIRE(std::equal(table.begin(), table.end(), got_.blocks.begin() + a.first));
      if (e.fork_at > 0)
        BOOST_REQUIRE((a.restore_from == e.parent_slot));
      // restores and copies, as the step does them: in order, before any row
      if (a.restore_from.value != 0)
        slot_holds_[a.slot] = slot_holds_[a.restore_from];
      else if (a.computed == 0)
        slot_holds_[a.slot] = {e.what.salt, {}};
      const state expected{e.what.salt, tokens(e.what.ids.begin(), e.what.ids.begin() + a.computed)};
      BOOST_REQUIRE((slot_holds_[a.slot] == expected));
      if (a.copy_from.value != 0) {
        const block_id tail = table[static_cast<std::size_t>(a.computed / 128)];
        block_holds_[tail] = block_holds_[a.copy_from];
      }
      slot_of_[e.id] = a.slot;
      e.what.computed = a.computed;
      e.what.keep = a.snapshot;
      e.what.keep_at = a.snapshot.value != 0 ? a.snapshot_at : 0;
      e.what.published = model_.live[e.id].published;
      running_[e.id] = e.what;
    }
    entering_.clear();
  }

  // Rows: every sequence advances within its table, to a wanted snapshot exactly.
  void run_step() {
    for (auto& [id, r] : running_) {
      const auto table = cache_.table(sequence_id{id});
      const std::int32_t end = std::min<std::int32_t>(128 * static_cast<std::int32_t>(table.size()),
                                                      static_cast<std::int32_t>(r.ids.size()));
      std::int32_t to = r.computed + (end > r.computed ? pick(end - r.computed + 1) : 0);
      slot_id keep;
      if (r.keep_at > 0 && to >= r.keep_at) {
        to = std::exchange(r.keep_at, 0);
        keep = r.keep;
      }
      for (std::size_t i = 0; i < want_.snapshots.size(); ++i)
        if (want_.snapshots[i].id.value == id && got_.snapshots[i].value != 0) {
          to = want_.snapshots[i].at;
          keep = got_.snapshots[i];
        }
      for (std::int32_t p = r.computed; p < to; ++p) {
        tokens& block = block_holds_[table[static_cast<std::size_t>(p / 128)]];
        block.resize(static_cast<std::size_t>(p % 128));
        block.push_back(r.ids[static_cast<std::size_t>(p)]);
      }
      r.computed = to;
      slot_holds_[slot_of_[id]] = {r.salt, tokens(r.ids.begin(), r.ids.begin() + to)};
      if (keep.value != 0)
        slot_holds_[keep] = slot_holds_[slot_of_[id]];
    }
  }

  // What every sequence would read is what it must have written itself.
  void check_contents() {
    for (const auto& [id, r] : running_) {
      const auto table = cache_.table(sequence_id{id});
      for (std::int32_t b = 0; b < blocks_for(r.computed); ++b) {
        const auto first = r.ids.begin() + 128 * b, last = r.ids.begin() + std::min(r.computed, 128 * (b + 1));
        const tokens& holds = block_holds_[table[static_cast<std::size_t>(b)]];
        BOOST_REQUIRE(static_cast<std::ptrdiff_t>(holds.size()) >= last - first);
        BOOST_REQUIRE(std::equal(first, last, holds.begin()));
      }
    }
  }

  struct entering {
    std::uint64_t id = 0;
    request what;
    std::int32_t fork_at = 0;
    slot_id parent_slot;
    model::admitted expected;
  };

  std::mt19937_64 random_;
  int blocks_, slots_, snapshot_slots_;
  kv_cache cache_;
  model model_;
  dictionary names_;
  kv_want want_;
  kv_got got_;
  std::map<std::uint64_t, request> running_;
  std::vector<std::pair<std::uint64_t, request>> waiting_; // preempted
  std::vector<entering> entering_;
  std::vector<bool> grown_, marks_;
  std::map<std::uint64_t, slot_id> slot_of_;
  std::map<block_id, tokens> block_holds_;
  std::map<slot_id, state> slot_holds_;
  std::uint64_t last_id_ = 0;
};

} // namespace

BOOST_AUTO_TEST_SUITE(kv_cache_against_a_model)

BOOST_AUTO_TEST_CASE(random_turns) {
  kv_statistics sum;
  for (unsigned seed = 0; seed < 1000; ++seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      world w(seed, seed % 3 == 0 ? 1 : ~std::uint64_t{0}); // every third with colliding hashes
      for (int turn = 0; turn < 150; ++turn)
        w.turn();
      const kv_statistics s = w.cache().statistics();
      sum.hits += s.hits;
      sum.forks += s.forks;
      sum.evicted_blocks += s.evicted_blocks;
      sum.duplicate_blocks += s.duplicate_blocks;
      sum.snapshots_kept += s.snapshots_kept;
      sum.snapshots_evicted += s.snapshots_evicted;
      sum.deferred += s.deferred;
      w.end();
    }
  }
  BOOST_TEST_MESSAGE("hits " << sum.hits << ", forks " << sum.forks << ", evicted " << sum.evicted_blocks << ", equal "
                             << sum.duplicate_blocks << ", snapshots " << sum.snapshots_kept << " kept "
                             << sum.snapshots_evicted << " evicted, deferred " << sum.deferred);
  // The trace reaches what it is meant to test.
  for (const std::uint64_t n : {sum.hits, sum.forks, sum.evicted_blocks, sum.duplicate_blocks, sum.snapshots_kept,
                                sum.snapshots_evicted, sum.deferred})
    BOOST_TEST(n > 1000u);
}

BOOST_AUTO_TEST_SUITE_END()
