// Prompts of plain conversations: system, user and assistant texts without tools (tokenizer_recipe.md 2.3, 2.7).
#pragma once
#include "runtime/base/result.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace troupe {

struct plain_turn {
  enum class role : std::uint8_t { system, user, assistant };
  role from = role::user;
  std::string text; // of an assistant: without reasoning, which leaves the prompt when the next turn begins
};

// Control tokens that the template inserts. They never come from the texts of a conversation.
struct turn_tokens {
  std::int32_t begin, end, system, user, assistant, think, end_of_think;
};

// Failure ("unsupported"): the vocabulary lacks one of them, so the model has no conversation form.
result<turn_tokens> find_turn_tokens(const tokenizer& vocabulary);

// Token ids of a prompt that asks the assistant for its next turn: with `think` it starts by reasoning, with high
// effort. Texts are encoded plain: a control token spelled in them stays text.
std::vector<std::int32_t> render_plain_turns(const tokenizer& vocabulary, const turn_tokens& tokens,
                                             std::span<const plain_turn> turns, bool think);

// The part of an answer that stays in the conversation: what follows the end-of-thinking token, all of it if there is
// none and the answer did not start by reasoning. `text` is the decoded answer, `ids` its tokens.
std::string answer_without_reasoning(const tokenizer& vocabulary, const turn_tokens& tokens,
                                     std::span<const std::int32_t> ids, const std::string& text, bool think);

} // namespace troupe
