// zt.cli — extract: tensors of any input as safetensors, npz, npy or GGUF, in one pass.
module;

#include <fnmatch.h>

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :folder;
import :formats;
import :output;
import :progress;
import :support;
import zt;
import zt.convert.layout;
import zt.convert.npy;

namespace zt::cli {

using namespace internal;

namespace {

// What is written: a file of a format, or a folder of such files, one a tensor.
struct Target {
  const Format* format = nullptr;
  bool folder = false;
};

StatusOr<Target> TargetOf(const ExtractArgs& args) {
  const std::string& output = args.output;
  if (output != "-" && (output.ends_with('/') || (!IsUrl(output) && IsFolder(output)))) {
    if (IsUrl(output))
      return InvalidArgument(output + " is a folder; name one file to write there");
    if (args.to.empty() || args.to == "npy") return Target{FindFormat("npy"), true};
    return InvalidArgument(output + " is a folder, which takes .npy files; name a file for " +
                           args.to);
  }
  for (const Format& format : Formats()) {
    if (format.plan == nullptr) continue;
    if (args.to.empty() ? HasSuffix(format, output) : args.to == format.name)
      return Target{&format, false};
  }
  if (output == "-") return InvalidArgument("standard output has no suffix; say --to FORMAT");
  if (IsTorchName(output)) return WithFile(InvalidArgument(kNoTorch), output);
  if (output.ends_with(".zt"))
    return InvalidArgument("extract does not write .zt files; see ztstream convert");
  return InvalidArgument(Quote(output) + " does not end like a file of " +
                         Joined(OutputFormats(), "or") +
                         "; say --to FORMAT, or end a folder's name with /");
}

// Indices of the named objects, or of all, in the order of the input.
StatusOr<std::vector<std::uint32_t>> Select(const TensorSource& source, const ExtractArgs& args) {
  const auto& objects = source.objects();
  std::vector<std::uint32_t> selected;
  if (args.names.empty()) {
    for (std::uint32_t i = 0; i < objects.size(); ++i) selected.push_back(i);
    return selected;
  }
  std::unordered_map<std::string_view, std::uint32_t, zt::internal::NameHash> by_name;
  for (std::uint32_t i = 0; i < objects.size(); ++i) by_name.emplace(objects[i].name, i);
  for (const std::string& name : args.names) {
    const std::size_t before = selected.size();
    if (const auto found = by_name.find(name); found != by_name.end()) {
      selected.push_back(found->second);
    } else if (name.find_first_of("*?[") != name.npos) {  // a pattern, as shells have them
      for (std::uint32_t i = 0; i < objects.size(); ++i) {
        if (::fnmatch(name.c_str(), objects[i].name.c_str(), 0) == 0) selected.push_back(i);
      }
    }
    if (selected.size() == before) {
      const bool pattern = name.find_first_of("*?[") != name.npos;
      return WithFile(InvalidArgument((pattern ? "no tensor matches " : "there is no tensor ") +
                                      Quote(name) + "; ztstream inspect lists them"),
                      args.file);
    }
  }
  std::sort(selected.begin(), selected.end());
  selected.erase(std::unique(selected.begin(), selected.end()), selected.end());
  return selected;
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
      return WithTensor(Unsupported("a file needs a name; write to .npz"), "");
    }
  }
  ZT_ASSIGN_OR_RETURN(const std::vector<std::string> names, FileNames(tensors));
  std::vector<Output> outputs;
  for (std::size_t i = 0; i < selected.size(); ++i) {
    const bool sparse = IsSparse(source.objects()[selected[i]].format);
    auto layout = sparse ? PlanNpz(source, std::vector{selected[i]}) : PlanNpy(source, selected[i]);
    if (!layout.ok()) return layout.status();
    layout->warnings.clear();
    outputs.push_back({names[i] + (sparse ? ".npz" : ".npy"), *std::move(layout)});
  }
  // Said once of all files, not of each.
  if (!outputs.empty()) outputs.front().layout.warnings = NumpyLosses(source, selected);
  return outputs;
}

StatusOr<std::vector<Output>> LayOut(const TensorSource& source,
                                     const std::vector<std::uint32_t>& selected, Target target) {
  for (const std::uint32_t index : selected) {
    ZT_RETURN_IF_ERROR(WithTensor(source.CheckReadable(index), source.objects()[index].name));
  }
  if (target.folder) return LayOutFolder(source, selected);
  auto layout = target.format->plan(source, selected);
  if (!layout.ok()) return layout.status();
  std::vector<Output> outputs;
  outputs.push_back({"", *std::move(layout)});
  return outputs;
}

std::vector<std::string> Warnings(const TensorSource& source, const std::vector<Output>& outputs) {
  std::vector<std::string> warnings = source.warnings();
  for (const Output& output : outputs) {
    warnings.insert(warnings.end(), output.layout.warnings.begin(), output.layout.warnings.end());
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
    std::vector<ComponentId> components;
    for (const Output& output : outputs_) {
      for (const LayoutPiece& piece : output.layout.pieces) {
        if (piece.bytes > 0) components.push_back(piece.source);
      }
    }
    if (IsUrl(args_.file)) source_.WillRead(components);
    if (target_.folder) return RunFolder();
    const FileLayout& layout = outputs_.front().layout;
    ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Sink> sink,
                        OpenSink(args_.output, {.overwrite = args_.force, .sync = !args_.no_sync}));
    ZT_RETURN_IF_ERROR(Write(layout, *sink));
    ZT_RETURN_IF_ERROR(source_.Finish());
    return WithFile(sink->Finish(layout.bytes), sink->name());
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
    options.cancelled = &Interrupted();
    options.progress = [this](std::uint64_t bytes) {
      bar_.Update(done_ + bytes, total_, files_, target_.folder ? outputs_.size() : 0);
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
    const Status created = folder.Create();
    ZT_RETURN_IF_ERROR(WithFile(created, folder.path()));
    for (const Output& output : outputs_) {
      ZT_ASSIGN_OR_RETURN(
          const std::unique_ptr<Sink> sink,
          OpenSink(folder.Staged(output.file), {.sync = false, .new_folder = true}));
      ZT_RETURN_IF_ERROR(Write(output.layout, *sink));
      ZT_RETURN_IF_ERROR(WithFile(sink->Finish(output.layout.bytes), sink->name()));
      if (Interrupted()) return Cancelled("interrupted");
    }
    ZT_RETURN_IF_ERROR(source_.Finish());
    return folder.Publish(files, !args_.no_sync);
  }

  const ExtractArgs& args_;
  TensorSource& source_;
  const Target target_;
  const std::vector<Output>& outputs_;
  ProgressBar bar_;
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

Json ResultJson(const Job& job, const Extraction& extraction) {
  Json json = Envelope(job.args.common, true);
  json["input"] = job.args.file;
  json["input_format"] = job.source->format();
  json["output"] = {{"path", job.args.output},
                    {"format", job.target.folder ? "folder" : job.target.format->name},
                    {"bytes", extraction.file_bytes()}};
  if (job.target.folder) {
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
  return json;
}

Status Report(const Job& job, const Extraction& extraction) {
  if (job.args.common.json) return PrintJson(job.args.common, ResultJson(job, extraction));
  if (!job.args.common.quiet) {
    Note(Text(RunSummary{.output = job.args.output,
                         .tensors = job.selected.size(),
                         .bytes_in = extraction.bytes(),
                         .bytes_out = extraction.file_bytes(),
                         .seconds = extraction.seconds()}));
  }
  return OkStatus();
}

Status Extract(const ExtractArgs& args) {
  ZT_ASSIGN_OR_RETURN(const Target target, TargetOf(args));
  if (!target.folder) ZT_RETURN_IF_ERROR(CheckOutput(args.output, args.force));
  Job job = {args, target, nullptr, {}, {}, {}};
  ZT_ASSIGN_OR_RETURN(job.source, OpenUngrouped({args.file}, args.input));
  ZT_ASSIGN_OR_RETURN(job.selected, Select(*job.source, args));
  auto outputs = LayOut(*job.source, job.selected, target);
  if (!outputs.ok()) {
    return outputs.status().code() == StatusCode::kInvalidArgument
               ? outputs.status()
               : WithFile(outputs.status(), args.file);
  }
  job.outputs = *std::move(outputs);
  job.warnings = Warnings(*job.source, job.outputs);
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
  return status.ok() ? 0 : Fail(args.common, status);
}

}  // namespace zt::cli
