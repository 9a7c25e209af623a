// zt.cli:inputs — the files that a command reads, which its outputs must not replace.
module;

#include <sys/stat.h>

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :inputs;
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

std::vector<std::string> ShardsOfRoots(const Args& args) {
  const SourceOptions options = args.source_options();
  std::vector<std::string> roots(args.inputs), shards;
  roots.insert(roots.end(), args.base.begin(), args.base.end());
  if (args.used_bases != nullptr)
    roots.insert(roots.end(), args.used_bases->begin(), args.used_bases->end());
  for (const std::string& each : roots) {
    const auto root = FileOfInput(each, options);
    if (!root.ok() || !TheStore().IsFile(*root)) continue;
    if (IsIndexPath(*root)) {
      const auto index = ReadShardIndex(*root, TheStore());
      if (!index.ok()) continue;
      std::set<std::string_view> names;
      for (const auto& [tensor, name] : index->weight_map) names.insert(name);
      for (const std::string_view name : names)
        shards.push_back((fs::path(*root).parent_path() / name).string());
      continue;
    }
    const auto opened = OpenReader(*root, options);
    if (!opened.ok()) continue;
    const ShardFinder find = ShardsBeside(*root, options);
    for (const StoredShard& shard : (*opened)->manifest().shards) {
      if (const auto bytes = find(shard); bytes.ok()) shards.push_back((*bytes)->name());
    }
  }
  return shards;
}

namespace {

// What the whole of an input would lose in its own place; empty if nothing.
std::string WhatIsLost(const Args& args, const TensorSource& source,
                       const std::vector<std::string>& losses) {
  if (!TakesWhole(args)) return "tensors are selected";
  if (args.no_metadata || !args.unset.empty()) return "attributes are left out";
  if (!args.left_out->empty()) return Counted(args.left_out->size(), "file") + " would be left out";
  std::vector<std::string> lines = WordedWarnings(args, source);
  lines.insert(lines.end(), losses.begin(), losses.end());
  return lines.empty() ? "" : lines.front();
}

// Why a file is not alone; empty if it is.
std::string WhatNeedsIt(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  const auto part = ParseShardName(name, fs::path(name).extension().string());
  const auto reader = OpenReader(path);
  const bool stamped = reader.ok() && FindShardStamp((*reader)->manifest().attributes).has_value();
  return stamped || (part && part->count > 1) ? "it is one of several shards" : "";
}

}  // namespace

FilesRead::FilesRead(const Args& args, const TensorSource* source,
                     const std::vector<std::string>& shards,
                     const std::vector<std::string>& losses) {
  const auto add = [&](const std::string& path) {
    struct stat info;
    if (IsUrl(path)) {
      urls_.insert(path);
    } else if (::stat(path.c_str(), &info) == 0) {
      files_.emplace(info.st_dev, info.st_ino);
    }
  };
  for (const std::string& input : args.inputs) add(input);
  for (const std::string& base : args.base) add(base);
  if (args.used_bases != nullptr) {
    for (const std::string& base : *args.used_bases) add(base);
  }
  for (const std::string& shard : shards) add(shard);
  if (args.inputs.size() == 1) {
    const auto file = FileOfInput(args.inputs[0], args.source_options());
    if (file.ok()) named_ = *file;
  }
  if (source == nullptr) return;
  for (const std::string& file : source->other_files()) add(file);
  for (const std::string& file : source->part_files()) add(file);
  std::unordered_set<std::string_view> seen, of_tensors;
  for (std::uint32_t o = 0; o < source->objects().size(); ++o) {
    const Object& object = source->objects()[o];
    const auto count = static_cast<std::uint32_t>(object.components.size());
    for (std::uint32_t c = 0; c < count; ++c) {
      const std::string& file = source->file({o, c});
      if (seen.insert(file).second) add(file);
      if (!IsFile(object)) of_tensors.insert(file);
    }
  }
  lost_ = WhatIsLost(args, *source, losses);
  if (lost_.empty() && !of_tensors.empty() && !of_tensors.contains(named_) &&
      (args.used_bases == nullptr || args.used_bases->empty()))
    lost_ = "its tensors lie in other files";
}

Status FilesRead::CheckOmits(const std::string& output, bool in_place) const {
  struct stat info;
  const bool is_read = IsUrl(output) ? urls_.contains(output)
                                     : ::stat(output.c_str(), &info) == 0 &&
                                           files_.contains({info.st_dev, info.st_ino});
  const auto place = [](const fs::path& path) {
    std::error_code error;
    return fs::weakly_canonical(fs::absolute(path, error).parent_path(), error) / path.filename();
  };
  if (!is_read) return OkStatus();
  std::string why;
  if (in_place && (output == named_ || place(output) == place(named_))) {
    why = lost_.empty() ? WhatNeedsIt(named_) : lost_;
    if (why.empty()) return OkStatus();
    why = "; " + why;
  }
  return WithFile(
      InvalidArgument("it is an input, and would be replaced; name another file (only the whole of "
                      "one input may take its place" +
                      why + ")"),
      output);
}

bool TakesWhole(const Args& args) {
  return args.names.empty() && args.include.empty() && args.exclude.empty();
}

bool MayReplace(const Args& args) {
  const std::string& output = args.output;
  return args.force && output != "-" && (IsUrl(output) || TheStore().IsFile(output));
}

Status CheckIsNoInput(const Args& args, const TensorSource* source, bool in_place,
                      const std::vector<std::string>& losses) {
  if (!MayReplace(args)) return OkStatus();
  return FilesRead(args, source, ShardsOfRoots(args), losses).CheckOmits(args.output, in_place);
}

void WarnOfOtherShards(const std::vector<std::string>& paths, TensorSource& source) {
  std::vector<std::string> names;
  for (const std::string& path : paths) names.push_back(fs::path(path).filename().string());
  for (const std::string_view suffix : {".safetensors", ".bin"}) {
    const Status whole = CheckSets(names, suffix, "the inputs leave out shards");
    if (!whole.ok()) source.AddWarning(Fact(whole));
  }
}

}  // namespace zt::cli::internal
