// Writes weights under two names that share their bytes, rows as they come, and a sparse matrix:
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

  std::int64_t row = 0;
  writer.Begin("positions", "i64", {0, 2}, R"({"columns": ["row", "square"]})");
  for (; row < 5; ++row) {
    const std::int64_t values[2] = {row, row * row};
    writer.Append(values, sizeof values);
  }
  writer.SetLeadingDimension(row);
  writer.End();

  const std::vector<float> values = {1, 2, 3};
  const std::vector<std::uint64_t> columns = {0, 2, 1}, rows = {0, 2, 3};
  writer.AddObject("graph", "sparse_csr", {2, 3},
                   {{"values", "f32", values.data(), values.size() * sizeof(float)},
                    {"indices", "u64", columns.data(), columns.size() * sizeof(std::uint64_t)},
                    {"indptr", "u64", rows.data(), rows.size() * sizeof(std::uint64_t)}});
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
