// zt.convert.gguf — the source: declares the tensors of a file or of the shards of a split set;
// swaps the bytes of big-endian files.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.gguf;

import zt.std;
import :model;
import zt.convert.shards;
import zt.core;
import zt.source;
import zt.transform;

namespace zt {
using namespace gguf::internal;
namespace {

// The type's name; "type_" and the number for an unknown type.
std::string NameOf(const GgufTensor& tensor) {
  if (tensor.unsupported.ok()) return std::string(tensor.type.name);
  return "type_" + std::to_string(tensor.type.id);
}

class GgufSource final : public TensorSource {
 public:
  GgufSource(std::vector<File> files, std::vector<std::string> warnings) {
    warnings_ = std::move(warnings);
    for (std::uint32_t f = 0; f < files.size(); ++f) Add(files[f], f);
    WarnOfUnusual(files);
    attributes_.emplace_back("gguf", RecordOf(files));
    for (File& file : files) {
      AddOtherFile(file.bytes->name());  // it may hold no tensor
      files_.push_back(std::move(file.bytes));
    }
  }

  std::string_view format() const override { return "gguf"; }
  const std::string& file(ComponentId id) const override {
    const bool own = places_.empty() || (files_.size() == 1 && !file_.empty());
    return own ? file_ : files_[places_[id.object].file]->name();
  }

  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    ZT_RETURN_IF_ERROR(CheckRange(id, offset, out.size()));
    const TensorLocation& place = places_[id.object];
    return ReadUnits(offset, out, place.swap.unit,
                     [&](std::uint64_t at, std::span<std::byte> units) -> Status {
                       ZT_RETURN_IF_ERROR(files_[place.file]->ReadAt(place.offset + at, units));
                       SwapUnits(place.swap, units);
                       return OkStatus();
                     });
  }

  bool sequential(ComponentId) const override { return !seekable(); }
  bool seekable() const override {
    return std::ranges::none_of(files_, [](const auto& file) { return file->sequential(); });
  }
  std::optional<Extent> extent(ComponentId id) const override {
    const TensorLocation& place = places_[id.object];
    if (place.swap.unit != 1 || files_[place.file]->sequential()) return std::nullopt;
    return Extent{files_[place.file].get(), place.offset, objects_[id.object].components[0].bytes};
  }
  Status Finish() override {
    for (const auto& file : files_) {
      ZT_RETURN_IF_ERROR(WithFile(file->CheckUnchanged(), file->name()));
      if (!file->size()) ZT_RETURN_IF_ERROR(WithFile(CheckEnd(*file), file->name()));
    }
    return OkStatus();
  }

 private:
  struct TensorLocation {
    std::uint32_t file;
    std::uint64_t offset;
    ByteOrder swap;
  };

  // Of a pipe, whose size is only known there: see RecordOf.
  Status CheckEnd(ByteSource& pipe) {
    ZT_ASSIGN_OR_RETURN(const bool at_end, pipe.AtEnd(end_));
    std::byte beyond;
    const Status more =
        at_end ? OkStatus() : pipe.ReadAt(end_ + alignment_ - 1, std::span(&beyond, 1));
    if (!at_end && more.ok()) AddWarning("bytes after the last tensor are ignored");
    return more.code() == StatusCode::kDataLoss ? OkStatus() : more;
  }

  // Adds the tensor's object, and returns how its bytes have to be swapped.
  ByteOrder Declare(const GgufTensor& tensor, bool big_endian) {
    ByteOrder swap;
    Status readable = tensor.unsupported;
    if (readable.ok() && big_endian) {
      auto order = ByteOrderOf(tensor.type);
      order.ok() ? static_cast<void>(swap = *order) : static_cast<void>(readable = order.status());
    }
    if (!readable.ok()) {
      problems_.emplace(static_cast<std::uint32_t>(objects_.size()), std::move(readable));
    }
    Object object;
    object.name = tensor.name;
    object.shape = tensor.shape;
    Component data{"data", {DType::kU8, ""}, tensor.bytes};
    if (tensor.type.plain) {
      data.element.dtype = *tensor.type.plain;
    } else {
      object.format = GgmlFormat(NameOf(tensor));
      if (tensor.unsupported.ok()) {
        object.attributes.emplace_back("elems_per_block", Value(tensor.type.elems));
        object.attributes.emplace_back("block_bytes", Value(tensor.type.bytes));
      }
    }
    object.components.push_back(std::move(data));
    objects_.push_back(std::move(object));
    return swap;
  }

  void Add(const File& file, std::uint32_t index) {
    std::vector<const GgufTensor*> order;
    order.reserve(file.header.tensors.size());
    for (const GgufTensor& tensor : file.header.tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
      return std::tie(a->offset, a->bytes, a) < std::tie(b->offset, b->bytes, b);
    });
    for (const GgufTensor* tensor : order) {
      const ByteOrder swap = Declare(*tensor, file.header.big_endian);
      places_.push_back({index, file.header.data_offset + tensor->offset, swap});
    }
  }

  // Warns of what PlanGguf does not reproduce, since llama.cpp refuses it.
  void WarnOfUnusual(const std::vector<File>& files) {
    const auto any = [&](auto is) { return std::ranges::any_of(files, is); };
    const auto warn = [&](std::string_view what) {
      AddWarning("llama.cpp does not load it, because " + std::string(what) +
                 "; a GGUF file that is written from it is laid out in the usual way");
    };
    if (any([](const File& file) { return file.header.scattered; }))
      warn("its tensors do not follow one another in the order of its header");
    if (any([](const File& file) { return file.header.swapped_magic; }))
      warn("it begins with FUGG");
    if (any([](const File& file) { return file.header.version == 1; })) warn("it is of version 1");
  }

  // Makes the root attribute "gguf". Moves the first header's metadata.
  Value RecordOf(std::vector<File>& files) {
    GgufHeader& first = files.front().header;
    Value::Map record;
    record.emplace_back("version", Value(first.version));
    record.emplace_back("byte_order", Value(first.big_endian ? "big" : "little"));
    record.emplace_back("alignment", Value(first.alignment));
    record.emplace_back("kv", Value(std::move(first.kv)));
    Value::Array tensors;
    alignment_ = first.alignment;
    end_ = first.header_bytes;
    for (const File& file : files) {
      for (const GgufTensor& tensor : file.header.tensors) {
        tensors.emplace_back(Value::Array{Value(tensor.name), Value(NameOf(tensor))});
        if (tensor.bytes > 0)
          end_ = std::max(end_, first.data_offset + tensor.offset + tensor.bytes);
      }
    }
    record.emplace_back("tensors", Value(std::move(tensors)));
    const auto size = files.front().bytes->size();
    if (files.size() == 1 && size && *size >= end_ && *size - end_ >= alignment_)
      AddWarning(std::to_string(*size - end_) + " bytes after the last tensor are ignored");
    return Value(std::move(record));
  }

  std::vector<std::shared_ptr<ByteSource>> files_;
  std::vector<TensorLocation> places_;
  std::uint64_t end_ = 0, alignment_ = 1;  // of the last tensor; beyond it, more than padding
};

}  // namespace

namespace gguf::internal {

StatusOr<GgufHeader> ReadHeader(ByteSource& bytes) {
  constexpr std::size_t kFirst = 64 << 10;
  for (std::size_t want = kFirst;; want *= 4) {
    ZT_ASSIGN_OR_RETURN(const std::vector<std::byte> head, Peek(bytes, want));
    std::optional<std::uint64_t> size = bytes.size();
    if (!size && head.size() < want) size = head.size();
    ZT_ASSIGN_OR_RETURN(std::optional<GgufHeader> header, ParseGgufHeader(head, size));
    if (header) return *std::move(header);
    if (head.size() < want) return InvalidData("the header is truncated");
  }
}

std::unique_ptr<TensorSource> MakeSource(std::vector<File> files,
                                         std::vector<std::string> warnings) {
  return std::make_unique<GgufSource>(std::move(files), std::move(warnings));
}

}  // namespace gguf::internal

bool LooksLikeGguf(std::span<const std::byte> head) {
  if (head.size() < 4) return false;
  return std::memcmp(head.data(), "GGUF", 4) == 0 || std::memcmp(head.data(), "FUGG", 4) == 0;
}

using namespace gguf::internal;
namespace {

namespace fs = std::filesystem;

std::string_view BaseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Parses the name of a shard, numbered from 1.
std::optional<ShardName> NameOf(std::string_view path) {
  auto name = zt::ParseShardName(path, ".gguf");
  return name && name->part > 0 ? name : std::nullopt;
}

// The path of shard `number` of the same set.
std::string PathOf(const ShardName& name, std::uint64_t number) {
  std::string digits = std::to_string(number);
  const auto width = static_cast<std::size_t>(name.width);
  digits.insert(0, width - std::min(width, digits.size()), '0');
  return std::string(name.set).replace(name.set.rfind('*'), 1, digits);
}

bool IsShard(const GgufHeader& header) { return header.split_count.value_or(0) > 1; }

// True if a file with the keys of a split set has all tensors of the set itself.
bool IsWhole(const GgufHeader& header) {
  return header.split_tensors && *header.split_tensors == header.tensors.size();
}

std::string Describe(const GgufHeader& header) {
  const std::string number =
      header.split_no ? std::to_string(*header.split_no + 1) : std::string("one");
  return "it is shard " + number + " of " + std::to_string(*header.split_count);
}

StatusOr<File> OpenFileHeader(const std::string& path, Store& store) {
  ZT_ASSIGN_OR_RETURN(auto bytes, store.Open(path));
  ZT_ASSIGN_OR_RETURN(GgufHeader header, ReadHeader(*bytes));
  return File{std::move(bytes), std::move(header)};
}

StatusOr<std::unique_ptr<TensorSource>> Single(File file, InputOptions options) {
  std::vector<std::string> warnings;
  const GgufHeader& header = file.header;
  if (IsShard(header)) {
    if (IsWhole(header)) {
      warnings.push_back("its metadata says that " + Describe(header) +
                         ", but every tensor is in this file");
    } else if (!options.allow_single_shard) {
      return InvalidData(Describe(header) + " of a split set, which holds only " +
                         std::to_string(header.tensors.size()) +
                         " of its tensors; give the path of a shard named "
                         "NAME-00001-of-0000N.gguf with the others beside it");
    }
  }
  std::vector<File> files;
  files.push_back(std::move(file));
  return MakeSource(std::move(files), std::move(warnings));
}

// Checks that `header` is shard `index` of the set to which the first shard belongs.
Status CheckSplit(const GgufHeader& header, std::uint64_t index, std::uint64_t count,
                  std::optional<std::uint64_t> total) {
  if (!header.split_count || *header.split_count != count) {
    return InvalidData("split.count is " +
                       (header.split_count ? std::to_string(*header.split_count) : "missing") +
                       ", the set has " + std::to_string(count) + " shards");
  }
  if (!header.split_no || *header.split_no != index) {
    return InvalidData("split.no is " +
                       (header.split_no ? std::to_string(*header.split_no) : "missing") +
                       ", its name asks for " + std::to_string(index));
  }
  if (header.split_tensors && total && *header.split_tensors != *total) {
    return InvalidData("split.tensors.count is " + std::to_string(*header.split_tensors) +
                       ", an earlier shard says " + std::to_string(*total));
  }
  return OkStatus();
}

// Opens a shard of the set of `given`. `given` itself may lie in any folder.
StatusOr<File> OpenPart(const std::string& path, const std::string& given,
                        const InputOptions& options) {
  const fs::path part(path);
  const std::string folder = part.has_parent_path() ? part.parent_path().string() : ".";
  if (path != given)
    ZT_RETURN_IF_ERROR(CheckStaysInside(folder, part.filename().string(), options));
  ZT_ASSIGN_OR_RETURN(const bool there, options.store->HasName(path));
  if (!there) return InvalidData("it is missing");
  return OpenFileHeader(path, *options.store);
}

StatusOr<std::unique_ptr<TensorSource>> OpenShards(const ShardName& name, const std::string& given,
                                                   const InputOptions& options) {
  std::vector<File> files;
  std::vector<std::string> warnings;
  std::optional<std::uint64_t> total;
  std::uint64_t tensors = 0;
  for (std::uint64_t i = 0; i < name.count; ++i) {
    const std::string path = PathOf(name, i + 1);
    const std::string label(BaseName(path));
    auto file = OpenPart(path, given, options);
    if (!file.ok()) {
      return Annotate(file.status(), "shard " + std::to_string(i + 1) + " of " +
                                         std::to_string(name.count) + ", " + label);
    }
    ZT_RETURN_IF_ERROR(Annotate(CheckSplit(file->header, i, name.count, total), label));
    if (file->header.split_tensors) total = file->header.split_tensors;
    tensors += file->header.tensors.size();
    auto& kv = file->header.kv;
    std::erase_if(kv, IsSplitKey);
    if (i > 0 && !kv.empty()) {
      warnings.push_back(label + ": " + std::to_string(kv.size()) +
                         " metadata pairs are not kept; the first shard's are");
      kv = {};
    }
    files.push_back(*std::move(file));
  }
  if (total && *total != tensors) {
    return InvalidData("split.tensors.count is " + std::to_string(*total) + ", the " +
                       std::to_string(name.count) + " shards have " + std::to_string(tensors) +
                       " tensors");
  }
  std::unordered_map<std::string_view, std::size_t, zt::internal::NameHash> owner;
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (const GgufTensor& tensor : files[i].header.tensors) {
      const auto [held, fresh] = owner.emplace(tensor.name, i);
      if (!fresh) {
        return WithTensor(InvalidData("it is in both " +
                                      std::string(BaseName(files[held->second].bytes->name())) +
                                      " and " + std::string(BaseName(files[i].bytes->name()))),
                          tensor.name);
      }
    }
  }
  return MakeSource(std::move(files), std::move(warnings));
}

}  // namespace

StatusOr<std::unique_ptr<TensorSource>> OpenGguf(std::shared_ptr<ByteSource> bytes,
                                                 InputOptions options) {
  ZT_ASSIGN_OR_RETURN(GgufHeader header, ReadHeader(*bytes));
  return Single(File{std::move(bytes), std::move(header)}, options);
}

StatusOr<std::string> GgufSetOf(const std::string& path, Store& store) {
  const auto name = NameOf(path);
  if (!name) return "";
  const auto file = OpenFileHeader(path, store);
  ZT_RETURN_IF_UNAVAILABLE(file.status());
  if (!file.ok() || !IsShard(file->header) || IsWhole(file->header)) return "";
  return PathOf(*name, 1);
}

StatusOr<std::unique_ptr<TensorSource>> OpenGgufSet(const std::string& path, InputOptions options) {
  ZT_ASSIGN_OR_RETURN(File file, OpenFileHeader(path, *options.store));
  if (!IsShard(file.header) || IsWhole(file.header) || options.allow_single_shard) {
    return Single(std::move(file), options);
  }
  const auto name = NameOf(path);
  if (!name) {
    return InvalidData(Describe(file.header) +
                       " of a split set, but its name is not NAME-00001-of-0000N.gguf, so the "
                       "others cannot be found");
  }
  if (name->count != *file.header.split_count) {
    return InvalidData(Describe(file.header) + " by its metadata, of " +
                       std::to_string(name->count) + " by its name");
  }
  return OpenShards(*name, path, options);
}

}  // namespace zt
