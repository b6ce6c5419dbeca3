// Arrays of one step that travel to the device together, in one copy. The memory on both sides is kept and only grows.
#pragma once
#include "devices/device.hpp"
#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace troupe {

// Places of arrays in a piece of memory, one after the other.
class array_places {
public:
  // Offset of `count` values of `size` bytes.
  std::size_t add(std::size_t count, std::size_t size) {
    const std::size_t at = (end_ + alignment - 1) / alignment * alignment;
    end_ = at + count * size;
    return at;
  }
  std::size_t bytes() const { return end_; }
  void clear() { end_ = 0; }

  static constexpr std::size_t alignment = 64;

private:
  std::size_t end_ = 0;
};

// Device memory that grows when a step needs more than any before it; then the steps that are out are waited for.
class growing_memory {
public:
  growing_memory(device& dev, std::string what, std::size_t bytes) : dev_(dev), what_(std::move(what)) {
    memory_ = dev_.allocate(std::max(bytes, array_places::alignment), what_);
  }
  void fit(stream& s, std::size_t bytes) {
    if (bytes <= memory_.bytes())
      return;
    s.synchronise();
    memory_ = dev_.allocate(std::max(2 * memory_.bytes(), bytes), what_);
  }
  template <class T> dev_ptr<T> at(std::size_t offset = 0) const {
    return (memory_.as<std::byte>() + static_cast<std::int64_t>(offset)).template as<T>();
  }
  std::size_t bytes() const { return memory_.bytes(); }

private:
  device& dev_;
  std::string what_;
  buffer memory_;
};

class packed_arrays {
public:
  packed_arrays(device& dev, std::string what, std::size_t bytes) : there_(dev, std::move(what), bytes) {
    here_.reserve(bytes);
  }
  void clear() { places_.clear(); }
  // Offset of a copy of the values.
  template <class T> std::size_t append(std::span<const T> values) {
    const std::size_t at = places_.add(values.size(), sizeof(T));
    here_.resize(places_.bytes());
    if (!values.empty())
      std::memcpy(here_.data() + at, values.data(), values.size_bytes());
    return at;
  }
  template <class T> std::size_t append(const std::vector<T>& values) { return append(std::span<const T>(values)); }
  template <class T, std::size_t N> std::size_t append(const std::array<T, N>& values) {
    return append(std::span<const T>(values));
  }
  void send(stream& s) {
    there_.fit(s, places_.bytes());
    s.to_device(there_.at<std::byte>(), here_.data(), places_.bytes());
  }
  template <class T> dev_ptr<T> at(std::size_t offset) const { return there_.at<T>(offset); } // after send
  std::size_t bytes() const { return places_.bytes(); }
  std::size_t room() const { return there_.bytes(); }

private:
  array_places places_;
  std::vector<std::byte> here_;
  growing_memory there_;
};

} // namespace troupe
