// zt.cli — extract: tensors of any input as safetensors, npz, npy or GGUF, in one pass.
module;

#include <stdio.h>

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :extraction;
import :options;
import :conversion;
import :rules;
import :paths;
import :signals;
import zt.convert.npy;

namespace zt::cli::internal {
namespace {

// The output: a file of a format, or a folder of such files, one for each tensor.
struct Target {
  const Format* format = nullptr;
  bool folder = false;
  bool checkpoint = false;  // a folder of safetensors, with the model's files
  bool disk_delta = false;  // a folder of what differs from --base
};

StatusOr<Target> TargetOf(const Args& args) {
  const std::string& output = args.output;
  if (output != "-" && NamesFolder(output)) {
    if (IsUrl(output))
      return InvalidArgument(output + " is a folder; name one file to write there");
    if (args.to.empty() || args.to == "npy") return Target{FindFormat("npy"), true};
    if (args.to == "safetensors") return Target{FindFormat("safetensors"), true, true};
    if (args.to.starts_with(kToDiskDelta)) return Target{nullptr, true, true, true};
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
  const std::uint64_t files = CountFiles(source.objects());
  if (files == 0 || source.format() != "zt" || args.quiet || !args.names.empty()) return;
  Note(Counted(files, "file") + " of the model " + (files == 1 ? "is" : "are") +
       " left out; -o DIR/ --to safetensors writes the whole folder");
}

// A warning of the files of a folder that are not read and have names of weights; else empty.
StatusOr<std::string> WeightsLeftOut(const Args& args, const TensorSource& source) {
  if (source.format() == "zt" || !args.names.empty()) return std::string();  // see NoteFiles
  ZT_ASSIGN_OR_RETURN(const std::vector<FileEntry> files, ListFiles(source.objects()));
  NameList names;
  std::size_t count = 0;
  for (const FileEntry& file : files) {
    if (!IsNamedLikeWeights(file.path)) continue;
    names.Add(file.path);
    ++count;
  }
  if (count == 0) return std::string();
  return names.ToString() +
         (count == 1 ? " is left out, whether or not it holds weights; name it"
                     : " are left out, whether or not they hold weights; name them") +
         ", or write the whole folder with -o DIR/ --to safetensors";
}

// ---- a folder -----------------------------------------------------------------------------------

// Leaves room for a suffix and for the extra characters of a temporary file, within the 255 bytes
// of most file systems.
constexpr std::size_t kMaxStem = 200;

std::string Escape(std::string_view name) {
  std::string out;
  for (std::size_t i = 0, end; i < name.size(); i = end) {
    end = i + 1;  // of the character
    while (end < name.size() && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) ++end;
    const std::string_view character = name.substr(i, end - i);
    const bool edge = i == 0 || end == name.size();
    if (Printable(character) == character && character.find_first_of("%/\\<>:\"|?*") != 0 &&
        !(edge && (character == "." || character == " "))) {
      out += character;
      continue;
    }
    for (const char byte : character) {
      char text[4];
      std::snprintf(text, sizeof text, "%%%02X", static_cast<unsigned char>(byte));
      out += text;
    }
  }
  return out;
}

// A file name, without suffix, for a tensor. No tensor name can lead out of the folder, make a hidden
// file or collide with another: '%', '/', '\', what is not seen, < > : " | ? * and a leading or
// trailing '.' or ' ' become %XX. Decoding %XX gives the name of the tensor. kUnimplemented, naming
// the tensor, if a file name becomes too long.
StatusOr<std::string> FileName(std::string_view tensor) {
  if (tensor.empty()) return WithTensor(Unsupported("a file needs a name; write to .npz"), "");
  std::string name = Escape(tensor);
  if (name.size() <= kMaxStem) return name;
  return WithTensor(
      Unsupported("its file name would have " + std::to_string(name.size()) +
                  " bytes, the limit is " + std::to_string(kMaxStem) + "; write to .npz"),
      tensor);
}

// ---- what is written ----------------------------------------------------------------------------

StatusOr<std::vector<NamedLayout>> LayOutFolder(const TensorSource& source,
                                                const std::vector<std::uint32_t>& selected) {
  std::vector<NamedLayout> outputs;
  for (const std::uint32_t index : selected) {
    ZT_ASSIGN_OR_RETURN(std::string name, FileName(source.objects()[index].name));
    const bool sparse = IsSparse(source.objects()[index].format);
    name += sparse ? ".npz" : ".npy";
    auto layout = sparse ? PlanNpz(source, std::vector{index}) : PlanNpy(source, index);
    if (!layout.ok()) return layout.status();
    layout->warnings.clear();
    outputs.push_back({std::move(name), *std::move(layout)});
  }
  // One warning for all files together.
  if (!outputs.empty()) outputs.front().layout.warnings = NumpyLosses(source, selected);
  return outputs;
}

StatusOr<std::vector<NamedLayout>> LayOut(const TensorSource& source,
                                          const std::vector<std::uint32_t>& selected,
                                          Target target) {
  for (const std::uint32_t index : selected) {
    ZT_RETURN_IF_ERROR(WithTensor(source.CheckReadable(index), source.objects()[index].name));
  }
  if (target.folder) return LayOutFolder(source, selected);
  auto layout = target.format->plan(source, selected);
  if (!layout.ok()) return layout.status();
  std::vector<NamedLayout> outputs;
  outputs.push_back({"", *std::move(layout)});
  return outputs;
}

// Writes each output to a file of its own; `read` is null if nothing is replaced.
Status WriteFolder(const Args& args, const std::vector<NamedLayout>& outputs, const FilesRead* read,
                   ExtractRun& run) {
  std::vector<std::string> files;
  files.reserve(outputs.size());
  for (const NamedLayout& output : outputs) files.push_back(output.path);
  ZT_RETURN_IF_ERROR(FolderSink::CheckFiles(args.output, files, args.force));
  for (std::size_t i = 0; read != nullptr && i < files.size(); ++i) {
    ZT_RETURN_IF_ERROR(read->CheckOmits((std::filesystem::path(args.output) / files[i]).string()));
  }
  return run.WriteFolder(
      {.overwrite = args.force, .sync = !args.no_sync},
      [&](FolderSink& folder) -> Status { return run.WriteLayouts(outputs, folder, true); });
}

// Writes the selected tensors; `changed` is the source if rules change it, else null.
Status WriteTensors(const Args& args, const Target& target, TensorSource& source,
                    const std::vector<std::uint32_t>& selected, const FilesRead* read,
                    const ChangedSource* changed) {
  auto laid_out = LayOut(source, selected, target);
  if (laid_out.status().code() == StatusCode::kInvalidArgument) return laid_out.status();
  ZT_ASSIGN_OR_RETURN(const std::vector<NamedLayout> outputs,
                      WithFile(std::move(laid_out), args.file()));
  std::vector<std::string> warnings = WordedWarnings(args, source);
  ZT_ASSIGN_OR_RETURN(std::string left_out, WeightsLeftOut(args, source));
  if (!left_out.empty()) warnings.push_back(std::move(left_out));
  for (const NamedLayout& output : outputs)
    std::ranges::copy(output.layout.warnings, std::back_inserter(warnings));
  WarnAll(args, warnings);
  ExtractRun run(args, source, std::move(warnings));
  for (const NamedLayout& output : outputs) run.Expect(output.layout);
  ZT_RETURN_IF_ERROR(target.folder ? WriteFolder(args, outputs, read, run)
                                   : run.WriteFile([&](Sink& sink) {
                                       return run.WriteLayout(outputs.front().layout, sink);
                                     }));
  Json output = {{"path", args.output},
                 {"format", target.folder ? "folder" : target.format->name},
                 {"bytes", run.bytes()}};
  for (std::size_t i = 0; target.folder && i < selected.size(); ++i) {
    output["files"].push_back(
        {{"path", outputs[i].path}, {"tensor", source.objects()[selected[i]].name}});
  }
  return run.Print(std::move(output), selected, 0, changed);
}

Status Extract(const Args& args) {
  StatusOr<Target> wanted = TargetOf(args);
  // An output file for a file of the model needs no format.
  if (args.names.empty()) ZT_RETURN_IF_ERROR(wanted.status());
  ZT_ASSIGN_OR_RETURN(const Rules rules, MakeRules(args));
  if (args.shard_size != 0 && wanted.ok() && !wanted->checkpoint) {
    return InvalidArgument("--shard-size cuts the weights of a folder: -o DIR/ --to safetensors");
  }
  if (wanted.ok() && wanted->checkpoint) ZT_RETURN_IF_ERROR(FolderSink::CheckNew(args.output));
  if (wanted.ok() && !wanted->folder) ZT_RETURN_IF_ERROR(CheckOutput(args.output, args.force));
  ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> source,
                      rules.Open(args, args.inputs, args.source_options(), true));
  if (args.names.empty()) WarnOfOtherShards(args.inputs, *source);
  ZT_ASSIGN_OR_RETURN(const std::optional<FileEntry> file, NamedFile(*source, args));
  if (file || (wanted.ok() && !wanted->folder))
    ZT_RETURN_IF_ERROR(CheckIsNoInput(args, source.get()));
  if (file) return ExtractFile(args, *source, *file);
  ZT_ASSIGN_OR_RETURN(const Target target, std::move(wanted));
  if (target.format != nullptr && target.format->name != "gguf")
    source = WithOriginalShapes(std::move(source));
  std::optional<FilesRead> read;  // before rules leave out some
  std::error_code error;
  if (target.folder && args.force && std::filesystem::is_directory(args.output, error)) {
    ZT_ASSIGN_OR_RETURN(const auto shards, ShardsOfRoots(args));
    read.emplace(args, source.get(), shards);
  }
  const ChangedSource* changed = nullptr;
  if (HasRules(args)) {
    std::vector<std::string> warnings;
    ZT_ASSIGN_OR_RETURN(auto made, ChangedSource::Make(std::move(source), rules, warnings));
    WarnAll(args, warnings);
    ZT_RETURN_IF_ERROR(rules.selector().CheckAnyLeft(args.file()));
    changed = made.get();
    source = std::move(made);
  }
  if (target.disk_delta) return WriteDiskFolder(args, *source, changed);
  ZT_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> selected, Select(*source, args));
  if (target.checkpoint) {
    ZT_RETURN_IF_ERROR(RestoreFolder(args, *source, selected, changed));
    NoteLeftOut(args);
    return OkStatus();
  }
  NoteFiles(args, *source);
  return WriteTensors(args, target, *source, selected, read ? &*read : nullptr, changed);
}

}  // namespace

int RunExtract(const Args& args) { return Done(args, Extract(args)); }

}  // namespace zt::cli::internal
