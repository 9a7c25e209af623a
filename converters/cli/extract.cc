// zt.cli — extract: tensors of any input as safetensors, npz, npy or GGUF, in one pass.
module;

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/status_macros.h"

module zt.cli;

import :folder;
import :support;
import zt;
import zt.convert.gguf;
import zt.convert.layout;
import zt.convert.npy;
import zt.convert.safetensors;

namespace zt::cli {

using namespace internal;

namespace {

enum class Target { kSafetensors, kNpz, kNpy, kGguf, kFolder };

struct TargetName {
  Target target;
  std::string_view name, suffix;
};
constexpr TargetName kTargets[] = {{Target::kSafetensors, "safetensors", ".safetensors"},
                                   {Target::kNpz, "npz", ".npz"},
                                   {Target::kNpy, "npy", ".npy"},
                                   {Target::kGguf, "gguf", ".gguf"}};
std::string_view NameOf(Target target) {
  for (const TargetName& each : kTargets) {
    if (each.target == target) return each.name;
  }
  return "folder";
}

StatusOr<Target> TargetOf(const ExtractArgs& args) {
  std::error_code error;
  const std::string& output = args.output;
  const bool folder =
      output != "-" && (output.ends_with('/') || std::filesystem::is_directory(output, error));
  if (folder) {
    if (args.to.empty() || args.to == "npy") return Target::kFolder;
    return InvalidArgument(output + " is a folder, which takes .npy files; name a file for " +
                           args.to);
  }
  for (const TargetName& each : kTargets) {
    if (args.to.empty() ? output.ends_with(each.suffix) : args.to == each.name) return each.target;
  }
  if (!args.to.empty()) {
    return InvalidArgument("--to takes safetensors, npz, npy or gguf, not " + Quote(args.to));
  }
  if (output == "-") return InvalidArgument("standard output has no suffix; say --to FORMAT");
  if (output.ends_with(".zt"))
    return InvalidArgument("extract does not write .zt files; see ztstream convert");
  return InvalidArgument(
      Quote(output) +
      " ends in none of .safetensors, .npz, .npy and .gguf; say --to FORMAT, or end "
      "a folder's name with /");
}

// Indices of the named objects, or of all, in the order of the input.
StatusOr<std::vector<std::uint32_t>> Select(const TensorSource& source, const ExtractArgs& args) {
  const auto& objects = source.objects();
  std::vector<std::uint32_t> selected;
  if (args.names.empty()) {
    for (std::uint32_t i = 0; i < objects.size(); ++i) selected.push_back(i);
    return selected;
  }
  std::unordered_map<std::string_view, std::uint32_t> by_name;
  for (std::uint32_t i = 0; i < objects.size(); ++i) by_name.emplace(objects[i].name, i);
  for (const std::string& name : args.names) {
    const auto found = by_name.find(name);
    if (found == by_name.end()) {
      return InvalidArgument(args.file + ": there is no tensor " + Quote(name) +
                             "; ztstream inspect lists them");
    }
    selected.push_back(found->second);
  }
  std::sort(selected.begin(), selected.end());
  selected.erase(std::unique(selected.begin(), selected.end()), selected.end());
  return selected;
}

std::string Listed(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 5); ++i) {
    out += (i == 0 ? "" : ", ") + Quote(names[i]);
  }
  return names.size() > 5 ? out + " and " + std::to_string(names.size() - 5) + " more" : out;
}

// Root attributes become __metadata__, which holds only text: what is not text becomes JSON.
StatusOr<FileLayout> LayOutSafetensors(const TensorSource& source,
                                       const std::vector<std::uint32_t>& selected) {
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<std::string> as_json;
  for (const auto& [key, value] : source.attributes()) {
    if (key == kEmptyMetadata && value == Value(Value::Map{})) continue;
    if (const std::string* text = value.AsString()) {
      metadata.emplace_back(key, *text);
    } else {
      metadata.emplace_back(key,
                            ToJson(value).dump(-1, ' ', false, Json::error_handler_t::replace));
      as_json.push_back(key);
    }
  }
  ZT_ASSIGN_OR_RETURN(
      FileLayout layout,
      PlanSafetensors(source, selected,
                      source.attributes().empty() ? std::nullopt
                                                  : std::optional<SafetensorsMetadata>(metadata)));
  if (!as_json.empty()) {
    layout.warnings.push_back("safetensors' metadata is text: " + Listed(as_json) + " become JSON");
  }
  return layout;
}

StatusOr<FileLayout> LayOutGguf(const TensorSource& source,
                                const std::vector<std::uint32_t>& selected) {
  ZT_ASSIGN_OR_RETURN(FileLayout layout, PlanGguf(source, selected));
  std::vector<std::string> lost;
  for (const auto& [key, value] : source.attributes()) {
    if (key != "gguf") lost.push_back(key);
  }
  if (!lost.empty())
    layout.warnings.push_back("GGUF does not keep root attributes: " + Listed(lost));
  return layout;
}

struct Output {
  std::string file;  // its name, of a folder's files
  FileLayout layout;
};

StatusOr<std::vector<Output>> LayOutFolder(const TensorSource& source,
                                           const std::vector<std::uint32_t>& selected) {
  std::vector<std::string_view> tensors;
  tensors.reserve(selected.size());
  for (const std::uint32_t index : selected) {
    tensors.push_back(source.objects()[index].name);
    if (tensors.back().empty()) {
      return Annotate(Unsupported("a file needs a name; write to .npz"), TensorContext(""));
    }
  }
  ZT_ASSIGN_OR_RETURN(const std::vector<std::string> names, FileNames(tensors));
  std::vector<Output> outputs;
  for (std::size_t i = 0; i < selected.size(); ++i) {
    const bool sparse = source.objects()[selected[i]].format.starts_with("sparse_");
    auto layout = sparse ? PlanNpz(source, std::vector{selected[i]}) : PlanNpy(source, selected[i]);
    if (!layout.ok()) return layout.status();
    layout->warnings.clear();
    outputs.push_back({names[i] + (sparse ? ".npz" : ".npy"), *std::move(layout)});
  }
  // Said once of all files, not of each.
  if (!outputs.empty()) outputs.front().layout.warnings = NpyLosses(source, selected);
  return outputs;
}

StatusOr<std::vector<Output>> LayOut(const TensorSource& source,
                                     const std::vector<std::uint32_t>& selected, Target target) {
  for (const std::uint32_t index : selected) {
    ZT_RETURN_IF_ERROR(AnnotateTensor(source.CheckReadable(index), source.objects()[index].name));
  }
  if (target == Target::kFolder) return LayOutFolder(source, selected);
  if (target == Target::kNpy && selected.size() != 1) {
    return InvalidArgument("an .npy file holds one tensor, there are " +
                           std::to_string(selected.size()) +
                           "; name one, or write to a folder or .npz");
  }
  auto layout = target == Target::kSafetensors ? LayOutSafetensors(source, selected)
                : target == Target::kGguf      ? LayOutGguf(source, selected)
                : target == Target::kNpz       ? PlanNpz(source, selected)
                                               : PlanNpy(source, selected[0]);
  if (!layout.ok()) return layout.status();
  std::vector<Output> outputs;
  outputs.push_back({"", *std::move(layout)});
  return outputs;
}

std::vector<std::string> Warnings(const TensorSource& source, const std::vector<Output>& outputs,
                                  Target target) {
  std::vector<std::string> warnings = source.warnings();
  for (const Output& output : outputs) {
    warnings.insert(warnings.end(), output.layout.warnings.begin(), output.layout.warnings.end());
  }
  const bool numpy = target != Target::kSafetensors && target != Target::kGguf;
  if (numpy && !source.attributes().empty()) {
    std::vector<std::string> lost;
    for (const auto& [key, value] : source.attributes()) lost.push_back(key);
    warnings.push_back("numpy's files do not keep root attributes: " + Listed(lost));
  }
  return warnings;
}

class Extraction {
 public:
  Extraction(const ExtractArgs& args, TensorSource& source, Target target,
             const std::vector<Output>& outputs)
      : args_(args),
        source_(source),
        target_(target),
        outputs_(outputs),
        bar_(args.common, "extract") {
    for (const Output& output : outputs_) {
      file_bytes_ += output.layout.bytes;
      for (const LayoutPiece& piece : output.layout.pieces) total_ += piece.bytes;
    }
  }

  Status Run() {
    const OnSignal on_signal([this] { cancelled_ = true; });
    if (target_ == Target::kFolder) return RunFolder();
    const FileLayout& layout = outputs_.front().layout;
    ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Sink> sink,
                        OpenSink(args_.output, {.overwrite = args_.force, .sync = !args_.no_sync}));
    ZT_RETURN_IF_ERROR(Write(layout, *sink));
    ZT_RETURN_IF_ERROR(source_.Finish());
    return Annotate(sink->Finish(layout.bytes), sink->name());
  }

  void EndBar() { bar_.End(); }
  double seconds() const { return bar_.seconds(); }
  std::uint64_t bytes() const { return total_; }
  std::uint64_t file_bytes() const { return file_bytes_; }

 private:
  static constexpr std::uint64_t kOneThread = std::uint64_t{8}
                                              << 20;  // a file that is not worth several

  Status Write(const FileLayout& layout, Sink& sink) {
    LayoutOptions options;
    options.threads = layout.bytes < kOneThread ? 1 : args_.common.threads;
    options.memory_bytes = args_.common.memory;
    options.cancelled = &cancelled_;
    options.progress = [this](std::uint64_t bytes) {
      bar_.Update(done_ + bytes, total_, files_, outputs_.size());
    };
    ZT_RETURN_IF_ERROR(WriteLayout(source_, layout, sink, options));
    for (const LayoutPiece& piece : layout.pieces) done_ += piece.bytes;
    ++files_;
    return OkStatus();
  }

  Status RunFolder() {
    std::vector<std::string> files;
    files.reserve(outputs_.size());
    for (const Output& output : outputs_) files.push_back(output.file);
    OutputFolder folder(args_.output, args_.force);
    ZT_RETURN_IF_ERROR(folder.Check(files));
    ZT_RETURN_IF_ERROR(folder.Create());
    for (const Output& output : outputs_) {
      ZT_ASSIGN_OR_RETURN(
          const std::unique_ptr<Sink> sink,
          OpenSink(folder.Staged(output.file), {.sync = false, .new_folder = true}));
      ZT_RETURN_IF_ERROR(Write(output.layout, *sink));
      ZT_RETURN_IF_ERROR(Annotate(sink->Finish(output.layout.bytes), sink->name()));
      if (cancelled_) return Cancelled("interrupted");
    }
    ZT_RETURN_IF_ERROR(source_.Finish());
    return folder.Publish(files, !args_.no_sync);
  }

  const ExtractArgs& args_;
  TensorSource& source_;
  const Target target_;
  const std::vector<Output>& outputs_;
  ProgressBar bar_;
  std::atomic<bool> cancelled_ = false;
  std::uint64_t total_ = 0, file_bytes_ = 0, done_ = 0, files_ = 0;
};

struct Job {
  const ExtractArgs& args;
  Target target;
  std::unique_ptr<TensorSource> source;
  std::vector<std::uint32_t> selected;  // objects
  std::vector<Output> outputs;
  std::vector<std::string> warnings;
};

std::string JsonLine(const Job& job, const Extraction& extraction) {
  Json json = {{"schema", "ztstream/1"},
               {"cmd", "extract"},
               {"ok", true},
               {"input", job.args.file},
               {"input_format", job.source->format()}};
  json["output"] = {{"path", job.args.output},
                    {"format", NameOf(job.target)},
                    {"bytes", extraction.file_bytes()}};
  if (job.target == Target::kFolder) {
    Json files = Json::array();
    for (std::size_t i = 0; i < job.selected.size(); ++i) {
      files.push_back(
          {{"tensor", job.source->objects()[job.selected[i]].name}, {"file", job.outputs[i].file}});
    }
    json["output"]["files"] = std::move(files);
  }
  json["tensors"] = job.selected.size();
  json["bytes"] = extraction.bytes();
  json["warnings"] = job.warnings;
  json["timing"] = {{"wall_s", extraction.seconds()}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status Report(const Job& job, const Extraction& extraction) {
  if (job.args.common.json) {
    const std::string line = JsonLine(job, extraction);
    if (job.args.output != "-") return Print(line);
    std::fputs(line.c_str(), stderr);
  } else if (!job.args.common.quiet) {
    const double seconds = extraction.seconds();
    char text[64];
    std::snprintf(text, sizeof text, "%.2f s", seconds);
    std::fprintf(
        stderr, "ztstream: %s: %zu tensors, %s out, %s, %s\n", job.args.output.c_str(),
        job.selected.size(), HumanBytes(extraction.file_bytes()).c_str(), text,
        HumanRate(static_cast<double>(extraction.bytes()) / std::max(seconds, 1e-6)).c_str());
  }
  return OkStatus();
}

Status Extract(const ExtractArgs& args) {
  ZT_ASSIGN_OR_RETURN(const Target target, TargetOf(args));
  if (target != Target::kFolder) ZT_RETURN_IF_ERROR(CheckOutput(args.output, args.force));
  Job job = {.args = args, .target = target};
  ZT_ASSIGN_OR_RETURN(job.source, OpenUngrouped({args.file}, args.input));
  ZT_ASSIGN_OR_RETURN(job.selected, Select(*job.source, args));
  auto outputs = LayOut(*job.source, job.selected, target);
  if (!outputs.ok()) {
    return outputs.status().code() == StatusCode::kInvalidArgument
               ? outputs.status()
               : Annotate(outputs.status(), args.file);
  }
  job.outputs = *std::move(outputs);
  job.warnings = Warnings(*job.source, job.outputs, target);
  if (!args.common.quiet) {
    for (const std::string& warning : job.warnings) Warn(warning);
  }
  Extraction extraction(args, *job.source, target, job.outputs);
  const Status status = extraction.Run();
  extraction.EndBar();
  ZT_RETURN_IF_ERROR(status);
  return Report(job, extraction);
}

}  // namespace

int RunExtract(const ExtractArgs& args) {
  const Status status = Extract(args);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace zt::cli
