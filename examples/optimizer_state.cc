// A training loop that streams optimizer state whose size nobody knows until training ends.
#include <array>
#include <cmath>
#include <cstddef>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ztstream/status_macros.h"

import zt;

constexpr zt::DType kF32 = zt::DType::kF32;

// Adam on one weight with the loss (w - 3)^2, until the loss is small.
struct Adam {
  float weight = 0, mean = 0, variance = 0;
  int steps = 0;

  bool Step() {
    const float gradient = 2 * (weight - 3);
    ++steps;
    mean = 0.9F * mean + 0.1F * gradient;
    variance = 0.999F * variance + 0.001F * gradient * gradient;
    const float unbiased = variance / (1 - std::pow(0.999F, static_cast<float>(steps)));
    weight -= 0.05F * mean / (1 - std::pow(0.9F, static_cast<float>(steps))) /
              (std::sqrt(unbiased) + 1e-8F);
    return std::abs(weight - 3) > 1e-3F && steps < 10'000;
  }
};

zt::Status Train(const std::string& path) {
  ZT_ASSIGN_OR_RETURN(auto sink, zt::CreateFileSink(path, {.overwrite = true}));
  ZT_ASSIGN_OR_RETURN(auto writer, zt::Writer::Create(std::move(sink), {.threads = 2}));

  // Every step appends one row; how many there will be, only the loss decides. A format of one's own says what
  // the two components are: `dense` would need a shape now.
  zt::Object history = {.name = "adam.history", .format = "example.growing/1"};
  history.attributes = {{"columns", zt::Value::Array{"weight", "mean", "variance"}}};
  history.components = {{"rows", {kF32}}, {"final", {kF32}}};
  const zt::Storage zstd = {.compression = zt::Compression::kIfGain};
  ZT_ASSIGN_OR_RETURN(auto object, writer->Begin(history, {zstd, {}}));
  Adam adam;
  for (bool more = true; more;) {
    more = adam.Step();
    const std::array<float, 3> row = {adam.weight, adam.mean, adam.variance};
    ZT_RETURN_IF_ERROR(object->Append(std::as_bytes(std::span(row))));
  }
  ZT_RETURN_IF_ERROR(object->NextComponent());
  ZT_RETURN_IF_ERROR(object->Append(std::as_bytes(std::span(&adam.weight, 1))));
  ZT_RETURN_IF_ERROR(object->Finish());

  // An attribute may be set last: the manifest is written at the end.
  writer->SetAttribute("steps", adam.steps);
  return writer->Finish();
}

int main(int argc, char** argv) {
  if (argc != 2) return std::cerr << "usage: optimizer_state FILE.zt\n", 2;
  const zt::Status status = Train(argv[1]);
  if (!status.ok()) std::cerr << zt::Message(status) << '\n';
  return zt::ExitStatus(status);
}
