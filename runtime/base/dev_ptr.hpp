// dev_ptr<T>: a typed address in some device's memory. Host code may pass it on and do arithmetic with it, never read
// through it: only kernels of that device call raw().
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace troupe {

template <class T> class dev_ptr {
public:
  constexpr dev_ptr() = default;
  constexpr explicit dev_ptr(T* raw) : raw_(raw) {}
  template <class U>
  requires std::is_convertible_v<U*, T*>
  constexpr dev_ptr(dev_ptr<U> other) : raw_(other.raw()) {}

  constexpr T* raw() const { return raw_; }
  constexpr explicit operator bool() const { return raw_ != nullptr; }
  constexpr dev_ptr operator+(std::int64_t n) const { return dev_ptr(raw_ + n); }
  template <class U> dev_ptr<U> as() const { return dev_ptr<U>(reinterpret_cast<U*>(raw_)); }

private:
  T* raw_ = nullptr;
};

} // namespace troupe
