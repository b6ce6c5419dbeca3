// All places at which readers of one grammar have been, as a graph that grows while they read (structured_output.md
// §8.2).
//
// A frontier is what can be read next: a set of items (state, continuation), where the continuation is itself a
// frontier, that of the caller, taken up when the rule of the state ends. Frontiers are hash-consed: equal sets have
// one number. So a reader is one number, going back is remembering an earlier one, and each (frontier, byte) is
// computed once for all readers of the grammar.
//
// Shared by threads: lookups of what exists take no lock.
#pragma once
#include "runtime/grammar/mask_work.hpp"
#include "runtime/grammar/rule_network.hpp"
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace troupe {

using frontier = std::uint32_t;
inline constexpr frontier dead_frontier = 0; // nothing can be read and the text cannot end

class frontier_store {
public:
  // max_items: of one frontier. Where a frontier would be larger, or the store than max_bytes, it counts as dead and
  // `overflowed` is set: what is read from then on is still within the grammar, but not all of it.
  frontier_store(std::shared_ptr<const rule_network> network, std::size_t max_items, std::size_t max_bytes);
  ~frontier_store();
  frontier_store(const frontier_store&) = delete;
  frontier_store& operator=(const frontier_store&) = delete;

  static constexpr std::uint32_t text_end = UINT32_MAX; // state of the item that lets the text end
  // State of the item that stands for a caller who is not known: what is read inside one rule, whoever calls it.
  static constexpr std::uint32_t any_caller = UINT32_MAX - 1;
  // Low and high: rounds done, where the state counts; all counts between them are possible. Where it picks different
  // values or puts marks the two halves of the set of those read or put.
  struct item {
    std::uint32_t state;
    frontier then;
    std::uint32_t low, high;
    friend auto operator<=>(const item&, const item&) = default;
  };
  struct scan { // a state that reads bytes or tokens
    std::uint32_t state;
    frontier then;
  };
  // What follows a frontier, made when first needed.
  struct expansion {
    const frontier* next; // by byte class
    std::span<const scan> scans;
    bool can_end;
    std::uint32_t work; // that making it was, as mask_work counts
  };

  frontier start() const { return start_; }
  const expansion& expand(frontier f) {
    const expansion* known = at(f).grown.load(std::memory_order_acquire);
    return known != nullptr ? *known : grow(f);
  }
  // Counts what this call makes.
  const expansion& expand(frontier f, mask_work& work) {
    if (const expansion* known = at(f).grown.load(std::memory_order_acquire))
      return *known;
    const expansion& made = grow(f);
    work.add(made.work);
    return made;
  }
  // What follows f, if somebody has made it; else null.
  const expansion* expanded(frontier f) const { return at(f).grown.load(std::memory_order_acquire); }
  // One step from f, much cheaper than its whole expansion: most places along long tokens are asked about few bytes.
  // Counts what this call makes.
  frontier step_lean(frontier f, std::uint8_t byte_class, mask_work& work) {
    const node& n = at(f);
    if (const expansion* known = n.grown.load(std::memory_order_acquire))
      return known->next[byte_class];
    for (const lean_step* s = n.steps.load(std::memory_order_acquire); s != nullptr; s = s->older)
      if (s->byte_class == byte_class)
        return s->to;
    return grow_lean(f, byte_class, work);
  }
  frontier step(frontier f, unsigned char byte) { return expand(f).next[network_->class_of[byte]]; }
  frontier read(frontier f, std::string_view text) {
    for (std::size_t i = 0; i < text.size() && f != dead_frontier; ++i)
      f = step(f, static_cast<unsigned char>(text[i]));
    return f;
  }
  frontier read(frontier f, std::string_view text, mask_work& work) {
    for (std::size_t i = 0; i < text.size() && f != dead_frontier; ++i)
      f = expand(f, work).next[network_->class_of[static_cast<unsigned char>(text[i])]];
    return f;
  }
  // Behind the token `id`, read as text and as a token by number, whichever the grammar allows.
  frontier read_token(frontier f, std::int32_t id, std::string_view text);
  std::span<const item> items(frontier f) const { return at(f).items; }
  // The frontier of one item.
  frontier make(const item& only);
  // That of any_caller alone: as a continuation it marks where its rule has ended.
  frontier open() const { return open_; }
  bool has_ended(frontier f) const { return !items(f).empty() && items(f).back().state == any_caller; }
  // The states of f, all of text rules, each replaced by its stand_in, for any caller; counts that play no part yet are
  // mark_rule::uncounted, others leave their state as it is.
  frontier detached(frontier f);

  const rule_network& network() const { return *network_; }
  std::size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  std::size_t size() const { return count_.load(std::memory_order_relaxed); }
  bool overflowed() const { return overflowed_.load(std::memory_order_relaxed); }

  // One value per frontier that others keep here, and memory for it that lives as long as the store.
  std::atomic<const void*>& attached(frontier f) { return at(f).attached; }
  void* allocate(std::size_t bytes);

  // The same place in another store of the same network.
  frontier copy_to(frontier_store& other, frontier f) const;

private:
  struct lean_step {
    const lean_step* older;
    frontier to;
    std::uint32_t byte_class, number; // number: of steps with this one
  };
  struct node {
    std::span<const item> items;
    std::atomic<const expansion*> grown{nullptr};
    std::atomic<const lean_step*> steps{nullptr}; // that are known while the expansion is not
    std::atomic<const void*> attached{nullptr};
  };
  // Chunk k has first_chunk << k nodes, so that nodes never move.
  static constexpr std::uint32_t first_chunk = 64, most_chunks = 20;
  struct scratch;

  node& at(frontier f) const {
    const std::uint32_t place = f + first_chunk, chunk = std::bit_width(place / first_chunk) - 1u;
    return chunks_[chunk].load(std::memory_order_acquire)[place - (first_chunk << chunk)];
  }
  const expansion& grow(frontier f);
  const expansion& grow_closed(frontier f);
  frontier grow_lean(frontier f, std::uint8_t byte_class, mask_work& work);
  frontier intern(std::vector<item>& items);
  void add_item(std::vector<item>& to, std::uint32_t state, frontier then, std::uint64_t low, std::uint64_t high) const;
  void* take(std::size_t bytes);
  void close(frontier f);
  void close_from(frontier f, bool take_known);
  frontier behind_known(std::size_t byte_class);
  void visit(std::uint32_t state, frontier then, std::uint64_t low, std::uint64_t high);
  void call(std::uint32_t rule, std::uint32_t state, frontier then, std::uint64_t low, std::uint64_t high);
  void pick(const rule_network::edge& e, frontier then, std::uint64_t used);
  void mark(const rule_network::edge& e, frontier then, std::uint64_t marks);
  bool counts(std::uint32_t state) const;
  void count_loop(const rule_network::loop& l, std::uint64_t& low, std::uint64_t& high) const;

  std::shared_ptr<const rule_network> network_;
  std::size_t max_items_, max_bytes_;
  frontier start_ = dead_frontier, open_ = dead_frontier;
  std::atomic<std::size_t> bytes_{0}, count_{0};
  std::atomic<bool> overflowed_{false};
  std::array<std::atomic<node*>, most_chunks> chunks_{};

  std::mutex growing_;               // guards all below
  std::vector<std::uint32_t> table_; // open addressing, by content
  std::vector<std::uint64_t> hashes_;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::byte* free_ = nullptr;
  std::size_t left_ = 0;
  std::unique_ptr<scratch> scratch_;
};

} // namespace troupe
