// zt.cli:paths — the files that a command reads, which its outputs must not replace; opens and writes
// outputs, and refuses those that cannot be.
module;

#include <sys/stat.h>
#include <unistd.h>

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :output;
import :paths;
import zt.convert.shards;
import zt.open;

namespace zt::cli::internal {
namespace fs = std::filesystem;

StatusOr<std::unique_ptr<Reader>> OpenReader(const std::string& path, const InputOptions& options) {
  if (IsPipe(path))
    return WithFile(NotFromPipe(path, "a .zt file"),
                    IsStandardInput(path) ? "standard input" : path);
  ZT_ASSIGN_OR_RETURN(auto bytes, OpenNamed(path, TheStore()));
  return Reader::Open(std::move(bytes), {.find_shard = ShardsBeside(path, options)});
}

Status CheckIsZt(const std::string& path) {
  if (IsPipe(path)) return OkStatus();  // it opens once
  const auto bytes = OpenNamed(path, TheStore());
  if (!bytes.ok()) return bytes.status();
  ZT_ASSIGN_OR_RETURN(const std::vector<std::byte> head, Peek(**bytes, kHeadBytes));
  if (head.size() >= 8 && LooksLikeZt(head)) return OkStatus();
  const auto format = Recognise(head);
  if (format.ok() && (*format)->name != "zt") {
    const bool archive = !(*format)->read_from_end.empty();
    return Unsupported("it is " +
                       std::string(archive ? (*format)->read_from_end : (*format)->name) +
                       ", not .zt; 'ztstream inspect' lists it, 'ztstream diff' compares it");
  }
  // A file named .zt that does not look like one is damaged; verification reports that.
  const bool damaged = format.ok() || format.status().code() == StatusCode::kDataLoss;
  return damaged && path.ends_with(".zt") ? OkStatus() : format.status();
}

StatusOr<std::vector<std::string>> ShardsOfRoots(const Args& args) {
  const SourceOptions options = args.source_options();
  std::vector<std::string> roots(args.inputs), shards;
  roots.insert(roots.end(), args.base.begin(), args.base.end());
  if (args.used_bases != nullptr)
    roots.insert(roots.end(), args.used_bases->begin(), args.used_bases->end());
  for (const std::string& each : roots) {
    const auto root = FileOfInput(each, options);
    ZT_RETURN_IF_UNAVAILABLE(root.status());
    if (!root.ok()) continue;
    ZT_ASSIGN_OR_RETURN(const bool there, WithFile(TheStore().IsFile(*root), *root));
    if (!there) continue;
    if (IsIndexPath(*root)) {
      const auto index = ReadShardIndex(*root, TheStore());
      ZT_RETURN_IF_UNAVAILABLE(WithFile(index.status(), *root));
      if (!index.ok()) continue;
      std::set<std::string_view> names;
      for (const auto& [tensor, name] : index->weight_map) names.insert(name);
      for (const std::string_view name : names)
        shards.push_back((fs::path(*root).parent_path() / name).string());
      continue;
    }
    constexpr std::size_t kMagic = 8;
    const auto bytes = TheStore().Open(*root);
    const auto head = bytes.ok() ? Peek(**bytes, kMagic) : bytes.status();
    ZT_RETURN_IF_UNAVAILABLE(WithFile(head.status(), *root));
    if (!head.ok() || head->size() < kMagic || !LooksLikeZt(*head)) continue;
    const auto opened = OpenReader(*root, options);
    ZT_RETURN_IF_UNAVAILABLE(WithFile(opened.status(), *root));
    if (!opened.ok()) continue;
    const ShardFinder find = ShardsBeside(*root, options);
    for (const StoredShard& shard : (*opened)->manifest().shards) {
      if (IsUrl(*root)) {
        const std::string file = ShardPath(*root, shard);
        ZT_ASSIGN_OR_RETURN(const bool is_there, WithFile(TheStore().Exists(file), file));
        if (is_there) shards.push_back(file);
      } else if (const auto bytes = find(shard); bytes.ok()) {
        shards.push_back((*bytes)->name());
      }
    }
  }
  return shards;
}

FilesRead::FilesRead(const Args& args, const TensorSource* source,
                     const std::vector<std::string>& shards) {
  const auto add = [&](const std::string& path) {
    struct stat info;
    if (IsUrl(path)) return urls_.insert(path).second;
    return ::stat(path.c_str(), &info) == 0 && files_.emplace(info.st_dev, info.st_ino).second;
  };
  const auto add_file = [&](const std::string& path) {
    // A server that does not say is asked again when the file is read.
    if (add(path) && !TheStore().IsFolder(path).value_or(false)) paths_.push_back(path);
  };
  for (const std::string& shard : shards) add_file(shard);
  if (source != nullptr) {
    for (const std::string& file : source->other_files()) add_file(file);
    for (const std::string& file : source->part_files()) add_file(file);
    for (const std::string& file : FilesOf(*source)) add_file(file);
  }
  for (const std::string& input : args.inputs) add(input);
  for (const std::string& base : args.base) add(base);
  for (const std::string& base : *args.used_bases) add(base);
}

Status FilesRead::CheckOmits(const std::string& output) const {
  struct stat info;
  const bool is_read = IsUrl(output) ? urls_.contains(output)
                                     : ::stat(output.c_str(), &info) == 0 &&
                                           files_.contains({info.st_dev, info.st_ino});
  if (!is_read) return OkStatus();
  return WithFile(InvalidArgument("it is an input, and would be replaced; name another file"),
                  output);
}

bool NamesFolder(const std::string& output) {
  std::error_code error;
  return output.ends_with('/') || (!IsUrl(output) && fs::is_directory(output, error));
}

bool MayReplace(const Args& args) {
  const std::string& output = args.output;
  std::error_code error;
  return args.force && output != "-" && (IsUrl(output) || fs::is_regular_file(output, error));
}

Status CheckIsNoInput(const Args& args, const TensorSource* source) {
  if (!MayReplace(args)) return OkStatus();
  ZT_ASSIGN_OR_RETURN(const auto shards, ShardsOfRoots(args));
  return FilesRead(args, source, shards).CheckOmits(args.output);
}

void WarnOfOtherShards(const std::vector<std::string>& paths, TensorSource& source) {
  std::vector<std::string> names;
  for (const std::string& path : paths) names.push_back(fs::path(path).filename().string());
  for (const std::string& file : source.other_files()) {  // a split GGUF is read whole
    if (file.ends_with(".gguf")) names.push_back(fs::path(file).filename().string());
  }
  for (const std::string_view suffix : {".safetensors", ".bin", ".zt", ".gguf"}) {
    const Status whole = CheckSets(names, suffix, "the inputs leave out shards");
    if (!whole.ok()) source.AddWarning(Fact(whole));
  }
}

StatusOr<std::unique_ptr<Sink>> OpenSink(const std::string& output,
                                         const FileSinkOptions& options) {
  if (output == "-") {
    if (::isatty(STDOUT_FILENO) != 0) {
      return InvalidArgument("standard output is a terminal; redirect it or name a file with -o");
    }
    return DescriptorSink(STDOUT_FILENO, "standard output");
  }
  return TheStore().Create(output, options);
}

Status WriteText(const std::string& path, std::string_view text, const FileSinkOptions& options) {
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Sink> sink, OpenSink(path, options));
  const std::span<const std::byte> piece = std::as_bytes(std::span(text));
  ZT_RETURN_IF_ERROR(WithFile(sink->Append(std::span(&piece, 1)), path));
  return WithFile(sink->Finish(text.size()), path);
}

NumberedOptions FilesAtOnce(const Args& args, TensorSource& source,
                            std::span<const ComponentId> read, std::uint64_t frame_bytes) {
  NumberedOptions options;
  options.threads = args.threads;
  options.memory_bytes = MemoryFor(args.memory, args.threads);
  for (const ComponentId id : read) {
    const bool ordered = source.sequential(id) && source.unordered_reader(id) == nullptr;
    if (ordered || IsUrl(source.file(id))) options.most = 1;
    frame_bytes = std::max(frame_bytes, source.preferred_read(id));
  }
  // A frame is in memory up to three times, and the next one is read meanwhile.
  options.least_memory = std::max(options.least_memory, 4 * frame_bytes);
  if (!IsUrl(args.output)) return options;
  // The parts of an upload take memory beside that of the run. One upload always does.
  constexpr std::uint64_t kPart = 16 << 20, kParts = 5;
  const std::uint64_t upload = kParts * (args.part_bytes != 0 ? args.part_bytes : kPart);
  const std::uint64_t uploads = options.memory_bytes / (options.least_memory + upload);
  options.most = static_cast<unsigned>(std::clamp<std::uint64_t>(uploads, 1, options.most));
  options.memory_bytes -= (options.most - 1) * upload;
  return options;
}

Status CheckFolderOf(const std::string& output) {
  if (output == "-" || IsUrl(output)) return OkStatus();
  std::error_code error;
  const fs::path folder = fs::path(output).parent_path();
  if (folder.empty() || fs::is_directory(folder, error)) return OkStatus();
  if (fs::exists(folder, error))
    return WithFile(IoError(folder.string() + " is not a folder; name another output"), output);
  if (error) return OkStatus();  // what may not be looked at may be there: opening it tells
  return WithFile(IoError("there is no folder " + folder.string() + "; make the folder first"),
                  output);
}

Status CheckOutput(const std::string& output, bool force) {
  if (output.ends_with('/'))
    return WithFile(InvalidArgument("the output is a folder; name a file"), output);
  ZT_RETURN_IF_ERROR(CheckFolderOf(output));
  std::error_code error;
  if (output == "-" || force || IsUrl(output) || !fs::is_regular_file(output, error))
    return OkStatus();
  return WithFile(WithAdvice(AlreadyExists("the output exists already"), Advice::kReplace), output);
}

}  // namespace zt::cli::internal
