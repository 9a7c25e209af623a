// zt.cli — verify: every byte of a .zt file against its manifest.
module;

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/status_macros.h"

module zt.cli;

import :compare;
import :output;
import :progress;
import :support;
import zt;

namespace zt::cli {

using namespace internal;

namespace {

std::string ProblemText(const VerifyProblem& problem) {
  std::string out;
  if (!problem.object.empty()) out += TensorContext(problem.object) + ": ";
  if (!problem.component.empty() && problem.component != "data")
    out += "component " + Quote(problem.component) + ": ";
  return out + problem.message;
}

// What the manifest already gives away: damage, found before any byte of data is read.
int Refuse(const VerifyArgs& args, const Status& cause) {
  const Status status = Annotate(cause, args.file);
  if (cause.code() != StatusCode::kDataLoss) return Fail(args.common, status);
  if (args.common.json) {
    Json json = Envelope(args.common, false);
    json["file"] = args.file;
    json["problems"] = Json::array({{{"message", std::string(Message(cause))}}});
    (void)Print(Dump(json));
  }
  Note(Message(status));
  return 1;
}

// What differs from the sources, which are read again.
StatusOr<Comparison> CompareAgainst(const VerifyArgs& args) {
  InputOptions own;
  own.memory = args.input.memory;
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<TensorSource> file, OpenUngrouped({args.file}, own));
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<TensorSource> source,
                      OpenUngrouped(args.against, args.input));
  return CompareSources(*file, *source, args.common, "compare");
}

Json ReportJson(const VerifyArgs& args, const VerifyReport& report, const Comparison& compared,
                bool good) {
  Json problems = Json::array();
  for (const VerifyProblem& problem : report.problems) {
    Json row = Json::object();
    if (!problem.object.empty()) row["object"] = problem.object;
    if (!problem.component.empty()) row["component"] = problem.component;
    row["message"] = problem.message;
    problems.push_back(std::move(row));
  }
  Json json = Envelope(args.common, good);
  json["file"] = args.file;
  json["objects"] = report.objects;
  json["components"] = report.components;
  json["digests"] = report.digests;
  json["unverified"] = report.unverified;
  json["stored_bytes"] = report.stored_bytes;
  json["decoded_bytes"] = report.decoded_bytes;
  json["problems"] = std::move(problems);
  if (args.against.empty()) return json;
  Json differences = Json::array();
  for (const Difference& each : compared.differences) differences.push_back(ToJson(each));
  json["against"] = args.against;
  json["compared"] = compared.tensors;
  json["differences"] = std::move(differences);
  return json;
}

void PrintProblems(const VerifyArgs& args, const VerifyReport& report, const Comparison& compared) {
  for (const VerifyProblem& problem : report.problems)
    Note(args.file + ": " + ProblemText(problem));
  for (const Difference& each : compared.differences) {
    Note(args.file + ": " + TensorContext(each.tensor) + ": " +
         Text(each, "the file", "the source"));
  }
  if (args.common.quiet) return;
  for (const std::string& each : report.unverified) {
    Warn(args.file + ": " + each +
         " is not a digest algorithm known here; those bytes are unverified");
  }
}

std::string GoodText(const VerifyArgs& args, const VerifyReport& report, const Comparison& compared,
                     double seconds) {
  std::string out = args.file + ": good: " + Counted(report.objects, "object") + ", " +
                    Counted(report.components, "component") + ", " +
                    Counted(report.digests, "digest") +
                    (report.digests == 1 ? " matches" : " match") + ", " +
                    HumanBytes(report.stored_bytes) + " in " + HumanSeconds(seconds);
  if (!args.against.empty()) {
    out += "; " + Counted(compared.tensors, "tensor") +
           (compared.tensors == 1 ? " equals the source" : " equal the source");
  }
  return Printable(out) + "\n";
}

}  // namespace

int RunVerify(const VerifyArgs& args) {
  if (args.file == "-")
    return Fail(args.common, Annotate(NotFromPipe("a .zt file"), "standard input"));
  auto reader = Reader::Open(args.file);
  if (!reader.ok()) return Refuse(args, reader.status());
  ProgressBar bar(args.common, "verify");
  VerifyOptions options;
  options.threads = args.common.threads;
  options.memory_bytes = args.common.memory;
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    bar.Update(done, total, 0, 0);
  };
  const auto report = Verify(**reader, options);
  bar.End();
  if (!report.ok()) return Refuse(args, report.status());
  Comparison compared;
  if (!args.against.empty() && report->problems.empty()) {
    auto comparison = CompareAgainst(args);
    if (!comparison.ok()) return Fail(args.common, comparison.status());
    compared = *std::move(comparison);
  }
  const bool good = report->problems.empty() && compared.differences.empty();
  Status printed = OkStatus();
  if (args.common.json) {
    printed = PrintJson(args.common, ReportJson(args, *report, compared, good));
  } else if (good && !args.common.quiet) {
    printed = Print(GoodText(args, *report, compared, bar.seconds()));
  }
  PrintProblems(args, *report, compared);
  if (!printed.ok()) return Fail(args.common, printed);
  return good ? 0 : 1;
}

}  // namespace zt::cli
