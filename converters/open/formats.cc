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

// The keys of a GGUF under which ComfyUI's tools note the shape of a tensor, whose name follows.
constexpr std::string_view kOriginalShape = "comfy.gguf.orig_shape.";

// The pairs of metadata in the attribute "gguf"; empty if it is another value.
Value::Array PairsOf(const Value& record) {
  const Value::Map* const map = record.AsMap();
  const Value* const pairs = map == nullptr ? nullptr : FindMember(*map, "kv");
  return pairs == nullptr || pairs->AsArray() == nullptr ? Value::Array() : *pairs->AsArray();
}

// The record in the attribute "gguf", of which PlanSafetensorsFile made a text.
StatusOr<Value> GgufRecordOf(const Value& attribute) {
  if (attribute.AsString() == nullptr) return attribute;
  const auto json = ParseJsonObject(*attribute.AsString());
  return json.ok() ? FromJson(Value(*json)) : json.status();
}

// The name of the tensor whose shape a pair notes; nullopt if it is another pair.
std::optional<std::string_view> ShapedBy(const Value& pair) {
  const Value::Array* const parts = pair.AsArray();
  const std::string* const key =
      parts == nullptr || parts->empty() ? nullptr : parts->front().AsString();
  if (key == nullptr || !key->starts_with(kOriginalShape)) return std::nullopt;
  return std::string_view(*key).substr(kOriginalShape.size());
}

}  // namespace

std::unique_ptr<TensorSource> WithOriginalShapes(std::unique_ptr<TensorSource> source) {
  const Value* const record = FindMember(source->attributes(), "gguf");
  std::map<std::string, Shape, std::less<>> shapes;
  for (const Value& pair : record == nullptr ? Value::Array() : PairsOf(*record)) {
    const auto name = ShapedBy(pair);
    const Value::Array* const parts = pair.AsArray();  // key, "array", [type, numbers]
    const Value::Array* const typed = name && parts->size() == 3 ? (*parts)[2].AsArray() : nullptr;
    const Value::Array* const sizes =
        typed == nullptr || typed->size() != 2 ? nullptr : (*typed)[1].AsArray();
    Shape shape;
    for (const Value& size : sizes == nullptr ? Value::Array() : *sizes) {
      if (const std::uint64_t* number = size.AsUint()) shape.push_back(*number);
    }
    if (sizes != nullptr && shape.size() == sizes->size() && shape.size() <= kMaxRank)
      shapes.emplace(*name, std::move(shape));
  }
  if (shapes.empty()) return source;
  auto shaped = std::make_unique<RegroupedSource>(std::move(source));
  const std::vector<Object>& objects = shaped->inner().objects();
  for (std::uint32_t i = 0; i < objects.size(); ++i) {
    Object object = objects[i];
    const auto found = shapes.find(object.name);
    const bool plain = object.format == "dense" || object.format.starts_with("gguf.");
    if (plain && found != shapes.end() && ElementCount(found->second) == ElementCount(object.shape))
      object.shape = found->second;
    shaped->Keep(i, std::move(object));
  }
  return shaped;
}

Value RenamedInGguf(const Value& attribute, const NewNames& names) {
  const StatusOr<Value> record = GgufRecordOf(attribute);
  if (!record.ok() || record->AsMap() == nullptr) return attribute;
  Value::Map map = *record->AsMap();
  Value::Array pairs, tensors;
  for (const Value& pair : PairsOf(*record)) {
    const auto name = ShapedBy(pair);
    const auto found = name ? names.find(*name) : names.end();
    if (name && found == names.end()) continue;
    Value::Array parts = name ? *pair.AsArray() : Value::Array();
    if (name) parts.front() = std::string(kOriginalShape) + std::string(found->second);
    pairs.push_back(name ? Value(std::move(parts)) : pair);
  }
  const Value* const listed = FindMember(map, "tensors");
  for (const Value& entry :
       listed == nullptr || listed->AsArray() == nullptr ? Value::Array() : *listed->AsArray()) {
    Value::Array parts = entry.AsArray() == nullptr ? Value::Array() : *entry.AsArray();
    const std::string* const name = parts.empty() ? nullptr : parts.front().AsString();
    const auto found = name == nullptr ? names.end() : names.find(*name);
    if (found == names.end()) continue;
    parts.front() = found->second;
    tensors.emplace_back(std::move(parts));
  }
  SetMember(map, "kv", std::move(pairs));
  SetMember(map, "tensors", std::move(tensors));
  if (attribute.AsString() == nullptr) return map;
  std::string text;
  AppendJson(map, text);
  return text;
}

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
  std::optional<Value> record;
  if (attribute != nullptr && attribute->AsString() != nullptr) {
    auto held = GgufRecordOf(*attribute);
    if (!held.ok()) return Annotate(held.status(), "root attribute 'gguf'");
    record = *std::move(held);
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

// Opens files of a folder whose content is of another format than that which `is_own` recognises.
OpenOther ByContent(bool (*is_own)(std::span<const std::byte>), const SourceOptions& options) {
  return [=](const std::shared_ptr<ByteSource>& bytes, const std::string& path) -> OpenedSource {
    ZT_ASSIGN_OR_RETURN(const std::vector<std::byte> head, Peek(*bytes, kHeadBytes));
    if (is_own(head)) return std::unique_ptr<TensorSource>();
    const auto found = RecogniseFile(head, path, *options.store);
    if (found.ok()) {
      return (*found)->open({bytes, "", std::filesystem::path(path).stem().string(), options});
    }
    if (found.status().code() == StatusCode::kUnimplemented) return found.status();
    return std::unique_ptr<TensorSource>();
  };
}

OpenedSource OpenGgufIn(const std::string& path, const FileNames& files,
                        const SourceOptions& options) {
  const auto model = [&](const std::string& file) -> StatusOr<std::string> {
    const std::string name = (std::filesystem::path(path) / file).string();
    ZT_ASSIGN_OR_RETURN(const std::string set, WithFile(GgufSetOf(name, *options.store), name));
    return set.empty() ? file : set;
  };
  std::string first, set;
  for (const std::string& file : files) {
    ZT_RETURN_IF_ERROR(Annotate(CheckStaysInside(path, file, options), file));
    if (!options.variant.empty() && !IsOfVariant(file, ".gguf", options.variant)) continue;
    ZT_ASSIGN_OR_RETURN(const std::string own, model(file));
    if (first.empty()) {
      first = file;
      set = own;
    }
    if (own == set) continue;
    return WithAdvice(InvalidArgument("the folder holds several GGUF models, " + Quote(first) +
                                      " and " + Quote(file) + " among them; name the file of one"),
                      Advice::kVariant);
  }
  if (first.empty())
    return InvalidArgument("no GGUF file of the folder is of the variant " +
                           Quote(options.variant) + ", but " + Quote(files.front()));
  const std::string file = (std::filesystem::path(path) / first).string();
  return WithFile(OpenGgufSet(file, options), file);
}

bool IsZtHead(std::span<const std::byte> head) { return head.size() >= 8 && LooksLikeZt(head); }

// A .zt file may hold an HDF5 file as a tensor, at an offset at which HDF5 files may begin.
bool IsHdf5Head(std::span<const std::byte> head) { return LooksLikeHdf5(head) && !IsZtHead(head); }

constexpr Format kFormats[] = {
    {"safetensors", "safetensors", ".safetensors", true, "", LooksLikeSafetensors,
     [](FormatInput in) { return OpenSafetensors(std::move(in.bytes)); },
     [](const std::string& path, const FileNames&, const SourceOptions& options) {
       return OpenSafetensorsFolder(path, options, ByContent(LooksLikeSafetensors, options));
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
       const auto is_own = [](std::span<const std::byte> head) {
         return LooksLikeZip(head) || LooksLikeTorchStream(head);
       };
       return OpenTorchFolder(path, options, ByContent(is_own, options));
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

bool IsKerasIndex(std::string_view file) { return file.ends_with(".weights.json"); }

// The weight_map has for each group of variables the file, or files, in which it is.
OpenedSource OpenKerasIndex(const std::string& path, const SourceOptions& options) {
  constexpr std::uint64_t kMostIndex = std::uint64_t{100} << 20;
  ZT_ASSIGN_OR_RETURN(const auto text, options.store->Open(path));
  ZT_ASSIGN_OR_RETURN(const std::string json, ReadAll(*text, kMostIndex));
  ZT_ASSIGN_OR_RETURN(const auto index, ParseJsonObject(json));
  const Value* const map = FindMember(index, "weight_map");
  if (map == nullptr || map->AsMap() == nullptr) return InvalidData("it has no weight_map");
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::map<std::string, std::set<std::string>> groups;  // by file
  for (const auto& [group, value] : *map->AsMap()) {
    const Value one[] = {value};
    for (const Value& file : value.AsArray() != nullptr ? std::span<const Value>(*value.AsArray())
                                                        : std::span<const Value>(one)) {
      const std::string* const name = file.AsString();
      if (name == nullptr || std::filesystem::path(*name).filename() != *name || name->empty())
        return InvalidData("the file of " + Quote(group) + " is no file of the folder itself");
      groups[*name].insert(group.substr(group.starts_with('/') ? 1 : 0));
    }
  }
  std::vector<std::unique_ptr<TensorSource>> sources;
  std::vector<std::string> names;
  for (const auto& [name, held] : groups) {
    const std::string file = (folder / name).string();
    ZT_RETURN_IF_ERROR(WithFile(CheckStaysInside(folder.string(), name, options), file));
    ZT_ASSIGN_OR_RETURN(const bool there, WithFile(options.store->HasName(file), file));
    if (!there) return InvalidData("shard " + name + " is missing");
    auto bytes = options.store->Open(file);
    if (!bytes.ok()) return WithFile(bytes.status(), file);
    auto source = g_open_hdf5(*std::move(bytes), options);
    if (!source.ok()) return WithFile(source.status(), file);
    for (const std::string& group : held) {
      const auto is_in = [&](const Object& object) { return object.name.starts_with(group + "/"); };
      if (std::ranges::none_of((*source)->objects(), is_in)) {
        (*source)->AddWarning(std::filesystem::path(path).filename().string() + " puts " +
                              Quote(group) + " into " + name + ", which has no variables of it");
      }
    }
    if ((*source)->file({}).empty()) (*source)->SetFile(file);
    sources.push_back(*std::move(source));
    names.push_back(name);
  }
  if (sources.empty()) return InvalidData("it names no file");
  ZT_ASSIGN_OR_RETURN(auto merged, MergeSources(std::move(sources), std::move(names)));
  merged->AddOtherFile(path);
  return merged;
}

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

StatusOr<const Format*> RecogniseFile(std::span<const std::byte> head, const std::string& path,
                                      Store& store) {
  auto found = Recognise(head);
  const std::string model = std::filesystem::path(path).replace_extension(".xml").string();
  const bool unknown = found.status().code() == StatusCode::kDataLoss && path.ends_with(".bin");
  if (!unknown) return found;
  ZT_ASSIGN_OR_RETURN(const bool there, WithFile(store.IsFile(model), model));
  if (!there) return found;
  return Unsupported(
      "it is the weights of an OpenVINO model (its .xml is beside it), which is not read; convert "
      "the "
      "model that it was made of");
}

StatusOr<const Format*> Recognise(std::span<const std::byte> head) {
  if (head.empty()) return InvalidData("it is empty");
  for (const Format& format : kFormats) {
    if (format.recognise(head)) return &format;
  }
  if (const auto foreign = NameForeign(head)) return Unsupported("it is " + *foreign);
  // A header of safetensors beyond the limit, but not absurd.
  constexpr std::size_t kLength = 8;
  if (head.size() > kLength + 1 && head[kLength] == std::byte{'{'} &&
      head[kLength + 1] == std::byte{'"'}) {
    std::uint64_t claimed = 0;
    for (std::size_t i = kLength; i > 0; --i)
      claimed = claimed << 8 | std::to_integer<std::uint64_t>(head[i - 1]);
    if (claimed > kMaxSafetensorsHeader && claimed >> 40 == 0) {
      return InvalidData("it may be safetensors, but its header claims " + std::to_string(claimed) +
                         " bytes, the limit is " + std::to_string(kMaxSafetensorsHeader));
    }
  }
  return WithAdvice(
      InvalidData("its format is not recognised (" + Joined(Words(kReadFormats), "and") +
                  " are); it may be damaged, or its format has to be named"),
      Advice::kFormat);
}

}  // namespace zt
