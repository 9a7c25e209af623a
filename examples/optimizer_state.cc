// A training loop that streams optimizer state whose size nobody knows until training ends, and
// the file's sha256.
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
  unsigned steps = 0;

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
  std::string digest;
  ZT_ASSIGN_OR_RETURN(auto file, zt::CreateFileSink(path, {.overwrite = true}));
  auto sink = zt::HashingSink(std::move(file), zt::DigestKind::kSha256, digest);
  ZT_ASSIGN_OR_RETURN(auto writer, zt::Writer::Create(std::move(sink)));

  // Every step appends one row; how many there will be, only the loss decides.
  const zt::Value::Array columns = {"weight", "mean", "variance"};
  zt::Object history = {.name = "adam.history", .shape = {0, 3}, .components = {{"data", {kF32}}}};
  ZT_ASSIGN_OR_RETURN(auto object, writer->Begin(history, {{zt::Compression::kIfGain}}));
  Adam adam;
  for (bool more = true; more;) {
    more = adam.Step();
    const std::array<float, 3> row = {adam.weight, adam.mean, adam.variance};
    ZT_RETURN_IF_ERROR(object->Append(row));
  }
  ZT_RETURN_IF_ERROR(object->SetLeadingDimension(adam.steps));
  ZT_RETURN_IF_ERROR(object->SetAttribute("columns", columns));
  ZT_RETURN_IF_ERROR(object->Finish());

  writer->SetAttribute("steps", adam.steps);
  ZT_RETURN_IF_ERROR(writer->Add("adam.weight", {1}, std::vector<float>{adam.weight}));
  ZT_RETURN_IF_ERROR(writer->Finish());
  std::cout << digest << '\n';
  return zt::OkStatus();
}

int main(int argc, char** argv) {
  if (argc != 2) return std::cerr << "usage: optimizer_state FILE.zt\n", 2;
  const zt::Status status = Train(argv[1]);
  if (!status.ok()) std::cerr << zt::Message(status) << '\n';
  return zt::ExitStatus(status);
}
