// zt.cli — diff: two inputs of any format, by content.
module;

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/status_macros.h"

module zt.cli;

import :compare;
import :support;
import zt;

namespace zt::cli {

using namespace internal;

namespace {

StatusOr<Comparison> Diff(const DiffArgs& args) {
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<TensorSource> first,
                      OpenUngrouped({args.first}, args.input));
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<TensorSource> second,
                      OpenUngrouped({args.second}, args.input));
  return CompareSources(*first, *second, args.common, "diff");
}

}  // namespace

int RunDiff(const DiffArgs& args) {
  const auto found = Diff(args);
  if (!found.ok()) return Fail(found.status());
  const bool equal = found->differences.empty();
  std::string out;
  if (args.common.json) {
    Json differences = Json::array();
    for (const Difference& each : found->differences) differences.push_back(ToJson(each));
    const Json json = {{"schema", "ztstream/1"}, {"cmd", "diff"},
                       {"first", args.first},    {"second", args.second},
                       {"equal", equal},         {"tensors", found->tensors},
                       {"bytes", found->bytes},  {"differences", std::move(differences)}};
    out = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  } else {
    for (const Difference& each : found->differences) {
      out += TensorContext(each.tensor) + ": " + Text(each, args.first, args.second) + "\n";
    }
    if (equal && !args.common.quiet) {
      out = "equal: " + std::to_string(found->tensors) + " tensors, " + HumanBytes(found->bytes) +
            "\n";
    }
  }
  if (auto status = Print(out); !status.ok()) return Fail(status);
  return equal ? 0 : 1;
}

}  // namespace zt::cli
