// zt.cli:support — finding out what an input is, by its content, and opening it.
module;

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/status_macros.h"

module zt.cli;

import :support;
import zt;
import zt.convert.composite;
import zt.convert.gguf;
import zt.convert.npy;
import zt.convert.safetensors;
import zt.convert.zip;
import zt.convert.zt;

namespace zt::cli::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormats[] = {"safetensors", "npy", "npz", "gguf", "zt"};

StatusOr<std::string> Detect(ByteSource& bytes) {
  ZT_ASSIGN_OR_RETURN(const std::vector<std::byte> head, Peek(bytes, 16));
  if (head.size() >= 8 && LooksLikeZt(head)) return "zt";
  if (LooksLikeGguf(head)) return "gguf";
  if (LooksLikeNpy(head)) return "npy";
  if (LooksLikeZip(head)) return "npz";
  if (LooksLikeSafetensors(head)) return "safetensors";
  if (head.empty()) return InvalidData("it is empty");
  return InvalidData(
      "it is none of safetensors, npy, npz, gguf and zt, or it is damaged; --from names a format");
}

StatusOr<NpyOptions> NpyOptionsOf(const InputOptions& options) {
  NpyOptions npy;
  npy.memory_limit = options.memory;
  npy.keep_sparse = options.keep_sparse;
  npy.follow_links = options.follow_links;
  if (!options.npy_void.empty()) {
    npy.void_type = ParseElementType(options.npy_void);
    if (!npy.void_type)
      return InvalidArgument("--npy-void: unknown type " + Quote(options.npy_void));
  }
  return npy;
}

StatusOr<std::unique_ptr<TensorSource>> OpenBytes(std::shared_ptr<ByteSource> bytes,
                                                  const std::string& path, const std::string& stem,
                                                  const InputOptions& options) {
  std::string format = options.from;
  if (format.empty()) {
    ZT_ASSIGN_OR_RETURN(format, Detect(*bytes));
  }
  ZT_ASSIGN_OR_RETURN(const NpyOptions npy, NpyOptionsOf(options));
  if (format == "safetensors") return OpenSafetensors(std::move(bytes));
  if (format == "npy") return OpenNpy(std::move(bytes), stem, npy);
  if (bytes->sequential() && format != "gguf") {
    return Unsupported(format + " is read from its end; a pipe will not do, name a file");
  }
  if (format == "npz") return OpenNpz(std::move(bytes), stem, npy);
  if (format == "gguf") return path.empty() ? OpenGguf(std::move(bytes)) : OpenGgufSet(path);
  return OpenZt(std::move(bytes));
}

StatusOr<std::unique_ptr<TensorSource>> OpenFolder(const std::string& path,
                                                   const InputOptions& options) {
  std::error_code error;
  std::string gguf;
  bool safetensors = false, npy = false;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    safetensors |= name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
    npy |= name.ends_with(".npy");
    if (name.ends_with(".gguf") && (gguf.empty() || name < gguf)) gguf = name;
  }
  if (error) return IoError(error.value(), "cannot list the folder");
  const bool any = options.from.empty();
  if (safetensors && (any || options.from == "safetensors")) {
    return OpenSafetensorsFolder(path, {.follow_links = options.follow_links});
  }
  if (npy && (any || options.from == "npy")) {
    ZT_ASSIGN_OR_RETURN(const NpyOptions npy_options, NpyOptionsOf(options));
    return OpenNpyFolder(path, npy_options);
  }
  if (!gguf.empty() && (any || options.from == "gguf"))
    return OpenGgufSet((fs::path(path) / gguf).string());
  return InvalidArgument("the folder holds no checkpoint: no *.safetensors, *.npy or *.gguf file");
}

StatusOr<std::unique_ptr<TensorSource>> OpenOne(const std::string& path,
                                                const InputOptions& options) {
  if (path == "-") {
    ZT_ASSIGN_OR_RETURN(auto bytes, OpenDescriptor(STDIN_FILENO, "standard input"));
    return OpenBytes(std::move(bytes), "", "data", options);
  }
  std::error_code error;
  if (fs::is_directory(path, error)) return OpenFolder(path, options);
  if (path.ends_with(".safetensors.index.json")) {
    return OpenSafetensorsFolder(path, {.follow_links = options.follow_links});
  }
  ZT_ASSIGN_OR_RETURN(auto bytes, OpenFile(path));
  return OpenBytes(std::move(bytes), path, fs::path(path).stem().string(), options);
}

}  // namespace

StatusOr<bool> IsZt(const std::string& path) {
  auto bytes = OpenFile(path);
  if (!bytes.ok()) return Annotate(bytes.status(), path);
  auto head = Peek(**bytes, 8);
  if (!head.ok()) return Annotate(head.status(), path);
  return head->size() == 8 && LooksLikeZt(*head);
}

StatusOr<std::unique_ptr<TensorSource>> OpenInputs(const std::vector<std::string>& paths,
                                                   const InputOptions& options) {
  if (!options.from.empty() &&
      std::find(std::begin(kFormats), std::end(kFormats), options.from) == std::end(kFormats)) {
    return InvalidArgument("--from: unknown format " + Quote(options.from) +
                           "; known are safetensors, npy, npz, gguf and zt");
  }
  if (std::count(paths.begin(), paths.end(), "-") > 1) {
    return InvalidArgument("standard input can be given once");
  }
  std::vector<std::unique_ptr<TensorSource>> sources;
  std::vector<std::string> names;
  std::set<fs::path> sets;  // of GGUF shards: any of them opens all
  for (const std::string& path : paths) {
    const std::string name = path == "-" ? "standard input" : path;
    const std::string set = paths.size() > 1 ? GgufSetOf(path) : "";
    if (!set.empty() && !sets.insert(fs::path(set).lexically_normal()).second) continue;
    auto source = OpenOne(path, options);
    if (!source.ok()) return Annotate(source.status(), name);
    if ((*source)->file({}).empty()) (*source)->SetFile(name);
    sources.push_back(*std::move(source));
    names.push_back(name);
  }
  return MergeSources(std::move(sources), std::move(names));
}

StatusOr<std::unique_ptr<TensorSource>> OpenGrouped(const std::vector<std::string>& paths,
                                                    const InputOptions& options) {
  ZT_RETURN_IF_ERROR(FindQuantConfig(paths).status());  // where two of them disagree
  std::vector<std::unique_ptr<TensorSource>> sources;
  std::vector<std::string> names;
  for (const std::vector<std::string>& checkpoint : SplitByFolder(paths)) {
    ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> source, OpenInputs(checkpoint, options));
    ZT_ASSIGN_OR_RETURN(const QuantConfig config, FindQuantConfig(checkpoint));
    ZT_ASSIGN_OR_RETURN(source, GroupQuantized(std::move(source), config));
    sources.push_back(std::move(source));
    names.push_back(checkpoint.front());
  }
  return MergeSources(std::move(sources), std::move(names));
}

StatusOr<std::unique_ptr<TensorSource>> OpenUngrouped(const std::vector<std::string>& paths,
                                                      const InputOptions& options) {
  ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> source, OpenInputs(paths, options));
  auto ungrouped = Ungroup(std::move(source));
  if (!ungrouped.ok()) return Annotate(ungrouped.status(), paths.front());
  return ungrouped;
}

}  // namespace zt::cli::internal
