# Warnings of our own code, and the arithmetic rules of docs/numerics.md: no contraction, no fast-math anywhere.
add_library(troupe_flags INTERFACE)
target_compile_options(troupe_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion>
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off -fno-fast-math>)
