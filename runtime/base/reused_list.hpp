// A list that is filled and emptied again and again: emptied, it keeps its elements and the memory that they hold.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

namespace troupe {

// T::reset() makes an element as good as new, without giving its memory back.
template <class T> class reused_list {
public:
  // The next element, reset; where it is until the next call.
  T& add() {
    if (size_ == elements_.size()) {
      ++size_;
      return elements_.emplace_back();
    }
    T& next = elements_[size_++];
    next.reset();
    return next;
  }
  void push_back(T&& element) { add() = std::move(element); }
  void pop_back() { --size_; }
  void clear() { size_ = 0; }

  T* begin() { return elements_.data(); }
  T* end() { return elements_.data() + size_; }
  const T* begin() const { return elements_.data(); }
  const T* end() const { return elements_.data() + size_; }
  T& operator[](std::size_t i) { return elements_[i]; }
  const T& operator[](std::size_t i) const { return elements_[i]; }
  T& front() { return elements_[0]; }
  T& back() { return elements_[size_ - 1]; }
  const T& front() const { return elements_[0]; }
  const T& back() const { return elements_[size_ - 1]; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

private:
  std::vector<T> elements_;
  std::size_t size_ = 0;
};

} // namespace troupe
