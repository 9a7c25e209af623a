// Writes weights under two names that share their bytes, and a tensor that comes row by row:
// C++17, any compiler.
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "ztstream/ztstream.h"

void Export(const std::string& path) {
  ztstream::WriterOptions options;
  options.overwrite = 1;
  ztstream::Writer writer(path, options);
  writer.Set("framework", "classic");
  writer.Set("steps", 1000);

  const std::vector<float> embedding = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  writer.Add("model.embed_tokens.weight", {4, 3}, embedding);
  writer.Alias("lm_head.weight", "model.embed_tokens.weight");

  writer.Begin("positions", "i64", {5, 2});
  for (std::int64_t row = 0; row < 5; ++row) {
    const std::int64_t values[2] = {row, row * row};
    writer.Append(values, sizeof values);
  }
  writer.End();
  writer.Finish();
}

int main(int argc, char** argv) {
  if (argc != 2) return std::cerr << "usage: exporter OUTPUT.zt\n", 2;
  try {
    Export(argv[1]);
  } catch (const ztstream::Error& error) {
    std::cerr << error.what() << '\n';
    return error.code();
  }
}
