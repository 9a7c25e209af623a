// zt.open:formats — the table. If two rows recognise the same bytes, the first one is used.
module;

#include "core/status_macros.h"

module zt.open;

import zt.std;
import :formats;
import :options;
import zt.convert.composite;
import zt.convert.files;
import zt.convert.gguf;
import zt.convert.hdf5;
import zt.convert.layout;
import zt.convert.npy;
import zt.convert.onnx;
import zt.convert.safetensors;
import zt.convert.shards;
import zt.convert.torch;
import zt.convert.zip;
import zt.core;
import zt.digest;
import zt.format;
import zt.reader;
import zt.source;
import zt.text;

namespace zt {
namespace {

// ---- output formats: the layout of a file, with warnings of what the format does not keep -------

// A key of safetensors' metadata, and its usual value.
constexpr std::string_view kFor = "format", kForTorch = "pt";

std::string Listed(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 5); ++i) {
    out += (i == 0 ? "" : ", ") + Quote(names[i]);
  }
  return names.size() > 5 ? out + " and " + std::to_string(names.size() - 5) + " more" : out;
}

}  // namespace

std::vector<std::string> NumpyLosses(const TensorSource& source,
                                     const std::vector<std::uint32_t>& selected) {
  std::vector<std::string> losses = NpyLosses(source, selected);
  std::vector<std::string> keys;
  for (const auto& [key, value] : source.attributes()) {
    if (key != kFolderAttribute) keys.push_back(key);
  }
  if (!keys.empty())
    losses.push_back("numpy's files do not keep attributes of the whole file: " + Listed(keys));
  return losses;
}

// Root attributes become __metadata__, which holds only text; other values become JSON. Hugging
// Face's libraries refuse metadata that does not say for whom it is, and some of them a file without
// any, so it says "pt" if it says nothing.
StatusOr<FileLayout> PlanSafetensorsFile(const TensorSource& source,
                                         const std::vector<std::uint32_t>& selected) {
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<std::string> as_json;
  bool stated = false;  // true for an empty __metadata__, too
  for (const auto& [key, value] : source.attributes()) {
    if (key == kFolderAttribute) continue;
    stated = true;
    if (key == kEmptyMetadata && value == Value(Value::Map{})) continue;
    if (const std::string* text = value.AsString()) {
      metadata.emplace_back(key, *text);
    } else {
      AppendJson(value, metadata.emplace_back(key, "").second);
      as_json.push_back(key);
    }
  }
  const bool says =
      std::ranges::any_of(metadata, [&](const auto& each) { return each.first == kFor; });
  const bool warns = !metadata.empty() && !says;
  const bool adds = warns || !stated;
  if (adds) metadata.emplace_back(kFor, kForTorch);
  ZT_ASSIGN_OR_RETURN(FileLayout layout,
                      PlanSafetensors(source, selected,
                                      stated || adds ? std::optional<SafetensorsMetadata>(metadata)
                                                     : std::nullopt));
  if (warns) {
    layout.warnings.emplace_back(
        "added \"format\": \"pt\" to its metadata; Hugging Face refuses files without it");
  }
  if (!as_json.empty()) {
    layout.warnings.push_back("safetensors' metadata is text: " + Listed(as_json) +
                              (as_json.size() == 1 ? " becomes JSON" : " become JSON"));
  }
  return layout;
}

namespace {

StatusOr<FileLayout> PlanGgufFile(const TensorSource& source,
                                  const std::vector<std::uint32_t>& selected) {
  const Value* const attribute = FindMember(source.attributes(), "gguf");
  // PlanSafetensorsFile made a text of it.
  std::optional<Value> record;
  if (attribute != nullptr && attribute->AsString() != nullptr) {
    auto json = ParseJsonObject(*attribute->AsString());
    if (!json.ok()) return Annotate(json.status(), "root attribute 'gguf'");
    record = FromJson(*std::move(json));
  }
  ZT_ASSIGN_OR_RETURN(FileLayout layout, PlanGguf(source, selected, record ? &*record : nullptr));
  if (attribute == nullptr) {
    layout.warnings.emplace_back(
        "llama.cpp cannot load the output, because the input has no GGUF metadata; "
        "its convert_hf_to_gguf.py makes a complete file from the checkpoint's "
        "folder");
  }
  std::vector<std::string> lost;
  for (const auto& [key, value] : source.attributes()) {
    const bool ours = record && key == kFor && value == Value(kForTorch);
    if (key != "gguf" && key != kFolderAttribute && !ours) lost.push_back(key);
  }
  if (!lost.empty())
    layout.warnings.push_back("GGUF does not keep attributes of the whole file: " + Listed(lost));
  return layout;
}

StatusOr<FileLayout> PlanNpzFile(const TensorSource& source,
                                 const std::vector<std::uint32_t>& selected) {
  ZT_ASSIGN_OR_RETURN(FileLayout layout, PlanNpz(source, selected));
  layout.warnings = NumpyLosses(source, selected);
  return layout;
}

StatusOr<FileLayout> PlanNpyFile(const TensorSource& source,
                                 const std::vector<std::uint32_t>& selected) {
  if (selected.size() != 1) {
    return InvalidArgument("an .npy file holds one tensor, there are " +
                           std::to_string(selected.size()) +
                           "; name one, or write to a folder or .npz");
  }
  ZT_ASSIGN_OR_RETURN(FileLayout layout, PlanNpy(source, selected[0]));
  layout.warnings = NumpyLosses(source, selected);
  return layout;
}

// ---- the rows -----------------------------------------------------------------------------------

using FileNames = std::vector<std::string>;

OpenedSource RefuseHdf5(std::shared_ptr<ByteSource>, const InputOptions&) {
  return Unsupported("it is HDF5, which the program alone reads; convert the file with that first");
}

Hdf5Opener g_open_hdf5 = RefuseHdf5;

OpenedSource OpenNpzFile(FormatInput in) {
  if (in.options.format.empty()) {
    ZT_ASSIGN_OR_RETURN(const auto archive, ZipArchive::Open(in.bytes));
    if (HoldsTorch(*archive)) return OpenTorch(std::move(in.bytes), in.stem, in.options);
    if (HoldsKeras(*archive)) return g_open_hdf5(std::move(in.bytes), in.options);
  }
  return OpenNpz(std::move(in.bytes), in.stem, in.options);
}

// A single file, or all parts of a split model.
// Opens .zt shards as one source: an index, or its folder. Each must have the plan of the index, if
// that states one.
OpenedSource OpenZtShards(const std::string& path, const FileNames&, const SourceOptions& options) {
  const auto open = [&](std::shared_ptr<ByteSource> bytes, const std::string& file,
                        const ShardIndex& index) -> OpenedSource {
    std::optional<ShardStamp> stamp;
    ZtOrigin origin{.stamp = &stamp};
    if (const auto listed = index.files.find(file); listed != index.files.end()) {
      origin.digest = listed->second.digest;
      ZT_RETURN_IF_ERROR(ParseDigest(origin.digest).status());
    }
    const std::uint64_t size = bytes->size().value_or(0);
    ZT_ASSIGN_OR_RETURN(auto source, OpenZt(std::move(bytes), options, origin));
    source->AddShard({file, size, origin.digest});
    if (!index.plan.empty() && (!stamp || stamp->plan != index.plan))
      return InvalidData("its plan is not that of the index");
    return source;
  };
  return OpenShards(path, {".zt", open, true}, options);
}

OpenedSource OpenGgufIn(const std::string& path, const FileNames& files,
                        const SourceOptions& options) {
  const auto model = [&](const std::string& file) {
    const std::string set =
        GgufSetOf((std::filesystem::path(path) / file).string(), *options.store);
    return set.empty() ? file : set;
  };
  std::string first;
  for (const std::string& file : files) {
    ZT_RETURN_IF_ERROR(Annotate(CheckStaysInside(path, file, options), file));
    if (first.empty()) first = model(file);
    if (model(file) == first) continue;
    return InvalidArgument("the folder holds several GGUF models, " + Quote(files.front()) +
                           " and " + Quote(file) + " among them; name the file of one");
  }
  return OpenGgufSet((std::filesystem::path(path) / files.front()).string(), options);
}

bool IsZtHead(std::span<const std::byte> head) { return head.size() >= 8 && LooksLikeZt(head); }

// A .zt file may hold an HDF5 file as a tensor, at an offset at which HDF5 files may begin.
bool IsHdf5Head(std::span<const std::byte> head) { return LooksLikeHdf5(head) && !IsZtHead(head); }

constexpr Format kFormats[] = {
    {"safetensors", "safetensors", ".safetensors", true, "", LooksLikeSafetensors,
     [](FormatInput in) { return OpenSafetensors(std::move(in.bytes)); },
     [](const std::string& path, const FileNames&, const SourceOptions& options) {
       return OpenSafetensorsFolder(path, options);
     },
     PlanSafetensorsFile},
    {"npy", "npy 1 to 3", ".npy", false, "", LooksLikeNpy,
     [](FormatInput in) { return OpenNpy(std::move(in.bytes), in.stem, in.options); },
     [](const std::string& path, const FileNames&, const SourceOptions& options) {
       return OpenNpyFolder(path, options);
     },
     PlanNpyFile},
    {"npz", "npz", ".npz", false, "a zip archive", LooksLikeZip, OpenNpzFile, nullptr, PlanNpzFile},
    {"gguf", "GGUF 1 to 3", ".gguf", false, "", LooksLikeGguf,
     [](FormatInput in) {
       return in.path.empty() ? OpenGguf(std::move(in.bytes)) : OpenGgufSet(in.path, in.options);
     },
     OpenGgufIn, PlanGgufFile},
    // The suffix of files in folders; a single .pt or .pth file is recognised by its content.
    {"torch", "PyTorch", ".bin", true, "", LooksLikeTorchStream,
     [](FormatInput in) { return OpenTorch(std::move(in.bytes), in.stem, in.options); },
     [](const std::string& path, const FileNames&, const SourceOptions& options) {
       return OpenTorchFolder(path, options);
     },
     nullptr},
    {"onnx", "ONNX", ".onnx", false, "", LooksLikeOnnx,
     [](FormatInput in) { return OpenOnnx(std::move(in.bytes), in.path, in.options); }, nullptr,
     nullptr},
    {"hdf5", "HDF5, Keras", ".h5 .hdf5 .keras", false, "", IsHdf5Head,
     [](FormatInput in) { return g_open_hdf5(std::move(in.bytes), in.options); }, nullptr, nullptr},
    {"zt", "zTensor 2.0, 1.x, 0.1", ".zt", true, "a .zt file", IsZtHead,
     [](FormatInput in) {
       ZtOrigin origin;
       if (!in.path.empty()) origin.find_shard = ShardsBeside(in.path, in.options);
       return OpenZt(std::move(in.bytes), in.options, origin);
     },
     OpenZtShards, nullptr},
};

// True if `names` are the names of the rows, or, if `written_only`, of the formats that are
// written.
constexpr bool AreNames(std::string_view names, bool written_only) {
  for (const Format& format : kFormats) {
    if (written_only && format.plan == nullptr) continue;
    if (!names.starts_with(format.name)) return false;
    names.remove_prefix(std::min(format.name.size() + 1, names.size()));
  }
  return names.empty();
}
static_assert(AreNames(kReadFormats, false) && AreNames(kWrittenFormats, true));

}  // namespace

void SetHdf5(Hdf5Opener open) { g_open_hdf5 = open; }

std::span<const Format> Formats() { return kFormats; }

const Format* FindFormat(std::string_view name) {
  const auto* const found = std::ranges::find(kFormats, name, &Format::name);
  return found == std::end(kFormats) ? nullptr : found;
}

bool IsIndexOf(const Format& format, std::string_view file) {
  return format.indexed && zt::IsIndexOf(file, Words(format.suffixes)[0]);
}

bool IsIndexPath(std::string_view path) { return zt::IsIndexOf(path, ".zt"); }

bool HasSuffix(const Format& format, std::string_view file) {
  return IsIndexOf(format, file) ||
         std::ranges::any_of(Words(format.suffixes), [&](auto end) { return file.ends_with(end); });
}

bool IsTorchName(std::string_view file) {
  return file.ends_with(".pt") || file.ends_with(".pth") || file.ends_with(".ckpt");
}

bool IsNamedLikeWeights(std::string_view name) {
  constexpr std::string_view kOthers[] = {".onnx_data", ".msgpack", ".tflite",   ".ot",
                                          ".mlmodel",   ".distcp",  ".llamafile"};
  if (ParseIndexName(name)) return false;
  return IsTorchName(name) ||
         std::ranges::any_of(kOthers, [&](auto suffix) { return name.ends_with(suffix); }) ||
         std::ranges::any_of(Formats(),
                             [&](const Format& format) { return HasSuffix(format, name); });
}

StatusOr<const Format*> Recognise(std::span<const std::byte> head) {
  if (head.empty()) return InvalidData("it is empty");
  for (const Format& format : kFormats) {
    if (format.recognise(head)) return &format;
  }
  if (const auto foreign = NameForeign(head)) return Unsupported("it is " + *foreign);
  return InvalidData("its format is not recognised (" + Joined(Words(kReadFormats), "and") +
                     " are); it may be damaged, or its format has to be named");
}

}  // namespace zt
