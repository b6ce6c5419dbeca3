// Case texts with seeded damage: what the fuzz tests run without libFuzzer, the same inputs on every machine.
#pragma once
#include <array>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::fuzz {

class damaged_texts {
public:
  // `words`: pieces of the language that are worth inserting.
  damaged_texts(std::vector<std::string> texts, std::vector<std::string> words, std::uint32_t seed)
      : texts_(std::move(texts)), words_(std::move(words)), random_(seed) {}

  // A text with one to eight edits, rather few than many, then 0xFF and bytes that choose tokens (see try_constraint).
  std::string next() {
    std::string text = pick(texts_);
    for (std::size_t edits = 1 + below(1 + below(8)); edits > 0; --edits)
      edit(text);
    text += '\xFF';
    for (int i = 0; i < 8; ++i)
      text += static_cast<char>(below(256));
    return text;
  }

private:
  static constexpr std::size_t longest = 1024;

  std::size_t below(std::size_t n) { return random_() % n; } // not a distribution: those differ between libraries
  const std::string& pick(const std::vector<std::string>& list) { return list[below(list.size())]; }
  std::string piece(const std::string& of, std::size_t most) {
    return of.empty() ? of : of.substr(below(of.size()), below(most + 1));
  }

  void edit(std::string& text) {
    const std::size_t at = below(text.size() + 1);
    switch (below(8)) {
    case 0:
      text.erase(at, 1 + below(4));
      break;
    case 1:
      text.erase(at, 1 + below(text.size() / 2 + 1));
      break;
    case 2:
      if (at < text.size())
        text[at] = static_cast<char>(below(256));
      break;
    case 3:
      text.insert(at, piece(text, 16));
      break;
    case 4:
      text.insert(at, piece(pick(texts_), 64));
      break;
    case 5: { // one piece many times: repetition, and nesting where it opens something
      const std::string part = piece(text, 4);
      for (std::size_t n = 1 + below(40); n > 0; --n)
        text.insert(at, part);
      break;
    }
    case 6: { // a number becomes another
      const std::size_t digit = text.find_first_of("0123456789", at);
      if (digit != std::string::npos)
        text.replace(digit, 1, numbers[below(numbers.size())]);
      break;
    }
    default:
      text.insert(at, pick(words_));
    }
    if (text.size() > longest)
      text.resize(longest);
  }

  static constexpr std::array<const char*, 9> numbers{
      "0", "1", "2", "33", "257", "99999", "4294967295", "18446744073709551615", "1e99"};

  std::vector<std::string> texts_, words_;
  std::mt19937 random_;
};

} // namespace troupe::fuzz
