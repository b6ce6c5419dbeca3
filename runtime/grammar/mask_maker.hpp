// Which tokens can come next, for the frontiers of one grammar (structured_output.md §5, §8.3). Shared by threads.
#pragma once
#include "runtime/grammar/frontier_store.hpp"
#include "runtime/grammar/loop_table.hpp"
#include "runtime/grammar/token_vocabulary.hpp"
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe {

class mask_maker {
public:
  using table_list = std::vector<std::shared_ptr<const loop_table>>; // by index of the network's round_dfas

  // known: tables that are no work; null for others.
  mask_maker(std::shared_ptr<const rule_network> network, std::shared_ptr<const token_vocabulary> vocabulary,
             table_list known, std::size_t max_items, std::size_t max_bytes);

  frontier_store& store() { return store_; }
  frontier accept(frontier f, std::int32_t id) { return store_.read_token(f, id, vocabulary_->text(id)); }
  bool can_end(frontier f) { return store_.expand(f).can_end; }

  // Sets bit i of `row` (of vocabulary words) if token i can be accepted, or is the end token and the text can end
  // here, and clears all others. Where `work` is spent before that the row holds nothing; what was learnt on the way is
  // kept, so that a next attempt is less.
  void fill(frontier f, std::uint32_t* row, mask_work& work);

  std::size_t table_bytes(); // what falls to this one of the tables that it holds
  static std::size_t bytes_of(const table_list& tables);

private:
  // A frontier that reads words of one prefix code over and over.
  struct loop_place {
    std::int32_t table;                               // index of the network's round_dfas
    std::uint64_t done = 0, min = 0, max = unbounded; // rounds
    frontier exit;                                    // what a token reads that leaves the loop behind whole rounds
  };
  struct cached_mask {
    const std::uint32_t* base; // a whole row, or none: all bits 0
    std::uint32_t added;       // so many ids follow, whose bits are set besides
    const std::int32_t* ids;
  };

  // What can be read inside a text rule, whoever calls it.
  struct text_mask {
    const std::uint32_t* row;        // tokens that stay inside or end with the rule
    const std::uint32_t* near_row;   // without those of more than near_bytes
    std::vector<std::uint32_t> ends; // nodes of the trie of quoted tokens where the rule ends before the token does
  };

  // A frontier on the way down a trie, and what follows it: null where few bytes are asked about.
  struct way_place {
    frontier at;
    const frontier* next;
  };
  way_place way_from(frontier f, mask_work& work) { return {f, store_.expand(f, work).next}; }
  way_place way_below(const token_trie& trie, std::uint32_t node, frontier f, mask_work& work);
  frontier read(const way_place& from, std::uint8_t byte_class, mask_work& work) {
    return from.next != nullptr ? from.next[byte_class] : store_.step_lean(from.at, byte_class, work);
  }

  frontier text_place(frontier f);
  const text_mask* text_mask_of(frontier place, mask_work& work);
  std::size_t fill_text(frontier f, frontier place, const std::uint32_t*& base, std::uint32_t* row, mask_work& work);
  std::optional<loop_place> loop_at(frontier f, mask_work& work);
  std::optional<loop_place> counted_loop_at(const frontier_store::item& here, const rule_network::edge& e,
                                            mask_work& work);
  bool returns_to(frontier f, const byte_dfa& round, mask_work& work);
  const loop_table* table(std::int32_t index, mask_work& work);
  const loop_table* table_below(std::int32_t index, std::uint32_t node, mask_work& work);
  frontier usual_target(frontier f, mask_work& work);

  // These give the number of nodes they looked at, by which it is decided what is kept.
  std::size_t add_loop(const loop_place& loop, const loop_table& table, frontier f, std::uint32_t* row,
                       mask_work& work);
  template <class Below>
  std::size_t walk_trie(const token_trie& trie, frontier from, std::uint32_t node, std::uint32_t end,
                        std::uint32_t* row, mask_work& work, const Below& below);
  std::size_t walk(frontier from, std::uint32_t node, std::uint32_t end, std::uint32_t* row, mask_work& work);
  std::size_t walk_small(const token_trie& trie, frontier from, std::uint32_t node, std::uint32_t end,
                         std::uint32_t most_depth, std::uint32_t* row, mask_work& work);
  bool read_alike(frontier a, frontier b, std::uint32_t bytes, mask_work& work);
  std::size_t walk_differences(frontier f, frontier base, std::uint32_t* row, mask_work& work);
  // These add it to `nodes`. fits(late exit): its rounds are within the loop's limits.
  template <class Fits>
  void add_exits_by_token(frontier exit, std::span<const loop_table::late_exit> exits, const Fits& fits,
                          std::uint32_t* row, std::size_t& nodes, mask_work& work);
  template <class Fits>
  void add_exits_by_trie(const way_place& exit, const loop_table& table, unsigned char first, const Fits& fits,
                         std::uint32_t* row, std::size_t& nodes, mask_work& work);
  void add_special_bits(frontier f, std::uint32_t* row, mask_work& work);
  void keep(frontier f, const std::uint32_t* base, const std::uint32_t* row);

  std::shared_ptr<const token_vocabulary> vocabulary_;
  frontier_store store_;
  table_list tables_;
  std::vector<std::atomic<const loop_table*>> known_tables_;
  std::map<std::pair<std::int32_t, std::uint32_t>, std::shared_ptr<const loop_table>> tables_below_;
  std::mutex tables_lock_;
  std::unordered_map<frontier, std::unique_ptr<const text_mask>> text_masks_;
  std::mutex text_masks_lock_;
  bool stand_ins_ = false; // some state has another one
};

} // namespace troupe
