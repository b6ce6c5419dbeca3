#include "runtime/tokenizer/tokenizer_file.hpp"
#include "runtime/base/result.hpp"
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace troupe {

namespace {

using nlohmann::json;

constexpr const char* use_right_file = "use the tokenizer.json of a DeepSeek-V4.1 checkpoint";
constexpr const char* copy_again = "the file is damaged; copy it from the checkpoint again";
constexpr std::size_t max_depth = 32;

std::string shown(const json& value) {
  std::string s = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return s.size() <= 80 ? s : s.substr(0, 77) + "...";
}

// Builds a DOM of everything but model.vocab and model.merges, which would cost most of the time as a DOM and go
// straight into lists. Unlike the library's DOM parser it refuses a key that occurs twice in one object.
class reader : public nlohmann::json_sax<json> {
public:
  reader(const std::string& name, tokenizer_file& out) : name_(name), out_(out) {}

  json take() { return std::move(root_); }
  bool saw_vocabulary() const { return saw_vocabulary_; }
  bool saw_merges() const { return saw_merges_; }

  bool null() override { return scalar(nullptr); }
  bool boolean(bool v) override { return scalar(v); }
  bool number_integer(number_integer_t v) override { return scalar(v); }
  bool number_float(number_float_t v, const string_t&) override { return scalar(v); }
  bool binary(binary_t&) override { return false; }

  bool number_unsigned(number_unsigned_t v) override {
    if (mode_ != mode::vocabulary)
      return scalar(v);
    if (v > 0x7FFFFFFF)
      refuse("model.vocab." + key_, json(v), "a token id must be below 2^31", copy_again);
    out_.vocabulary.emplace_back(std::move(key_), static_cast<std::int32_t>(v));
    return true;
  }

  bool string(string_t& v) override {
    if (mode_ == mode::merges) {
      const std::size_t space = v.find(' ');
      if (space == std::string::npos || space == 0 || space + 1 == v.size() ||
          v.find(' ', space + 1) != std::string::npos)
        refuse(merge_key(), json(v), "a merge is two tokens with one space between", copy_again);
      out_.merges.emplace_back(v.substr(0, space), v.substr(space + 1));
      return true;
    }
    if (mode_ == mode::merge_pair) {
      pair_.push_back(std::move(v));
      return true;
    }
    return scalar(std::move(v));
  }

  bool start_object(std::size_t) override {
    if (mode_ == mode::none && at_model("vocab")) {
      mode_ = mode::vocabulary;
      saw_vocabulary_ = true;
      return true;
    }
    return open(json::object());
  }

  bool key(string_t& v) override {
    key_ = std::move(v);
    if (mode_ == mode::none && (stack_.back()->contains(key_) || (at_model("vocab") && saw_vocabulary_) ||
                                (at_model("merges") && saw_merges_)))
      refuse(path(), json(), "the key occurs twice", copy_again);
    return true;
  }

  bool end_object() override {
    if (mode_ == mode::vocabulary)
      mode_ = mode::none;
    else
      stack_.pop_back();
    return true;
  }

  bool start_array(std::size_t) override {
    if (mode_ == mode::none && at_model("merges")) {
      mode_ = mode::merges;
      saw_merges_ = true;
      return true;
    }
    if (mode_ == mode::merges) {
      mode_ = mode::merge_pair;
      pair_.clear();
      return true;
    }
    return open(json::array());
  }

  bool end_array() override {
    if (mode_ == mode::merge_pair) {
      if (pair_.size() != 2 || pair_[0].empty() || pair_[1].empty())
        refuse(merge_key(), json(pair_), "a merge is two tokens", copy_again);
      out_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
      mode_ = mode::merges;
    } else if (mode_ == mode::merges) {
      mode_ = mode::none;
    } else {
      stack_.pop_back();
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw config_error(name_, "", "", "not valid JSON at byte " + std::to_string(position), copy_again);
  }

private:
  enum class mode { none, vocabulary, merges, merge_pair };

  bool at_model(const char* what) const { return stack_.size() == 2 && in_model_ && key_ == what; }
  std::string merge_key() const { return "model.merges[" + std::to_string(out_.merges.size()) + "]"; }
  std::string path() const { return (in_model_ && stack_.size() == 2 ? "model." : "") + key_; }

  [[noreturn]] void refuse(std::string key, const json& value, std::string why, std::string remedy) const {
    throw config_error(name_, std::move(key), value.is_null() ? "" : shown(value), std::move(why), std::move(remedy));
  }

  json* place(json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    json& top = *stack_.back();
    if (top.is_array()) {
      top.push_back(std::move(value));
      return &top.back();
    }
    return &(top[key_] = std::move(value));
  }

  bool scalar(json value) {
    if (mode_ == mode::vocabulary)
      refuse("model.vocab." + key_, value, "a token id must be a whole number from 0", copy_again);
    if (mode_ != mode::none)
      refuse(merge_key(), value, "a merge is two tokens", copy_again);
    place(std::move(value));
    return true;
  }

  bool open(json value) {
    if (mode_ != mode::none)
      return scalar(std::move(value)); // refuses
    if (stack_.size() == max_depth)
      refuse(path(), json(), "nested more than " + std::to_string(max_depth) + " deep", use_right_file);
    if (stack_.size() == 1)
      in_model_ = key_ == "model";
    stack_.push_back(place(std::move(value)));
    return true;
  }

  const std::string& name_;
  tokenizer_file& out_;
  json root_;
  std::vector<json*> stack_;
  std::string key_;
  mode mode_ = mode::none;
  std::vector<std::string> pair_;
  bool in_model_ = false, saw_vocabulary_ = false, saw_merges_ = false;
};

// Checks of what stands around vocabulary and merges.
class checker {
public:
  checker(const std::string& name, const json& root) : name_(name), root_(root) {}

  [[noreturn]] void refuse(const std::string& key, const json& value, const std::string& why,
                           const char* remedy = use_right_file) const {
    throw config_error(name_, key, shown(value), why, remedy);
  }

  // `object` (at `path`) may have these keys and no others.
  void only_keys(const json& object, const std::string& path, std::initializer_list<const char*> keys) const {
    if (!object.is_object())
      refuse(path, object, "must be an object");
    for (const auto& [key, value] : object.items())
      if (std::find_if(keys.begin(), keys.end(), [&k = key](const char* known) { return k == known; }) == keys.end())
        refuse((path.empty() ? "" : path + ".") + key, value, "unknown setting, which might change ids");
  }

  // `object[key]` must be one of `allowed`; a missing key counts as null.
  void one_of(const json& object, const std::string& path, const char* key, std::initializer_list<json> allowed) const {
    const auto at = object.find(key);
    const json value = at == object.end() ? json() : *at;
    if (std::find(allowed.begin(), allowed.end(), value) != allowed.end())
      return;
    std::string list;
    for (const json& a : allowed)
      list += (list.empty() ? "" : " or ") + shown(a);
    refuse((path.empty() ? "" : path + ".") + key, value, "only " + list + " is supported");
  }

  void byte_level(const json& object, const std::string& path) const {
    only_keys(object, path, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    one_of(object, path, "type", {"ByteLevel"});
  }

  const json& child(const char* key) const {
    static const json none;
    const auto at = root_.find(key);
    return at == root_.end() ? none : *at;
  }

  void header() const {
    only_keys(root_, "",
              {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
               "decoder", "model"});
    one_of(root_, "", "version", {"1.0"});
    one_of(root_, "", "truncation", {nullptr});
    one_of(root_, "", "padding", {nullptr});
    one_of(root_, "", "normalizer", {nullptr, json{{"type", "Sequence"}, {"normalizers", json::array()}}});
    pre_tokenizer(child("pre_tokenizer"));
    if (const json& post = child("post_processor"); !post.is_null())
      byte_level(post, "post_processor"); // changes offsets only
    byte_level(child("decoder"), "decoder");
  }

  void pre_tokenizer(const json& all) const {
    static const char* const patterns[] = {
        "\\p{N}{1,3}",
        "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
        " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    };
    const std::string path = "pre_tokenizer";
    only_keys(all, path, {"type", "pretokenizers"});
    one_of(all, path, "type", {"Sequence"});
    const auto list = all.find("pretokenizers");
    if (list == all.end() || !list->is_array() || list->size() != 4)
      refuse(path + ".pretokenizers", list == all.end() ? json() : *list, "must be three splits and a byte level");
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string at = path + ".pretokenizers[" + std::to_string(i) + "]";
      const json& split = (*list)[i];
      only_keys(split, at, {"type", "pattern", "behavior", "invert"});
      one_of(split, at, "type", {"Split"});
      one_of(split, at, "pattern", {json{{"Regex", patterns[i]}}});
      one_of(split, at, "behavior", {"Isolated"});
      one_of(split, at, "invert", {false});
    }
    byte_level((*list)[3], path + ".pretokenizers[3]");
    one_of((*list)[3], path + ".pretokenizers[3]", "add_prefix_space", {false});
    one_of((*list)[3], path + ".pretokenizers[3]", "use_regex", {false});
  }

  void model(bool vocabulary, bool merges) const {
    const json& m = child("model");
    if (!m.is_object())
      refuse("model", m, "must be an object");
    one_of(m, "model", "type", {"BPE"});
    only_keys(m, "model",
              {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
               "byte_fallback", "ignore_merges", "vocab", "merges"});
    one_of(m, "model", "dropout", {nullptr});
    one_of(m, "model", "unk_token", {nullptr});
    one_of(m, "model", "continuing_subword_prefix", {nullptr, ""});
    one_of(m, "model", "end_of_word_suffix", {nullptr, ""});
    one_of(m, "model", "fuse_unk", {nullptr, false});
    one_of(m, "model", "byte_fallback", {nullptr, false});
    one_of(m, "model", "ignore_merges", {nullptr, false});
    if (!vocabulary)
      refuse("model.vocab", m.value("vocab", json()), "must be an object of tokens and ids", copy_again);
    if (!merges)
      refuse("model.merges", m.value("merges", json()), "must be a list of token pairs", copy_again);
  }

  std::vector<tokenizer_file::added_token> added_tokens() const {
    const json& list = child("added_tokens");
    if (!list.is_array())
      refuse("added_tokens", list, "must be a list", copy_again);
    std::vector<tokenizer_file::added_token> out;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string path = "added_tokens[" + std::to_string(i) + "]";
      const json& t = list[i];
      only_keys(t, path, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
      for (const char* flag : {"single_word", "lstrip", "rstrip"})
        one_of(t, path, flag, {false});
      for (const char* flag : {"normalized", "special"})
        one_of(t, path, flag, {false, true});
      const auto content = t.find("content");
      if (content == t.end() || !content->is_string() || content->get_ref<const std::string&>().empty())
        refuse(path + ".content", content == t.end() ? json() : *content, "must be a text that is not empty",
               copy_again);
      const auto id = t.find("id");
      if (id == t.end() || !id->is_number_unsigned() || id->get<std::uint64_t>() > 0x7FFFFFFF)
        refuse(path + ".id", id == t.end() ? json() : *id, "must be a token id", copy_again);
      out.push_back({id->get<std::int32_t>(), content->get<std::string>(), t.at("special").get<bool>(),
                     t.at("normalized").get<bool>()});
    }
    return out;
  }

private:
  const std::string& name_;
  const json& root_;
};

} // namespace

tokenizer_file parse_tokenizer_file(std::string_view json_text, const std::string& name) {
  tokenizer_file out;
  reader sax(name, out);
  if (!json::sax_parse(json_text.begin(), json_text.end(), &sax))
    throw config_error(name, "", "", "not valid JSON", copy_again);
  const json root = sax.take();
  const checker check(name, root);
  check.header();
  check.model(sax.saw_vocabulary(), sax.saw_merges());
  out.added = check.added_tokens();
  return out;
}

tokenizer_file read_tokenizer_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in)
    text << in.rdbuf();
  if (!in || !text || text.view().empty())
    throw config_error(path, "", "", "cannot be read or is empty", "give the path of a readable tokenizer.json");
  return parse_tokenizer_file(text.view(), path);
}

} // namespace troupe
