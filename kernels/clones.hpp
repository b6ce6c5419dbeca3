// One version of a function for each instruction set named, chosen at start: GCC's target_clones. Everywhere else there
// is one version: clang, and sanitizers, which do not support the resolver that clones need.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) &&                \
    !defined(__SANITIZE_ADDRESS__)
#define TROUPE_CLONES(...) __attribute__((target_clones(__VA_ARGS__)))
#else
#define TROUPE_CLONES(...)
#endif
