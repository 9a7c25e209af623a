// Lists a .zt file of any version, sums the f32 tensors and verifies every byte; or
// prints one f32 tensor, or a range of it.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ztstream/status_macros.h"

import zt;

// The decoded values of a dense f32 tensor, read in pieces: memory does not grow with the tensor.
zt::StatusOr<double> Sum(const zt::Reader& reader, zt::ComponentId id) {
  ZT_ASSIGN_OR_RETURN(const std::uint64_t bytes, reader.DecodedBytes(id));
  std::vector<float> piece(1 << 16);
  double sum = 0;
  for (std::uint64_t at = 0; at < bytes; at += piece.size() * sizeof(float)) {
    piece.resize(std::min<std::uint64_t>(piece.size(), (bytes - at) / sizeof(float)));
    ZT_RETURN_IF_ERROR(reader.Read(id, at, std::as_writable_bytes(std::span(piece))));
    for (float value : piece) sum += value;
  }
  return sum;
}

zt::Status List(const std::string& path) {
  ZT_ASSIGN_OR_RETURN(const auto reader, zt::Reader::Open(path));
  const std::vector<zt::StoredObject>& objects = reader->manifest().objects;
  for (std::uint32_t i = 0; i < objects.size(); ++i) {
    const zt::StoredObject& object = objects[i];
    std::printf("%s %s %s", object.name.c_str(), object.format.c_str(),
                zt::ToString(object.shape).c_str());
    if (object.format == "dense" && zt::Name(object.components[0].element) == "f32") {
      ZT_ASSIGN_OR_RETURN(const double sum, Sum(*reader, {.object = i, .component = 0}));
      std::printf(" sum %g", sum);
    }
    std::printf("\n");
  }
  ZT_ASSIGN_OR_RETURN(const auto report, zt::Verify(*reader));
  for (const zt::VerifyProblem& problem : report.problems) {
    std::printf("%s: %s\n", problem.object.c_str(), problem.message.c_str());
  }
  if (!report.problems.empty()) return zt::InvalidData(path + ": the file is damaged");
  return zt::OkStatus();
}

// A tensor by its name, all of it: `Map` is the same without a copy, for what is not compressed.
zt::Status Show(const std::string& path, const std::string& name) {
  ZT_ASSIGN_OR_RETURN(const auto reader, zt::Reader::Open(path));
  ZT_ASSIGN_OR_RETURN(const std::vector<float> values, reader->Read<float>(name));
  for (const float value : values) std::printf("%g\n", value);
  return zt::OkStatus();
}

// The values from `first` on, such as a row: only the frames with these values are decoded.
zt::Status ShowRange(const std::string& path, const std::string& name, std::uint64_t first,
                     std::size_t count) {
  ZT_ASSIGN_OR_RETURN(const auto reader, zt::Reader::Open(path));
  std::vector<float> values(count);
  ZT_RETURN_IF_ERROR(reader->ReadRange(name, first, std::span(values)));
  for (const float value : values) std::printf("%g\n", value);
  return zt::OkStatus();
}

int main(int argc, char** argv) {
  if (argc < 2 || argc == 4 || argc > 5)
    return std::cerr << "usage: read_checkpoint FILE.zt [TENSOR [FIRST COUNT]]\n", 2;
  const zt::Status status =
      argc == 2   ? List(argv[1])
      : argc == 3 ? Show(argv[1], argv[2])
                  : ShowRange(argv[1], argv[2], std::stoul(argv[3]), std::stoul(argv[4]));
  if (!status.ok()) std::cerr << zt::Message(status) << '\n';
  return zt::ExitStatus(status);
}
