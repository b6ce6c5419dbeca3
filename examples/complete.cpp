// The public API in one page: example_complete MODEL_FOLDER [PROMPT]
#include "actors/llm.hpp"
#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s MODEL_FOLDER [PROMPT]\n", argv[0]);
    return 2;
  }
  try {
    troupe::engine_options options;
    options.model = argv[1];
    troupe::LLM llm(options);

    troupe::generation_request request;
    request.prompt = argc > 2 ? argv[2] : "def main():";
    troupe::sampling_params params;
    params.temperature = 0;
    params.max_tokens = 32;
    for (const troupe::generation_result& r : llm.generate({request}, params))
      std::printf("%s%s\n", request.prompt->c_str(), r.failure ? r.failure->message.c_str() : r.text.c_str());
    return 0;
  } catch (const std::exception& e) { // a model or an option that cannot be used
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
