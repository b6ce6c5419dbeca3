// What this build looks for. Sanitizers look at memory and at threads, not at bits, and make everything five to forty
// times slower: cases that repeat one path over many inputs take fewer of them there. The release build takes all.
#pragma once

namespace troupe::test {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool address_sanitizer = true;
#else
constexpr bool address_sanitizer = false;
#endif
#if defined(__SANITIZE_THREAD__)
constexpr bool thread_sanitizer = true;
#else
constexpr bool thread_sanitizer = false;
#endif
constexpr bool any_sanitizer = address_sanitizer || thread_sanitizer;

// How many of something a build takes.
template <class T> constexpr T by_build(T release, T address, T thread) {
  return thread_sanitizer ? thread : address_sanitizer ? address : release;
}

} // namespace troupe::test
