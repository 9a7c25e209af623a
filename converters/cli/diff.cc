// zt.cli — diff: two inputs of any format, by content.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :compare;
import :output;
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
  if (!found.ok()) return Fail(args.common, found.status());
  const bool equal = found->differences.empty();
  Status printed = OkStatus();
  if (args.common.json) {
    Json differences = Json::array();
    for (const Difference& each : found->differences) differences.push_back(ToJson(each));
    Json json = Envelope(args.common, equal);
    json["first"] = args.first;
    json["second"] = args.second;
    json["equal"] = equal;
    json["tensors"] = found->tensors;
    json["bytes"] = found->bytes;
    json["differences"] = std::move(differences);
    printed = PrintJson(args.common, json);
  } else {
    std::string out;
    for (const Difference& each : found->differences) {
      out +=
          Printable(TensorContext(each.tensor) + ": " + Text(each, args.first, args.second)) + "\n";
    }
    if (equal && !args.common.quiet)
      out = "equal: " + Counted(found->tensors, "tensor") + ", " + HumanBytes(found->bytes) + "\n";
    printed = Print(out);
  }
  if (!printed.ok()) return Fail(args.common, printed);
  return equal ? 0 : 1;
}

}  // namespace zt::cli
