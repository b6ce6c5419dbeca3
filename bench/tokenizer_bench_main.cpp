// troupe_bench_tokenizer TOKENIZER.json LINES.jsonl
#include "bench/tokenizer_bench.hpp"
#include <cstdio>
#include <exception>
#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s TOKENIZER.json LINES.jsonl\n", argv[0]);
    return 2;
  }
  try {
    return troupe::bench_tokenizer(argv[1], argv[2], std::cout);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
