// Lists a .zt file of any version, sums the f32 tensors and verifies every byte.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

import zt;

// The decoded values of a dense f32 tensor, read in pieces: memory does not grow with the tensor.
zt::StatusOr<double> Sum(const zt::Reader& reader, zt::ComponentId id) {
  auto bytes = reader.DecodedBytes(id);
  if (!bytes.ok()) return bytes.status();
  std::vector<float> piece(1 << 16);
  double sum = 0;
  for (std::uint64_t at = 0; at < *bytes; at += piece.size() * sizeof(float)) {
    piece.resize(std::min<std::uint64_t>(piece.size(), (*bytes - at) / sizeof(float)));
    zt::Status status = reader.Read(id, at, std::as_writable_bytes(std::span(piece)));
    if (!status.ok()) return status;
    for (float value : piece) sum += value;
  }
  return sum;
}

zt::Status List(const std::string& path) {
  auto reader = zt::Reader::Open(path);
  if (!reader.ok()) return reader.status();
  const std::vector<zt::StoredObject>& objects = (*reader)->manifest().objects;
  for (std::uint32_t i = 0; i < objects.size(); ++i) {
    const zt::StoredObject& object = objects[i];
    std::printf("%s %s %s", object.name.c_str(), object.format.c_str(),
                zt::ToString(object.shape).c_str());
    if (object.format == "dense" && zt::Name(object.components[0].element) == "f32") {
      auto sum = Sum(**reader, {.object = i, .component = 0});
      if (!sum.ok()) return zt::AnnotateTensor(sum.status(), object.name);
      std::printf(" sum %g", *sum);
    }
    std::printf("\n");
  }
  auto report = zt::Verify(**reader, {.threads = 0});
  if (!report.ok()) return report.status();
  for (const zt::VerifyProblem& problem : report->problems) {
    std::printf("%s: %s\n", problem.object.c_str(), problem.message.c_str());
  }
  return report->problems.empty() ? zt::OkStatus() : zt::InvalidData("the file is damaged");
}

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: read_checkpoint FILE.zt\n"), 2;
  const zt::Status status = zt::Annotate(List(argv[1]), argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(zt::Message(status)).c_str());
  return zt::ExitStatus(status);
}
