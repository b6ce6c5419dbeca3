// troupe grammar check: JSON lines of constraints and texts to verdicts, with the times of compiling and of masks.
#include "actors/processor_time.hpp"
#include "cli/engine_settings.hpp"
#include "cli/json_lines.hpp"
#include "cli/verbs.hpp"
#include "runtime/grammar/constraint.hpp"
#include "runtime/grammar/constraint_matcher.hpp"
#include <algorithm>

namespace troupe {

namespace {

using json = nlohmann::ordered_json;

constexpr double compile_seconds = 2; // of processor time, as in requests

class grammar_checker {
public:
  grammar_checker(const tokenizer& t, bool strict)
      : tokenizer_(t), strict_(strict), vocabulary_(token_vocabulary::of(t, t.vocab_size())),
        row_(vocabulary_->words()) {}

  result<json> check(const json& line) {
    const auto read = read_line(line);
    if (!read)
      return read.failure();
    mask_us_.clear();
    const double start = thread_seconds();
    const auto grammar =
        compile_constraint(*read, vocabulary_, {}, [&] { return thread_seconds() - start > compile_seconds; });
    json out{{"refused", nullptr}, {"compile_us", microseconds_since(start)}};
    json cases = json::array();
    if (!grammar) {
      // nothing else ends it early here
      out["refused"] = grammar.failure().code == "so_timeout"
                           ? "so_too_complex: compiling it takes more than 2 s of processor time; simplify it"
                           : grammar.failure().code + ": " + grammar.failure().message;
    } else {
      for (const json& c : line.value("cases", json::array())) {
        if (!c.is_object() || !c.contains("text") || !c["text"].is_string())
          return error{"invalid_request", "cases: every case must be an object with a string in \"text\""};
        const result<bool> accepted = walk(*grammar, c["text"].get<std::string>());
        if (accepted)
          cases.push_back({{"verdict", *accepted ? "accept" : "reject"}});
        else
          cases.push_back(
              {{"verdict", nullptr}, {"error", accepted.failure().code + ": " + accepted.failure().message}});
      }
    }
    std::sort(mask_us_.begin(), mask_us_.end());
    out["mask_us_p50"] = mask_us_.empty() ? json(nullptr) : json(mask_us_[mask_us_.size() / 2]);
    out["mask_us_max"] = mask_us_.empty() ? json(nullptr) : json(mask_us_.back());
    out["cases"] = std::move(cases);
    return out;
  }

private:
  static double microseconds_since(double start) { return 1e6 * (thread_seconds() - start); }

  result<constraint> read_line(const json& line) const {
    constraint what;
    for (const char* key : {"kind", "source"})
      if (!line.contains(key) || !line[key].is_string())
        return error{"invalid_request", std::string(key) + ": a string is needed"};
    if (line.contains("cases") && !line["cases"].is_array())
      return error{"invalid_request", "cases: a list is needed"};
    const std::string kind = line["kind"];
    const result<constraint_kind> known = constraint_kind_of(kind == "json_schema" ? "json" : kind);
    if (!known)
      return error{"invalid_request", "kind = \"" + kind + "\": use json_schema, regex or ebnf"};
    what.kind = *known;
    what.text = line["source"];
    what.schema.strict = strict_;
    what.schema.infer_type = false; // verdicts of the standard
    return what;
  }

  // Token by token, the bit of each token read before it is taken.
  result<bool> walk(const std::shared_ptr<const compiled_grammar>& grammar, const std::string& text) {
    constraint_matcher matcher(grammar);
    const auto fill = [&] {
      const double start = thread_seconds();
      matcher.fill(row_.data());
      mask_us_.push_back(microseconds_since(start));
    };
    for (const std::int32_t id : tokenizer_.encode(text, encode_mode::plain)) {
      fill();
      const bool complete = !matcher.overflowed(), allowed = has_bit(row_.data(), id);
      if (matcher.accept(id) != allowed && complete && !matcher.overflowed())
        return error{"so_internal", "the mask and the matcher disagree about token " + std::to_string(id)};
      if (!complete || matcher.overflowed())
        return error{"so_too_complex", "following the constraint needs more than its budget"};
      if (!allowed)
        return false;
    }
    fill();
    return matcher.can_end();
  }

  const tokenizer& tokenizer_;
  bool strict_;
  std::shared_ptr<const token_vocabulary> vocabulary_;
  std::vector<std::uint32_t> row_;
  std::vector<double> mask_us_;
};

} // namespace

int run_grammar_check(const grammar_check_options& options) {
  const tokenizer t =
      tokenizer::load(options.tokenizer_file.empty() ? default_tokenizer_file() : options.tokenizer_file);
  grammar_checker checker(t, options.strict);
  return answer_json_lines(options.input, options.output, [&](const json& line) { return checker.check(line); });
}

} // namespace troupe
