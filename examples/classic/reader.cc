// Lists a .zt file, sums its f32 tensors and verifies every byte: C++17, any compiler.
#include <cstddef>
#include <cstdio>
#include <iostream>
#include <string>

#include "ztstream/ztstream.h"

int List(const std::string& path) {
  const ztstream::Reader reader(path);
  for (std::size_t i = 0; i < reader.size(); ++i) {
    const zts_object object = reader.Object(i);
    const zts_component component = reader.Component(i);
    std::printf("%s %s %s", object.name, object.format, component.dtype);
    for (std::size_t d = 0; d < object.rank; ++d) {
      std::printf("%s%llu", d == 0 ? " " : "x", static_cast<unsigned long long>(object.shape[d]));
    }
    if (component.dtype == std::string("f32") && object.components == 1) {
      double sum = 0;
      for (const float value : reader.Read<float>(object.name)) sum += value;
      std::printf(" sum %g", sum);
    }
    std::printf("\n");
  }
  const auto problems = reader.Verify();
  for (const std::string& problem : problems) std::cerr << problem << '\n';
  return problems.empty() ? 0 : 1;
}

int main(int argc, char** argv) {
  if (argc != 2) return std::cerr << "usage: reader FILE.zt\n", 2;
  try {
    return List(argv[1]);
  } catch (const ztstream::Error& error) {
    std::cerr << error.what() << '\n';
    return error.code();
  }
}
