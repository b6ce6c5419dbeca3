#include "runtime/recipe/plain_turns.hpp"
#include <algorithm>
#include <iterator>

namespace troupe {

namespace {

constexpr std::string_view high_effort =
    "Reasoning Effort: 75 (range 1-100, the higher the value, the more thorough the reasoning)\n\n";

// Collects ids; neighbouring texts are joined before they are encoded, because the tokenizer must see them as one
// stretch.
class prompt_builder {
public:
  explicit prompt_builder(const tokenizer& t) : tokenizer_(t) {}
  void control(std::int32_t id) {
    flush();
    ids_.push_back(id);
  }
  void text(std::string_view t) { pending_ += t; }
  std::vector<std::int32_t> finish() {
    flush();
    return std::move(ids_);
  }

private:
  void flush() {
    const std::vector<std::int32_t> ids = tokenizer_.encode(pending_, encode_mode::plain);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    pending_.clear();
  }
  const tokenizer& tokenizer_;
  std::string pending_;
  std::vector<std::int32_t> ids_;
};

} // namespace

result<turn_tokens> find_turn_tokens(const tokenizer& vocabulary) {
  std::string missing;
  const auto id = [&](std::string_view spelling) {
    const auto found = vocabulary.id_of(spelling);
    if (!found)
      missing += (missing.empty() ? "" : " ") + std::string(spelling);
    return found.value_or(0);
  };
  const turn_tokens tokens{.begin = vocabulary.bos_id(),
                           .end = vocabulary.eos_id(),
                           .system = id("<｜System｜>"),
                           .user = id("<｜User｜>"),
                           .assistant = id("<｜Assistant｜>"),
                           .think = id("<think>"),
                           .end_of_think = id("</think>")};
  if (!missing.empty())
    return error{"unsupported", "the tokenizer has no token " + missing + ", so this model has no conversation form"};
  return tokens;
}

std::vector<std::int32_t> render_plain_turns(const tokenizer& vocabulary, const turn_tokens& tokens,
                                             std::span<const plain_turn> turns, bool think) {
  using role = plain_turn::role;
  prompt_builder out(vocabulary);
  out.control(tokens.begin);
  // An empty system text leaves no trace, not even between two user texts.
  std::vector<plain_turn> kept;
  std::ranges::copy_if(turns, std::back_inserter(kept),
                       [](const plain_turn& t) { return t.from != role::system || !t.text.empty(); });
  if (think || (!kept.empty() && kept.front().from == role::system))
    out.control(tokens.system);
  if (think)
    out.text(high_effort);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const plain_turn& turn = kept[i];
    switch (turn.from) {
    case role::system:
      if (i > 0)
        out.control(tokens.system);
      out.text(turn.text);
      break;
    case role::user:
      if (i > 0 && kept[i - 1].from == role::user)
        out.text("\n\n");
      else
        out.control(tokens.user);
      out.text(turn.text);
      break;
    case role::assistant:
      out.control(tokens.assistant);
      out.control(tokens.end_of_think);
      out.text(turn.text);
      out.control(tokens.end);
      break;
    }
  }
  out.control(tokens.assistant);
  out.control(think ? tokens.think : tokens.end_of_think);
  return out.finish();
}

std::string answer_without_reasoning(const tokenizer& vocabulary, const turn_tokens& tokens,
                                     std::span<const std::int32_t> ids, const std::string& text, bool think) {
  if (!think)
    return text;
  const auto found = std::ranges::find(ids, tokens.end_of_think);
  if (found == ids.end())
    return {};
  const std::string reasoning = vocabulary.decode({ids.begin(), found + 1});
  return text.starts_with(reasoning) ? text.substr(reasoning.size()) : std::string();
}

} // namespace troupe
