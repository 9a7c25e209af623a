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
int Refuse(const VerifyArgs& args, const Status& status) {
  if (args.common.json) {
    const Json json = {{"file", args.file},
                       {"ok", false},
                       {"problems", Json::array({{{"message", std::string(Message(status))}}})}};
    (void)Print(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  const int exit = Fail(Annotate(status, args.file));
  return status.code() == StatusCode::kDataLoss ? 1 : exit;
}

// What differs from the sources, which are read again.
StatusOr<Comparison> CompareAgainst(const VerifyArgs& args) {
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<TensorSource> file, OpenUngrouped({args.file}, {}));
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<TensorSource> source,
                      OpenUngrouped(args.against, args.input));
  return CompareSources(*file, *source, args.common, "compare");
}

}  // namespace

int RunVerify(const VerifyArgs& args) {
  auto reader = Reader::Open(args.file);
  if (!reader.ok()) return Refuse(args, reader.status());
  ProgressBar bar(args.common, "verify");
  VerifyOptions options;
  options.threads = args.common.threads;
  options.memory_bytes = args.common.memory;
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    bar.Update(done, total, 0, 0);
  };
  auto report = Verify(**reader, options);
  bar.End();
  if (!report.ok()) return Refuse(args, report.status());
  Comparison compared;
  if (!args.against.empty() && report->problems.empty()) {
    auto comparison = CompareAgainst(args);
    if (!comparison.ok()) return Fail(comparison.status());
    compared = *std::move(comparison);
  }
  const bool good = report->problems.empty() && compared.differences.empty();
  if (args.common.json) {
    Json problems = Json::array();
    for (const VerifyProblem& problem : report->problems) {
      Json row = Json::object();
      if (!problem.object.empty()) row["object"] = problem.object;
      if (!problem.component.empty()) row["component"] = problem.component;
      row["message"] = problem.message;
      problems.push_back(std::move(row));
    }
    Json json = {{"file", args.file},
                 {"ok", good},
                 {"objects", report->objects},
                 {"components", report->components},
                 {"digests", report->digests},
                 {"unverified", report->unverified},
                 {"stored_bytes", report->stored_bytes},
                 {"decoded_bytes", report->decoded_bytes},
                 {"problems", std::move(problems)}};
    if (!args.against.empty()) {
      Json differences = Json::array();
      for (const Difference& each : compared.differences) differences.push_back(ToJson(each));
      json["against"] = args.against;
      json["compared"] = compared.tensors;
      json["differences"] = std::move(differences);
    }
    if (auto status = Print(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
        !status.ok()) {
      return Fail(status);
    }
  }
  for (const VerifyProblem& problem : report->problems) {
    std::fprintf(stderr, "ztstream: %s: %s\n", args.file.c_str(), ProblemText(problem).c_str());
  }
  for (const Difference& each : compared.differences) {
    std::fprintf(stderr, "ztstream: %s: %s: %s\n", args.file.c_str(),
                 TensorContext(each.tensor).c_str(), Text(each, "the file", "the source").c_str());
  }
  if (!args.common.quiet) {
    for (const std::string& each : report->unverified) {
      Warn(args.file + ": " + each +
           " is no digest algorithm known here; those bytes are unverified");
    }
  }
  if (good && !args.common.json) {
    const double seconds = bar.seconds();
    char text[64];
    std::snprintf(text, sizeof text, "%.2f s", seconds);
    const Status status = Print(
        args.file + ": good: " + std::to_string(report->objects) + " objects, " +
        std::to_string(report->components) + " components, " + std::to_string(report->digests) +
        " digests match, " + HumanBytes(report->stored_bytes) + " in " + text +
        (args.against.empty()
             ? ""
             : "; " + std::to_string(compared.tensors) + " tensors equal the source") +
        "\n");
    if (!status.ok()) return Fail(status);
  }
  return good ? 0 : 1;
}

}  // namespace zt::cli
