#include "runtime/grammar/json_schema_document.hpp"

#include "runtime/grammar/char_pattern.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_set>

namespace troupe {
namespace {

using kind = json_value::kind;

constexpr int max_depth_at_one_place = 1000;
constexpr std::size_t most_warnings = 100;

constexpr std::array<std::string_view, 10> single_schemas{"additionalProperties",
                                                          "unevaluatedProperties",
                                                          "propertyNames",
                                                          "additionalItems",
                                                          "unevaluatedItems",
                                                          "contains",
                                                          "not",
                                                          "if",
                                                          "then",
                                                          "else"};
constexpr std::array<std::string_view, 4> schema_lists{"allOf", "anyOf", "oneOf", "prefixItems"};
constexpr std::array<std::string_view, 6> schema_maps{
    "properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"};

// Keywords that not all drafts have. Elsewhere they are unknown ones, which have no effect. (`dependencies` and
// `definitions` are read in all drafts, a list as `items` and the exclusive bounds in all their forms.)
struct lifetime {
  std::string_view keyword;
  json_draft first, last = json_draft::d2020;
};
constexpr std::array<lifetime, 19> lifetimes{{{"id", json_draft::d4, json_draft::d4},
                                              {"$id", json_draft::d6},
                                              {"const", json_draft::d6},
                                              {"contains", json_draft::d6},
                                              {"propertyNames", json_draft::d6},
                                              {"if", json_draft::d7},
                                              {"then", json_draft::d7},
                                              {"else", json_draft::d7},
                                              {"$anchor", json_draft::d2019},
                                              {"$recursiveRef", json_draft::d2019, json_draft::d2019},
                                              {"minContains", json_draft::d2019},
                                              {"maxContains", json_draft::d2019},
                                              {"dependentRequired", json_draft::d2019},
                                              {"dependentSchemas", json_draft::d2019},
                                              {"unevaluatedItems", json_draft::d2019},
                                              {"unevaluatedProperties", json_draft::d2019},
                                              {"prefixItems", json_draft::d2020},
                                              {"$dynamicRef", json_draft::d2020},
                                              {"$dynamicAnchor", json_draft::d2020}}};

// As $schema names them, behind the common start.
constexpr std::string_view draft_address = "json-schema.org/draft";
constexpr std::array<std::string_view, 5> draft_names{"-04", "-06", "-07", "/2019-09", "/2020-12"};

bool names_draft(const json_value& address) {
  return address.is(kind::string) && address.text.find(draft_address) != std::string::npos;
}

// None: one whose keywords are not read here.
std::optional<json_draft> draft_of(const json_value& address) {
  const std::string_view name =
      std::string_view(address.text).substr(address.text.find(draft_address) + draft_address.size());
  for (std::size_t i = 0; i < draft_names.size(); ++i)
    if (name.starts_with(draft_names[i]))
      return static_cast<json_draft>(i);
  return std::nullopt;
}

bool known(const auto& names, std::string_view key) {
  return std::find(names.begin(), names.end(), key) != names.end();
}

// An address resolved against another (RFC 3986, 5.2, as far as schemas use it). Neither has a fragment.
std::string resolve_address(std::string_view base, std::string_view reference) {
  if (reference.empty())
    return std::string(base);
  const auto scheme_end = [](std::string_view s) {
    const std::size_t colon = s.find(':');
    return colon != std::string_view::npos && s.find_first_of("/?#") > colon ? colon + 1 : 0;
  };
  if (scheme_end(reference) > 0)
    return std::string(reference);
  std::size_t path = scheme_end(base);
  const std::size_t scheme = path;
  if (base.substr(path).starts_with("//"))
    path = std::min(base.find('/', path + 2), base.size());
  std::string out;
  if (reference.starts_with("//"))
    return std::string(base.substr(0, scheme)) + std::string(reference);
  std::string_view rest = reference;
  if (reference.starts_with("/")) {
    out = base.substr(0, path);
  } else {
    const std::size_t slash = base.rfind('/');
    out = base.substr(0, slash == std::string_view::npos || slash < path ? path : slash + 1);
    for (; rest.starts_with("./") || rest.starts_with("../");) {
      const bool up = rest.starts_with("../");
      rest.remove_prefix(up ? 3 : 2);
      if (up && out.size() > path + 1)
        out.erase(out.rfind('/', out.size() - 2) + 1);
    }
  }
  return out + std::string(rest);
}

std::string percent_decoded(std::string_view text, const std::string& failure) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned value = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, why] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (why != std::errc() || end != text.data() + i + 3)
      fail_compile("so_syntax", failure + "its %-escapes are malformed");
    out += static_cast<char>(value);
    i += 2;
  }
  return out;
}

} // namespace

json_types type_of(const json_value& value) {
  switch (value.what) {
  case kind::null:
    return type_null;
  case kind::boolean:
    return type_boolean;
  case kind::number:
    return value.number.integral() ? type_integer : type_fraction;
  case kind::string:
    return type_string;
  case kind::array:
    return type_array;
  case kind::object:
    return type_object;
  }
  return 0;
}

const schema_index* schema_node::property(std::string_view key) const {
  const auto at = declared.find(key);
  return at != declared.end() ? &at->second : nullptr;
}

schema_document::schema_document(std::string_view text, options how, compile_budget& budget,
                                 std::vector<std::string>* warnings)
    : how_(how), budget_(budget), warnings_(warnings) {
  result<json_value> parsed = parse_json(text, {budget.limits().schema_nesting, budget.limits().text_bytes});
  if (!parsed)
    fail_compile(parsed.failure().code == "so_syntax" ? "so_syntax" : "so_too_complex",
                 "JSON schema: " + parsed.failure().message);
  text_ = std::move(*parsed);
  if (const json_value* named = text_.is(kind::object) ? text_.find("$schema") : nullptr; named && names_draft(*named))
    draft_ = draft_of(*named).value_or(draft_);
  resources_.push_back({"", {}, {}, &text_, "#"});
  register_names(text_, "#", 0, 0);
  resource_by_address_.try_emplace("", 0);
  intern(text_, "#", 0);
}

std::string schema_document::doubtful() const {
  constexpr std::size_t most_named = 3;
  std::string out;
  std::size_t named = 0;
  for (const entry& e : entries_)
    for (const schema_node::doubt& d : e.node.doubts)
      if (named++ < most_named)
        out += (named > 1 ? ", "
                          : "; perhaps only because this was obeyed, although json-schema.org/draft" +
                                std::string(draft_names[static_cast<std::size_t>(draft_)]) +
                                " does not have it in this form: ") +
               d.path;
  return out + (named > most_named ? " and more" : "");
}

void schema_document::unsupported(const std::string& path, const std::string& why) {
  if (!how_.lenient)
    fail_compile("so_unsupported", path + ": " + why);
  if (warnings_ == nullptr)
    return;
  // once for each keyword, however often its schema is met
  std::string text = path + " has no effect: " + why;
  if (warnings_->size() < most_warnings && std::find(warnings_->begin(), warnings_->end(), text) == warnings_->end())
    warnings_->push_back(std::move(text));
}

bool schema_document::has_keyword(std::string_view keyword) const {
  const auto l =
      std::find_if(lifetimes.begin(), lifetimes.end(), [&](const lifetime& x) { return x.keyword == keyword; });
  return l == lifetimes.end() || (l->first <= draft_ && draft_ <= l->last);
}

// One draft for the whole text; an address elsewhere names none.
void schema_document::check_draft(const json_value& address, const std::string& path) {
  if (!names_draft(address))
    return;
  const std::optional<json_draft> draft = draft_of(address);
  if (!draft)
    unsupported(path, "the draft " + quoted_json(address.text) +
                          " has other keywords; drafts 4, 6, 7, 2019-09 and 2020-12 are read");
  else if (*draft != draft_)
    unsupported(path, "the draft " + quoted_json(address.text) +
                          " is not that of the whole schema, json-schema.org/draft" +
                          std::string(draft_names[static_cast<std::size_t>(draft_)]));
}

// A name that two schemas have means neither of them.
void schema_document::register_anchor(const std::string& name, const json_value& schema, const std::string& path,
                                      std::uint32_t in) {
  auto& [named, where] = resources_[in].anchors.try_emplace(name, &schema, path).first->second;
  if (named == nullptr || named == &schema)
    return;
  named = nullptr;
  where += " and " + path;
}

// Addresses and anchors of all schemas that stand where a schema is expected. The nesting is that of the text.
void schema_document::register_names(const json_value& schema, const std::string& path, std::uint32_t in, int depth) {
  budget_.work(1 + path.size() / 256);
  if (!schema.is(kind::object))
    return;
  const auto text_at = [&](std::string_view key) -> const std::string* {
    const json_value* v = has_keyword(key) ? schema.find(key) : nullptr;
    return v && v->is(kind::string) ? &v->text : nullptr;
  };
  if (const json_value* address = schema.find("$schema"))
    check_draft(*address, path + "/$schema");
  if (const std::string* id = text_at(draft_ == json_draft::d4 ? "id" : "$id")) {
    const std::size_t hash = id->find('#');
    const std::string address = resolve_address(resources_[in].address, std::string_view(*id).substr(0, hash));
    if (hash != std::string::npos && hash + 1 < id->size())
      register_anchor(id->substr(hash + 1), schema, path, in); // drafts 4 to 7
    if (hash != 0 && !id->empty()) {
      if (depth > 0) {
        budget_.memory(sizeof(resource) + 2 * address.size() + path.size());
        in = static_cast<std::uint32_t>(resources_.size());
        resources_.push_back({address, {}, {}, &schema, path});
        resource_at_.emplace(&schema, in);
      } else {
        resources_[0].address = address;
      }
      if (const auto [same, fresh] = resource_by_address_.try_emplace(address, in); !fresh)
        same->second = several_resources;
    }
  }
  if (text_at("$anchor") || text_at("$dynamicAnchor"))
    budget_.memory(path.size());
  if (const std::string* anchor = text_at("$anchor"))
    register_anchor(*anchor, schema, path, in);
  if (const std::string* anchor = text_at("$dynamicAnchor")) {
    register_anchor(*anchor, schema, path, in);
    ++resources_[0].dynamic_anchors[*anchor];
  }
  for (const auto& [key, value] : schema.members) {
    const std::string here = path + pointer_part(key);
    if (known(single_schemas, key) || (key == "items" && value.is(kind::object))) {
      register_names(value, here, in, depth + 1);
    } else if ((known(schema_lists, key) || key == "items") && value.is(kind::array)) {
      for (std::size_t i = 0; i < value.items.size(); ++i)
        register_names(value.items[i], here + "/" + std::to_string(i), in, depth + 1);
    } else if (known(schema_maps, key) && value.is(kind::object)) {
      for (const auto& [name, sub] : value.members)
        register_names(sub, here + pointer_part(name), in, depth + 1);
    }
  }
}

schema_index schema_document::intern(const json_value& source, std::string path, std::uint32_t in) {
  const auto [it, fresh] = index_of_.try_emplace(&source, static_cast<schema_index>(entries_.size()));
  if (fresh) {
    if (const auto own = resource_at_.find(&source); own != resource_at_.end())
      in = own->second;
    budget_.memory(sizeof(entry) + path.size());
    entries_.push_back({&source, in, entry::check::none, false, {}});
    entries_.back().node.path = std::move(path);
  }
  return it->second;
}

schema_index schema_document::any_of(const std::vector<schema_index>& schemas, const std::string& path) {
  if (schemas.size() == 1)
    return schemas.front();
  const auto [it, fresh] = any_of_.try_emplace(schemas, static_cast<schema_index>(entries_.size()));
  if (fresh) {
    budget_.memory(sizeof(entry) + path.size());
    entries_.push_back({nullptr, 0, entry::check::none, true, {}});
    schema_node& n = entries_.back().node;
    n.path = path;
    n.any_of = schemas;
    n.steps = {schema_node::step::any_of};
  }
  return it->second;
}

schema_index schema_document::follow_pointer(std::string_view pointer, std::uint32_t in, const std::string& failure) {
  const json_value* at = resources_[in].root;
  std::string path = resources_[in].path;
  while (!pointer.empty()) {
    if (pointer[0] != '/')
      fail_compile("so_syntax", failure + "a JSON pointer starts with `/`");
    const std::size_t end = std::min(pointer.find('/', 1), pointer.size());
    std::string part;
    for (std::size_t i = 1; i < end; ++i) {
      if (pointer[i] == '~' && i + 1 < end && (pointer[i + 1] == '0' || pointer[i + 1] == '1'))
        part += pointer[++i] == '0' ? '~' : '/';
      else
        part += pointer[i];
    }
    pointer.remove_prefix(end);
    const json_value* next = nullptr;
    if (at->is(kind::object)) {
      next = at->find(part);
    } else if (at->is(kind::array)) {
      std::size_t i = 0;
      const auto [last, why] = std::from_chars(part.data(), part.data() + part.size(), i);
      if (why == std::errc() && last == part.data() + part.size() && i < at->items.size())
        next = &at->items[i];
    }
    if (!next)
      fail_compile("so_unsupported", failure + "there is nothing at " + path + pointer_part(part));
    at = next;
    path += pointer_part(part);
    if (const auto own = resource_at_.find(at); own != resource_at_.end())
      in = own->second;
  }
  return intern(*at, std::move(path), in);
}

schema_index schema_document::resolve(std::string_view reference, std::uint32_t from, const std::string& keyword_path) {
  const std::string failure = keyword_path + ": the reference " + quoted_json(reference) + " cannot be resolved: ";
  const std::size_t hash = std::min(reference.find('#'), reference.size());
  const std::string_view address = reference.substr(0, hash);
  std::uint32_t in = from;
  if (!address.empty()) {
    budget_.work(1 + resources_[from].address.size() / 256);
    const auto found = resource_by_address_.find(resolve_address(resources_[from].address, address));
    if (found == resource_by_address_.end())
      fail_compile("so_unsupported", failure + "no schema in this text has that address, and nothing is fetched; copy "
                                               "it to $defs and refer to #/$defs/NAME");
    in = found->second;
    if (in == several_resources)
      fail_compile("so_syntax", failure + "two schemas of this text have that address");
  }
  const std::string fragment =
      percent_decoded(hash < reference.size() ? reference.substr(hash + 1) : std::string_view(), failure);
  if (fragment.empty() || fragment[0] == '/')
    return follow_pointer(fragment, in, failure);
  const auto anchor = resources_[in].anchors.find(fragment);
  if (anchor == resources_[in].anchors.end())
    fail_compile("so_unsupported", failure + "no $anchor has that name");
  if (anchor->second.first == nullptr)
    fail_compile("so_syntax", failure + "the name is given twice, at " + anchor->second.second);
  return intern(*anchor->second.first, anchor->second.second, in);
}

const char_dfa* schema_document::pattern_language(const std::string& expression, const std::string& path) {
  if (const auto it = patterns_.find(expression); it != patterns_.end())
    return &it->second;
  charged_memory held;
  held.add(expression.size() * pattern_bytes_each);
  // Patterns of schemas are those of ECMA 262, where `.` stops at the end of a line.
  const auto pattern =
      parse_pattern(expression, {.dot_excludes_newline = true, .nesting = budget_.limits().regex_nesting});
  if (!pattern) {
    if (pattern.failure().code == "so_unsupported") {
      unsupported(path, pattern.failure().message);
      return nullptr;
    }
    fail_compile(pattern.failure().code == "so_syntax" ? "so_syntax" : "so_too_complex",
                 path + ": " + pattern.failure().message);
  }
  try {
    char_dfa language = texts_with_match(*pattern);
    budget_.states(language.size());
    budget_.memory(expression.size() + language.bytes());
    return &patterns_.emplace(expression, std::move(language)).first->second;
  } catch (const automaton_too_large& e) {
    fail_compile("so_too_complex", path + ": the pattern " + e.what());
  }
}

// Reads the keywords of one schema object into its node.
class schema_document::reader {
public:
  reader(schema_document& document, schema_index index)
      : document_(document), index_(index), source_(*document.entries_[index].source),
        node_(document.entries_[index].node) {}

  void read() {
    if (source_.is(kind::boolean)) {
      node_.always = source_.truth;
      return;
    }
    if (!source_.is(kind::object))
      fail_compile("so_syntax", node_.path + ": a schema is an object, true or false");
    for (const auto& [key, value] : source_.members) {
      document_.budget_.work();
      if (!document_.has_keyword(key))
        continue;
      keyword_ = &key;
      value_ = &value;
      assertion() || of_arrays() || of_objects() || at_same_place();
    }
    bounds();
    array_items();
  }

private:
  std::string here() const { return node_.path + pointer_part(*keyword_); }
  [[noreturn]] void malformed(const std::string& must) const {
    fail_compile("so_syntax", here() + ": must be " + must);
  }
  bool is(std::string_view name) const { return *keyword_ == name; }

  schema_index schema(const json_value& v, std::string path) {
    return document_.intern(v, std::move(path), document_.entries_[index_].resource);
  }
  schema_index schema() { return schema(*value_, here()); }
  std::vector<schema_index> schema_list() {
    if (!value_->is(kind::array))
      malformed("a list of schemas");
    std::vector<schema_index> out;
    for (std::size_t i = 0; i < value_->items.size(); ++i)
      out.push_back(schema(value_->items[i], here() + "/" + std::to_string(i)));
    return out;
  }
  std::vector<schema_index> one_or_more() {
    if (value_->is(kind::array) && value_->items.empty())
      malformed("a list of at least one schema");
    return schema_list();
  }
  std::vector<schema_node::keyed> schema_map() {
    if (!value_->is(kind::object))
      malformed("an object of schemas");
    std::vector<schema_node::keyed> out;
    for (const auto& [name, sub] : value_->members) {
      document_.budget_.memory(4 * sizeof(schema_node::keyed) + name.size());
      out.push_back({name, schema(sub, here() + pointer_part(name))});
    }
    return out;
  }
  std::uint64_t count() const {
    if (!value_->is(kind::number) || !value_->number.integral() || value_->number.negative)
      malformed("an integer of at least 0");
    return static_cast<std::uint64_t>(value_->number.as_integer().value_or(INT64_MAX));
  }
  const exact_decimal& number() const {
    if (!value_->is(kind::number))
      malformed("a number");
    return value_->number;
  }
  const std::string& text() const {
    if (!value_->is(kind::string))
      malformed("a string");
    return value_->text;
  }
  std::vector<std::string> text_list(const json_value& list) const {
    std::vector<std::string> out;
    std::unordered_set<std::string_view> seen;
    if (!list.is(kind::array))
      malformed("a list of strings");
    for (const json_value& v : list.items) {
      if (!v.is(kind::string))
        malformed("a list of strings");
      document_.budget_.work();
      if (seen.insert(v.text).second)
        out.push_back(v.text);
    }
    return out;
  }
  bool truth() const {
    if (!value_->is(kind::boolean))
      malformed("true or false");
    return value_->truth;
  }

  json_types one_type(const json_value& name) const {
    constexpr std::array<std::pair<std::string_view, json_types>, 7> names{{{"null", type_null},
                                                                            {"boolean", type_boolean},
                                                                            {"integer", type_integer},
                                                                            {"number", type_number},
                                                                            {"string", type_string},
                                                                            {"array", type_array},
                                                                            {"object", type_object}}};
    for (const auto& [known_name, bits] : names)
      if (name.is(kind::string) && name.text == known_name)
        return bits;
    malformed("one or a list of null, boolean, integer, number, string, array, object");
  }

  bool assertion() {
    if (is("type")) {
      json_types bits = 0;
      if (value_->is(kind::array) && value_->items.empty())
        malformed("at least one type");
      if (value_->is(kind::array))
        for (const json_value& name : value_->items)
          bits |= one_type(name);
      else
        bits = one_type(*value_);
      node_.types = bits;
    } else if (is("const")) {
      node_.constant = value_;
    } else if (is("enum")) {
      if (!value_->is(kind::array))
        malformed("a list of values");
      node_.values = &value_->items;
      node_.value_set = json_value_set(value_->items);
      if (value_->items.empty()) {
        node_.always = false;
        if (document_.empty_enum_.empty())
          document_.empty_enum_ = here();
      }
    } else if (is("minimum")) {
      low_ = number();
    } else if (is("maximum")) {
      high_ = number();
    } else if (is("exclusiveMinimum")) {
      if (value_->is(kind::boolean)) // draft 4: about minimum
        low_exclusive_ = truth();
      else
        at_least(exclusive_bound());
    } else if (is("exclusiveMaximum")) {
      if (value_->is(kind::boolean))
        high_exclusive_ = truth();
      else
        at_most(exclusive_bound());
    } else if (is("multipleOf")) {
      if (number().negative || number().zero())
        malformed("a number above 0");
      node_.multiple_of = number();
    } else if (is("minLength")) {
      node_.min_length = count();
    } else if (is("maxLength")) {
      node_.max_length = count();
    } else if (is("pattern")) {
      node_.pattern = document_.pattern_language(text(), here());
    } else if (is("format")) {
      node_.format = find_format(text());
    } else {
      return false;
    }
    return true;
  }

  number_rules::bound exclusive_bound() {
    if (document_.draft_ == json_draft::d4) // has only the other form
      node_.doubts.push_back({type_number, here()});
    return {number(), true};
  }
  void at_least(const number_rules::bound& b) {
    number_rules rules{.low = node_.minimum};
    rules.at_least(b);
    node_.minimum = rules.low;
  }
  void at_most(const number_rules::bound& b) {
    number_rules rules{.high = node_.maximum};
    rules.at_most(b);
    node_.maximum = rules.high;
  }
  void bounds() {
    if (low_)
      at_least({*low_, low_exclusive_});
    if (high_)
      at_most({*high_, high_exclusive_});
  }

  bool of_arrays() {
    if (is("prefixItems") || (is("items") && value_->is(kind::array))) {
      if (node_.declares_items)
        document_.unsupported(here(), "a list of items and prefixItems exclude each other");
      node_.prefix_items = schema_list();
      node_.declares_items = node_.array_keywords = true;
      list_of_items_ |= is("items");
    } else if (is("items")) {
      node_.items = schema();
      node_.array_keywords = true;
    } else if (is("additionalItems")) {
      additional_items_ = schema();
    } else if (is("contains")) {
      node_.contains = schema();
    } else if (is("minContains")) {
      node_.min_contains = count();
    } else if (is("maxContains")) {
      node_.max_contains = count();
    } else if (is("minItems")) {
      node_.min_items = count();
    } else if (is("maxItems")) {
      node_.max_items = count();
    } else if (is("uniqueItems")) {
      node_.unique_items = truth();
    } else if (is("unevaluatedItems")) {
      node_.unevaluated_items = schema();
    } else {
      return false;
    }
    return true;
  }

  // additionalItems counts next to a list of items only.
  void array_items() {
    if (list_of_items_ && additional_items_ && !node_.items)
      node_.items = additional_items_;
  }

  void mark(schema_node::step s) {
    if (std::find(node_.steps.begin(), node_.steps.end(), s) == node_.steps.end())
      node_.steps.push_back(s);
  }

  bool of_objects() {
    if (is("properties")) {
      node_.properties = schema_map();
      for (const schema_node::keyed& p : node_.properties)
        node_.declared.emplace(p.key, p.schema);
      node_.object_keywords = true;
      mark(schema_node::step::members);
    } else if (is("patternProperties")) {
      for (const schema_node::keyed& p : schema_map())
        if (const char_dfa* keys = document_.pattern_language(p.key, here() + pointer_part(p.key)))
          node_.patterns.push_back({keys, p.schema});
      node_.object_keywords = true;
      mark(schema_node::step::members);
    } else if (is("additionalProperties")) {
      node_.additional = schema();
      node_.object_keywords = true;
    } else if (is("unevaluatedProperties")) {
      node_.unevaluated = schema();
    } else if (is("propertyNames")) {
      node_.property_names = schema();
    } else if (is("required")) {
      node_.required = text_list(*value_);
      node_.object_keywords = true;
    } else if (is("minProperties")) {
      node_.min_properties = count();
    } else if (is("maxProperties")) {
      node_.max_properties = count();
    } else if (is("dependentRequired") || is("dependentSchemas") || is("dependencies")) {
      dependent();
    } else {
      return false;
    }
    return true;
  }

  void dependent() {
    if (!value_->is(kind::object))
      malformed("an object");
    for (const auto& [key, needs] : value_->members) {
      const bool keys = is("dependentRequired") || (is("dependencies") && needs.is(kind::array));
      if (keys)
        node_.dependent_required.push_back({key, text_list(needs)});
      else
        node_.dependent_schemas.push_back({key, schema(needs, here() + pointer_part(key))});
    }
    if (is("dependencies") && document_.draft_ >= json_draft::d2019)
      node_.doubts.push_back({type_object, here()});
    mark(schema_node::step::dependent);
  }

  bool at_same_place() {
    using step = schema_node::step;
    if (is("$ref")) {
      node_.references.push_back(document_.resolve(text(), document_.entries_[index_].resource, here()));
      mark(step::reference);
    } else if (is("$dynamicRef") || is("$recursiveRef")) {
      dynamic_reference();
    } else if (is("$schema")) {
      document_.check_draft(*value_, here()); // again: this schema may stand where none is expected
    } else if (is("allOf")) {
      node_.all_of = schema_list();
      mark(step::all_of);
    } else if (is("anyOf")) {
      node_.any_of = one_or_more();
      mark(step::any_of);
    } else if (is("oneOf")) {
      node_.one_of = one_or_more();
      mark(step::one_of);
    } else if (is("not")) {
      node_.negation = schema();
      mark(step::negation);
    } else if (is("if")) {
      node_.condition = schema();
      mark(step::condition);
    } else if (is("then")) {
      node_.then = schema();
    } else if (is("else")) {
      node_.otherwise = schema();
    } else {
      return false; // annotations and unknown keywords have no effect
    }
    return true;
  }

  // Where a name can mean one schema only, a dynamic reference is a plain one.
  void dynamic_reference() {
    const std::string name = is("$dynamicRef") && text().starts_with("#") ? text().substr(1) : text();
    const auto& anchors = document_.resources_[0].dynamic_anchors;
    const auto found = anchors.find(name);
    const bool single =
        document_.resources_.size() == 1 && (is("$recursiveRef") ? name == "#" : text().starts_with("#"));
    if (!single || (found != anchors.end() && found->second > 1)) {
      document_.unsupported(here(), "it depends on the path by which the schema was reached");
      return;
    }
    node_.references.push_back(document_.resolve(text(), 0, here()));
    mark(schema_node::step::reference);
  }

  schema_document& document_;
  schema_index index_;
  const json_value& source_;
  schema_node& node_;
  const std::string* keyword_ = nullptr;
  const json_value* value_ = nullptr;
  std::optional<exact_decimal> low_, high_;
  bool low_exclusive_ = false, high_exclusive_ = false;
  std::optional<schema_index> additional_items_;
  bool list_of_items_ = false;
};

schema_node& schema_document::parsed(schema_index index) {
  entry& e = entries_[index];
  if (!e.parsed) {
    reader(*this, index).read();
    e.parsed = true;
  }
  return e.node;
}

void schema_document::check_cycles(schema_index index, int depth) {
  if (entries_[index].cycles == entry::check::done)
    return;
  const schema_node& n = parsed(index);
  if (entries_[index].cycles == entry::check::open)
    fail_compile("so_unsupported", n.path + ": the schema refers to itself without looking at a part of the value");
  if (depth > max_depth_at_one_place)
    fail_compile("so_too_complex", n.path + ": more than " + std::to_string(max_depth_at_one_place) +
                                       " schemas refer to each other for one place of the value");
  entries_[index].cycles = entry::check::open;
  n.for_each_at_same_place([&](schema_index sub) { check_cycles(sub, depth + 1); });
  if (n.negation)
    check_cycles(*n.negation, depth + 1);
  entries_[index].cycles = entry::check::done;
}

const schema_node& schema_document::node(schema_index index) {
  if (entries_[index].cycles != entry::check::done)
    check_cycles(index, 0);
  return entries_[index].node;
}

} // namespace troupe
