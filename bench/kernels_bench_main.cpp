// troupe_bench_kernels [device [threads [filter [instruction set]]]]
#include "bench/kernels_bench.hpp"
#include "kernels/cpu/instruction_set.hpp"
#include <algorithm>
#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  if (argc > 4)
    troupe::cpu::use_instruction_set(argv[4]);
  const std::string device = argc > 1 ? argv[1] : "cpu";
  const int threads = argc > 2 ? std::max(std::atoi(argv[2]), 1) : 1;
  try {
    troupe::bench_kernels(device, threads, argc > 3 ? argv[3] : "",
                          [](const std::string& line) { std::printf("%s\n", line.c_str()); });
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
