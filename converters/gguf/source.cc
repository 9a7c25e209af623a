// zt.convert.gguf — the source: declarations from headers; the bytes of a big-endian file are swapped.
module;

#include "core/status_macros.h"

module zt.convert.gguf;

import zt.std;
import zt.core;
import zt.source;
import zt.transform;
import :model;

namespace zt {
using namespace gguf::internal;
namespace {

// The type's name; a type that we do not know is called by its number.
std::string NameOf(const GgufTensor& tensor) {
  if (tensor.unsupported.ok()) return std::string(tensor.type.name);
  return "type_" + std::to_string(tensor.type.id);
}

class GgufSource final : public TensorSource {
 public:
  GgufSource(std::vector<File> files, std::vector<std::string> warnings) {
    warnings_ = std::move(warnings);
    for (std::uint32_t f = 0; f < files.size(); ++f) Add(files[f], f);
    attributes_.emplace_back("gguf", RecordOf(files));
    for (File& file : files) files_.push_back(std::move(file.bytes));
  }

  std::string_view format() const override { return "gguf"; }
  const std::string& file(ComponentId id) const override {
    const bool own = places_.empty() || (files_.size() == 1 && !file_.empty());
    return own ? file_ : files_[places_[id.object].file]->name();
  }

  Status CheckReadable(std::uint32_t object) const override {
    const auto found = unreadable_.find(object);
    return found == unreadable_.end() ? OkStatus() : found->second;
  }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    ZT_RETURN_IF_ERROR(CheckReadable(id.object));
    const Place& place = places_[id.object];
    const std::uint64_t size = objects_[id.object].components[0].bytes;
    if (offset > size || out.size() > size - offset) {
      return InvalidArgument("range beyond the component");
    }
    ByteSource& bytes = *files_[place.file];
    const std::uint32_t unit = place.swap.unit;
    std::uint64_t at = place.offset + offset;
    // Parts of a unit at either end go through a block of their own.
    while (unit > 1 && !out.empty()) {
      const std::uint64_t into = (at - place.offset) % unit;
      if (into == 0 && out.size() >= unit) break;
      ZT_RETURN_IF_ERROR(ReadPart(place, at - into, into, out, &at));
    }
    const std::size_t whole = out.size() / unit * unit;
    ZT_RETURN_IF_ERROR(bytes.ReadAt(at, out.first(whole)));
    if (unit > 1) SwapUnits(place.swap, out.first(whole));
    at += whole;
    out = out.subspan(whole);
    if (out.empty()) return OkStatus();
    return ReadPart(place, at, 0, out, &at);
  }

  bool sequential(ComponentId) const override { return !seekable(); }
  bool seekable() const override {
    for (const auto& file : files_) {
      if (file->sequential()) return false;
    }
    return true;
  }
  std::optional<Extent> extent(ComponentId id) const override {
    const Place& place = places_[id.object];
    if (place.swap.unit != 1 || files_[place.file]->sequential()) return std::nullopt;
    return Extent{files_[place.file].get(), place.offset, objects_[id.object].components[0].bytes};
  }
  Status Finish() override {
    for (const auto& file : files_) {
      ZT_RETURN_IF_ERROR(WithFile(file->CheckUnchanged(), file->name()));
    }
    return OkStatus();
  }

 private:
  struct Place {
    std::uint32_t file;
    std::uint64_t offset;
    ByteOrder swap;
  };

  // Serves what `out` wants of the unit at `start` from its byte `into`; moves `out` and `*at` past it.
  Status ReadPart(const Place& place, std::uint64_t start, std::uint64_t into,
                  std::span<std::byte>& out, std::uint64_t* at) {
    std::array<std::byte, 512> buffer;  // larger than any block
    const std::span<std::byte> unit(buffer.data(), place.swap.unit);
    ByteSource& bytes = *files_[place.file];
    ZT_RETURN_IF_ERROR(bytes.ReadAt(start, unit));
    SwapUnits(place.swap, unit);
    const std::size_t take = std::min<std::size_t>(out.size(), unit.size() - into);
    std::memcpy(out.data(), unit.data() + into, take);
    out = out.subspan(take);
    *at += take;
    return OkStatus();
  }

  // Adds the tensor's object; how its bytes are swapped when they are read.
  ByteOrder Declare(const GgufTensor& tensor, bool big_endian) {
    ByteOrder swap;
    Status readable = tensor.unsupported;
    if (readable.ok() && big_endian) {
      auto order = ByteOrderOf(tensor.type);
      order.ok() ? static_cast<void>(swap = *order) : static_cast<void>(readable = order.status());
    }
    if (!readable.ok()) {
      unreadable_.emplace(static_cast<std::uint32_t>(objects_.size()), std::move(readable));
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

  // The root attribute "gguf". Takes the first header's metadata.
  Value RecordOf(std::vector<File>& files) {
    GgufHeader& first = files.front().header;
    Value::Map record;
    if (first.swapped_magic) record.emplace_back("magic", Value("FUGG"));
    record.emplace_back("version", Value(first.version));
    record.emplace_back("byte_order", Value(first.big_endian ? "big" : "little"));
    record.emplace_back("alignment", Value(first.alignment));
    record.emplace_back("kv", Value(std::move(first.kv)));
    Value::Array tensors;
    std::uint64_t end = first.header_bytes;
    for (const File& file : files) {
      for (const GgufTensor& tensor : file.header.tensors) {
        Value::Array entry{Value(tensor.name), Value(NameOf(tensor))};
        if (files.size() == 1) entry.emplace_back(tensor.offset);
        tensors.emplace_back(std::move(entry));
        if (tensor.bytes > 0) end = std::max(end, first.data_offset + tensor.offset + tensor.bytes);
      }
    }
    record.emplace_back("tensors", Value(std::move(tensors)));
    const auto size = files.front().bytes->size();
    if (files.size() == 1 && size) {
      // Said only where the file does not end with the padding of the last tensor, so that a pipe, whose size is not
      // known, gives the same record.
      if (*size != first.Align(end)) record.emplace_back("file_bytes", Value(*size));
      if (*size >= end && *size - end >= first.alignment) {
        warnings_.push_back(std::to_string(*size - end) +
                            " bytes after the last tensor are ignored");
      }
    }
    return Value(std::move(record));
  }

  std::vector<std::shared_ptr<ByteSource>> files_;
  std::vector<Place> places_;
  std::unordered_map<std::uint32_t, Status>
      unreadable_;  // objects that are listed, and why only that
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

}  // namespace zt
