// zt.cli — extract: tensors of any input as safetensors, npz, npy or GGUF, in one pass.
module;

#include <stdio.h>

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :changed;
import :options;
import :restore;
import :select;
import :inputs;
import :outputs;
import :signals;
import zt.convert.layout;
import zt.convert.npy;

namespace zt::cli::internal {
namespace {

// The output: a file of a format, or a folder of such files, one for each tensor.
struct Target {
  const Format* format = nullptr;
  bool folder = false;
  bool checkpoint = false;  // a folder of safetensors, with the model's files
};

StatusOr<Target> TargetOf(const Args& args) {
  const std::string& output = args.output;
  if (output != "-" && (output.ends_with('/') || (!IsUrl(output) && TheStore().IsFolder(output)))) {
    if (IsUrl(output))
      return InvalidArgument(output + " is a folder; name one file to write there");
    if (args.to.empty() || args.to == "npy") return Target{FindFormat("npy"), true};
    if (args.to == "safetensors") return Target{FindFormat("safetensors"), true, true};
    return InvalidArgument(output +
                           " is a folder, which takes .npy files, or a checkpoint with "
                           "--to safetensors; name a file for " +
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
                         Joined(Words(kWrittenFormats), "or") +
                         "; say --to FORMAT, or end a folder's name with /");
}

// The indices of the named tensors, or of all tensors, in the order of the input. Files are not
// included.
StatusOr<std::vector<std::uint32_t>> Select(const TensorSource& source, const Args& args) {
  Patterns wanted("", args.names);
  const std::vector<std::string_view> names = NamesOf(source);
  ZT_RETURN_IF_ERROR(WithFile(wanted.Resolve(names), args.file()));
  std::vector<std::uint32_t> selected;
  for (std::uint32_t i = 0; i < source.objects().size(); ++i) {
    const Object& object = source.objects()[i];
    if (!IsFile(object) && (wanted.empty() || wanted.Match(object.name))) selected.push_back(i);
  }
  std::vector<std::string> warnings;
  const std::string_view left = args.include.empty() && args.exclude.empty()
                                    ? ""
                                    : " of those that --include and --exclude leave";
  for (std::size_t i = 0; i < args.names.size(); ++i) {
    const auto& [pattern, tensors, first] = wanted.uses()[i];
    if (tensors == 0) {
      return WithFile(InvalidArgument("no tensor" + std::string(left) + " matches " +
                                      pattern.text() + MeantOrListed(args.names[i], names)),
                      args.file());
    }
    if (args.verbose && pattern.name().empty()) {
      Note(pattern.text() + " means " +
           (tensors == 1 ? TensorContext(first)
                         : Counted(tensors, "tensor") + ", " + Quote(first) + " the first"));
    }
    if (!pattern.warning().empty()) warnings.push_back(pattern.warning());
  }
  WarnAll(args, warnings);
  return selected;
}

// The file of the model that is requested by its path or object name. It must be requested alone. A
// tensor with the same name takes precedence.
StatusOr<std::optional<FileEntry>> NamedFile(const TensorSource& source, const Args& args) {
  ZT_ASSIGN_OR_RETURN(const std::vector<FileEntry> files, ListFiles(source.objects()));
  std::optional<FileEntry> named;
  for (const std::string& name : args.names) {
    const auto file = std::ranges::find_if(files, [&](const FileEntry& each) {
      return each.path == name || source.objects()[each.object].name == name;
    });
    if (file == files.end()) continue;
    const auto is_tensor = [&](const Object& object) {
      return object.name == name && !IsFile(object);
    };
    if (!std::ranges::any_of(source.objects(), is_tensor)) named = *file;
  }
  if (!named || args.names.size() == 1) return named;
  return InvalidArgument(Quote(named->path) +
                         " is a file of the model, which must be extracted alone; -o "
                         "DIR/ --to safetensors writes all files");
}

// Notes files of the model that the output format cannot hold.
void NoteFiles(const Args& args, const TensorSource& source) {
  const auto files = static_cast<std::uint64_t>(
      std::ranges::count_if(source.objects(), [](const Object& each) { return IsFile(each); }));
  if (files == 0 || source.format() != "zt" || args.quiet || !args.names.empty()) return;
  Note(Counted(files, "file") + " of the model " + (files == 1 ? "is" : "are") +
       " left out; -o DIR/ --to safetensors writes the whole folder");
}

// ---- a folder -----------------------------------------------------------------------------------

// Leaves room for a suffix and for the extra characters of a temporary file, within the 255 bytes
// of most file systems.
constexpr std::size_t kMaxStem = 200;

bool IsCapital(char c) { return c >= 'A' && c <= 'Z'; }

std::string Folded(std::string_view name) {
  std::string out(name);
  for (char& c : out) c = IsCapital(c) ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

std::string Escape(std::string_view name, bool capitals) {
  std::string out;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const auto code = static_cast<unsigned char>(c);
    const bool edge = i == 0 || i + 1 == name.size();
    if (code < 0x20 || code == 0x7f ||
        std::string_view("%/\\<>:\"|?*").find(c) != std::string_view::npos ||
        (edge && (c == '.' || c == ' ')) || (capitals && IsCapital(c))) {
      char text[4];
      std::snprintf(text, sizeof text, "%%%02X", code);
      out += text;
    } else {
      out += c;
    }
  }
  return out;
}

// A file name, without suffix, for each tensor. No tensor name can lead out of the folder, make a
// hidden file or collide with another: '%', '/', '\', control characters, < > : " | ? * and a
// leading or trailing '.' or ' ' become %XX, as do capitals of names that differ only in case.
// Decoding %XX gives the name of the tensor. kUnimplemented, naming the tensor, if a file name
// becomes too long.
StatusOr<std::vector<std::string>> FileNames(std::span<const std::string_view> tensors) {
  std::unordered_map<std::string, std::size_t, zt::internal::NameHash> folded;
  for (const std::string_view name : tensors) ++folded[Folded(name)];
  std::vector<std::string> names;
  names.reserve(tensors.size());
  for (const std::string_view name : tensors) {
    names.push_back(Escape(name, folded[Folded(name)] > 1));
    if (names.back().size() > kMaxStem) {
      return WithTensor(
          Unsupported("its file name would have " + std::to_string(names.back().size()) +
                      " bytes, the limit is " + std::to_string(kMaxStem) + "; write to .npz"),
          name);
    }
  }
  return names;
}

// ---- what is written ----------------------------------------------------------------------------

struct Output {
  // Its name in a folder.
  std::string file;
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
  // One warning for all files together.
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

// One run of extract: the plan, the progress and the results.
class Extraction {
 public:
  // `changed` is the source if rules change it, else null; `read` is null if nothing is replaced.
  Extraction(const Args& args, Target target, TensorSource& source, const ChangedSource* changed,
             const FilesRead* read)
      : args_(args), target_(target), source_(source), changed_(changed), read_(read) {}

  Status Plan(std::vector<std::uint32_t> selected) {
    selected_ = std::move(selected);
    auto outputs = LayOut(source_, selected_, target_);
    if (!outputs.ok()) {
      return outputs.status().code() == StatusCode::kInvalidArgument
                 ? outputs.status()
                 : WithFile(outputs.status(), args_.file());
    }
    outputs_ = *std::move(outputs);
    warnings_ = WordedWarnings(args_, source_);
    for (const auto& [file, layout] : outputs_) {
      warnings_.insert(warnings_.end(), layout.warnings.begin(), layout.warnings.end());
      file_bytes_ += layout.bytes;
      for (const LayoutPiece& piece : layout.pieces) total_ += piece.bytes;
    }
    WarnAll(args_, warnings_);
    return OkStatus();
  }

  Status Write() {
    bar_.emplace(args_, "extract");
    Announce();
    const Status status = target_.folder ? WriteFolder() : WriteFile();
    bar_->End();
    ZT_RETURN_IF_ERROR(status);
    if (changed_ != nullptr) ReportChanges(args_, *changed_, warnings_);
    return OkStatus();
  }

  Status Report() const {
    if (args_.json) {
      return PrintJson(args_, ExtractedJson(args_, source_, OutputJson(), selected_.size(), total_,
                                            warnings_, bar_->seconds()));
    }
    if (!args_.quiet)
      Note(SummaryText(args_.output, selected_.size(), total_, file_bytes_, bar_->seconds()));
    return OkStatus();
  }

 private:
  // Announces to a remote source all ranges that will be read.
  void Announce() {
    if (!IsUrl(args_.file())) return;
    std::vector<ComponentId> components;
    for (const auto& [file, layout] : outputs_) {
      for (const LayoutPiece& piece : layout.pieces) {
        if (piece.bytes > 0) components.push_back(piece.source);
      }
    }
    source_.WillRead(components);
  }

  // Smaller files are written by one thread.
  static constexpr std::uint64_t kOneThread = 8 << 20;

  Status WriteLayout(const FileLayout& layout, Sink& sink) {
    LayoutOptions options;
    options.threads = layout.bytes < kOneThread ? 1 : args_.threads;
    options.memory_bytes = args_.memory;
    options.cancelled = &Interrupted();
    options.progress = [this](std::uint64_t bytes) {
      bar_->Update(done_ + bytes, total_, files_, target_.folder ? outputs_.size() : 0);
    };
    ZT_RETURN_IF_ERROR(zt::WriteLayout(source_, layout, sink, options));
    for (const LayoutPiece& piece : layout.pieces) done_ += piece.bytes;
    ++files_;
    return OkStatus();
  }

  Status WriteFile() {
    const FileLayout& layout = outputs_.front().layout;
    ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Sink> sink,
                        OpenSink(args_.output, {.overwrite = args_.force, .sync = !args_.no_sync}));
    ZT_RETURN_IF_ERROR(WriteLayout(layout, *sink));
    ZT_RETURN_IF_ERROR(source_.Finish());
    ZT_RETURN_IF_ERROR(WithFile(sink->Finish(layout.bytes), sink->name()));
    Completed();
    return OkStatus();
  }

  Status WriteFolder() {
    std::vector<std::string> files;
    files.reserve(outputs_.size());
    for (const Output& output : outputs_) files.push_back(output.file);
    ZT_RETURN_IF_ERROR(FolderSink::CheckFiles(args_.output, files, args_.force));
    if (read_ != nullptr) {
      for (const std::string& file : files) {
        ZT_RETURN_IF_ERROR(
            read_->CheckOmits((std::filesystem::path(args_.output) / file).string(), false));
      }
    }
    ZT_ASSIGN_OR_RETURN(
        const std::unique_ptr<FolderSink> folder,
        FolderSink::Create(args_.output, {.overwrite = args_.force, .sync = !args_.no_sync}));
    ZT_RETURN_IF_ERROR(folder->Reserve(file_bytes_));
    for (const auto& [file, layout] : outputs_) {
      ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Sink> sink,
                          OpenSink(folder->Staged(file), folder->StagedOptions(file)));
      ZT_RETURN_IF_ERROR(WriteLayout(layout, *sink));
      ZT_RETURN_IF_ERROR(WithFile(sink->Finish(layout.bytes), sink->name()));
      if (Interrupted()) return Cancelled("interrupted");
    }
    ZT_RETURN_IF_ERROR(source_.Finish());
    ZT_RETURN_IF_ERROR(folder->Finish());
    Completed();  // before the folder is closed, which may take its time
    return OkStatus();
  }

  Json OutputJson() const {
    Json output = {{"path", args_.output},
                   {"format", target_.folder ? "folder" : target_.format->name},
                   {"bytes", file_bytes_}};
    for (std::size_t i = 0; target_.folder && i < selected_.size(); ++i) {
      output["files"].push_back(
          {{"tensor", source_.objects()[selected_[i]].name}, {"file", outputs_[i].file}});
    }
    return output;
  }

  const Args& args_;
  const Target target_;
  TensorSource& source_;
  const ChangedSource* const changed_;
  const FilesRead* const read_;
  std::vector<std::uint32_t> selected_;  // objects
  std::vector<Output> outputs_;
  std::vector<std::string> warnings_;
  std::optional<ProgressBar> bar_;
  std::uint64_t total_ = 0, file_bytes_ = 0, done_ = 0, files_ = 0;
};

Status Extract(const Args& args) {
  StatusOr<Target> wanted = TargetOf(args);
  // An output file for a file of the model needs no format.
  if (args.names.empty()) ZT_RETURN_IF_ERROR(wanted.status());
  if (HasRules(args)) ZT_RETURN_IF_ERROR(MakeRules(args).status());
  if (args.shard_size != 0 && wanted.ok() && !wanted->checkpoint) {
    return InvalidArgument("--shard-size cuts the weights of a folder: -o DIR/ --to safetensors");
  }
  if (wanted.ok() && wanted->checkpoint) ZT_RETURN_IF_ERROR(FolderSink::CheckNew(args.output));
  if (wanted.ok() && !wanted->folder) ZT_RETURN_IF_ERROR(CheckOutput(args.output, args.force));
  ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> source,
                      OpenUngrouped({args.file()}, args.source_options()));
  ZT_ASSIGN_OR_RETURN(const std::optional<FileEntry> file, NamedFile(*source, args));
  if (file || (wanted.ok() && !wanted->folder))
    ZT_RETURN_IF_ERROR(CheckIsNoInput(args, source.get(), true));
  if (file) return ExtractFile(args, *source, *file);
  ZT_ASSIGN_OR_RETURN(const Target target, std::move(wanted));
  std::optional<FilesRead> read;  // before rules leave out some
  if (target.folder && args.force && TheStore().IsFolder(args.output) && !TakesWhole(args))
    read.emplace(args, source.get(), ShardsOfRoots(args));
  const ChangedSource* changed = nullptr;
  if (HasRules(args)) {
    std::vector<std::string> warnings;
    ZT_ASSIGN_OR_RETURN(const Rules rules, MakeRules(args));
    ZT_ASSIGN_OR_RETURN(auto made, ChangedSource::Make(std::move(source), rules, warnings));
    WarnAll(args, warnings);
    ZT_RETURN_IF_ERROR(rules.selector().CheckAnyLeft(args.file()));
    changed = made.get();
    source = std::move(made);
  }
  ZT_ASSIGN_OR_RETURN(std::vector<std::uint32_t> selected, Select(*source, args));
  if (target.checkpoint) return RestoreFolder(args, *source, selected, changed);
  NoteFiles(args, *source);
  Extraction extraction(args, target, *source, changed, read ? &*read : nullptr);
  ZT_RETURN_IF_ERROR(extraction.Plan(std::move(selected)));
  ZT_RETURN_IF_ERROR(extraction.Write());
  return extraction.Report();
}

}  // namespace

int RunExtract(const Args& args) { return Done(args, Extract(args)); }

}  // namespace zt::cli::internal
