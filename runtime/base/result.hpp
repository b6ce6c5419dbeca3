// result<T>: a value or an expected failure. Expected failures (bad request, no block free, damaged file) travel as
// values; exceptions are for start-up (config_error) and never cross an actor.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace troupe {

// code: a stable short name ("invalid_params", "prompt_too_long"); message: what, where, why and what to do, for a
// person.
struct error {
  std::string code;
  std::string message;
};

template <class T> class [[nodiscard]] result {
public:
  result(T value) : data_(std::in_place_index<0>, std::move(value)) {}
  result(error e) : data_(std::in_place_index<1>, std::move(e)) {}

  explicit operator bool() const { return data_.index() == 0; }
  T& value() & { return std::get<0>(data_); }
  const T& value() const& { return std::get<0>(data_); }
  T&& value() && { return std::get<0>(std::move(data_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const error& failure() const { return std::get<1>(data_); }

private:
  std::variant<T, error> data_;
};

struct nothing {};
using status = result<nothing>; // success without a value

// Start-up and configuration errors: caught once, in main, which prints them and exits with 2.
// Text form: "<file>: <key> = <value>: <why>; <remedy>", empty parts left out.
struct config_error : std::runtime_error {
  config_error(std::string file_, std::string key_, std::string value_, std::string why, std::string remedy)
      : std::runtime_error(text(file_, key_, value_, why, remedy)), file(std::move(file_)), key(std::move(key_)),
        value(std::move(value_)) {}
  std::string file, key, value;

private:
  static std::string text(const std::string& file, const std::string& key, const std::string& value,
                          const std::string& why, const std::string& remedy) {
    std::string s;
    if (!file.empty())
      s += file + ": ";
    if (!key.empty())
      s += key + (value.empty() ? "" : " = " + value) + ": ";
    s += why;
    if (!remedy.empty())
      s += "; " + remedy;
    return s;
  }
};

} // namespace troupe
