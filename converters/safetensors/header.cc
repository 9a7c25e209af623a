// zt.convert.safetensors — one file: header, checks, ranges.
module;

#include <simdjson.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/status_macros.h"

module zt.convert.safetensors;

import :dtypes;
import zt.core;
import zt.source;

namespace zt {
namespace {

namespace dom = simdjson::dom;
using safetensors::internal::DTypeRow;
using safetensors::internal::kDTypes;
using safetensors::internal::kLogicalShape;

// The length of the shortest entry a header can hold: "":{"dtype":"","shape":[],"data_offsets":[0,0]}
constexpr std::size_t kLeastEntryBytes = 48;

struct Range {
  std::uint64_t begin = 0, end = 0;
};

StatusOr<std::uint64_t> Unsigned(const dom::element& value, std::string_view what) {
  std::uint64_t number;
  if (value.get_uint64().get(number) != simdjson::SUCCESS) {
    return InvalidData(std::string(what) + " is not an unsigned integer");
  }
  return number;
}

// The shape whose elements are the packed bytes: the last dimension shrinks where it holds whole bytes, else the
// tensor is flat.
Shape PackedShape(const Shape& logical, unsigned bits, std::uint64_t bytes) {
  Shape packed = logical;
  if (!packed.empty() && packed.back() <= (~std::uint64_t{0}) / bits &&
      packed.back() * bits % 8 == 0) {
    packed.back() = packed.back() * bits / 8;
    return packed;
  }
  return {bytes};
}

class SafetensorsSource final : public TensorSource {
 public:
  explicit SafetensorsSource(std::shared_ptr<ByteSource> bytes) : bytes_(std::move(bytes)) {}

  Status Init() {
    std::byte length[8];
    ZT_RETURN_IF_ERROR(bytes_->ReadAt(0, length));
    std::uint64_t header_bytes = 0;
    for (int i = 7; i >= 0; --i)
      header_bytes = header_bytes << 8 | static_cast<std::uint64_t>(length[i]);
    if (header_bytes > kMaxSafetensorsHeader) {
      return InvalidData("the header claims " + std::to_string(header_bytes) +
                         " bytes, the limit is " + std::to_string(kMaxSafetensorsHeader));
    }
    const auto size = bytes_->size();
    if (size && header_bytes + 8 > *size) {
      return InvalidData("the header claims " + std::to_string(header_bytes) +
                         " bytes, the file has " + std::to_string(*size) + " in all");
    }
    ZT_ASSIGN_OR_RETURN(std::string header, ReadHeader(header_bytes));
    data_begin_ = header_bytes + 8;
    ZT_RETURN_IF_ERROR(ParseHeader(std::move(header)));
    return CheckCoverage();
  }

  std::string_view format() const override { return "safetensors"; }
  bool seekable() const override { return !bytes_->sequential(); }
  bool sequential(ComponentId) const override { return bytes_->sequential(); }
  std::optional<Extent> extent(ComponentId id) const override {
    const Range& range = ranges_[id.object];
    return Extent{bytes_.get(), data_begin_ + range.begin, range.end - range.begin};
  }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    return bytes_->ReadAt(data_begin_ + ranges_[id.object].begin + offset, out);
  }
  Status Finish() override { return Annotate(CheckEnd(), bytes_->name()); }

 private:
  Status CheckEnd() {
    if (bytes_->size()) return bytes_->CheckUnchanged();
    ZT_ASSIGN_OR_RETURN(const bool at_end, bytes_->AtEnd(data_begin_ + data_bytes_));
    return at_end ? OkStatus() : InvalidData("there are bytes after the last tensor");
  }

  // Memory grows with the bytes that have come: a pipe may claim any length.
  StatusOr<std::string> ReadHeader(std::uint64_t header_bytes) {
    std::string header;
    while (header.size() < header_bytes) {
      const std::size_t have = header.size();
      const std::uint64_t step =
          bytes_->size() ? header_bytes : std::min<std::uint64_t>(header_bytes - have, 1 << 20);
      header.resize(have + step);
      ZT_RETURN_IF_ERROR(
          bytes_->ReadAt(8 + have, std::as_writable_bytes(std::span(header.data() + have, step))));
    }
    return header;
  }

  Status ParseHeader(std::string header) {
    dom::parser parser;
    dom::element root;
    header.reserve(header.size() + simdjson::SIMDJSON_PADDING);  // then it is parsed where it is
    if (const auto error = parser.parse(header).get(root); error != simdjson::SUCCESS) {
      if (error == simdjson::MEMALLOC) return IoError("out of memory");
      return InvalidData(std::string("the header is not JSON: ") + simdjson::error_message(error));
    }
    dom::object entries;
    if (root.get_object().get(entries) != simdjson::SUCCESS) {
      return InvalidData("the header is not a JSON object");
    }
    std::pmr::monotonic_buffer_resource memory;
    std::pmr::unordered_set<std::string_view> names(&memory);
    // The reservation is bounded by the number of whole entries that fit the header.
    const std::size_t expected = std::min(entries.size(), header.size() / kLeastEntryBytes);
    names.reserve(expected);
    objects_.reserve(expected);
    ranges_.reserve(expected);
    for (const auto& [name, entry] : entries) {
      if (!names.insert(name).second) return InvalidData("key " + Quote(name) + " is there twice");
      if (name == "__metadata__") {
        ZT_RETURN_IF_ERROR(ParseMetadata(entry));
      } else {
        ZT_RETURN_IF_ERROR(AnnotateTensor(ParseTensor(name, entry), name));
      }
    }
    return OkStatus();
  }

  Status ParseMetadata(const dom::element& entry) {
    dom::object members;
    if (entry.get_object().get(members) != simdjson::SUCCESS) {
      return InvalidData("__metadata__ is not a JSON object");
    }
    if (members.size() == 0) attributes_.emplace_back(std::string(kEmptyMetadata), Value::Map{});
    std::unordered_set<std::string_view> keys;
    for (const auto& [key, value] : members) {
      std::string_view text;
      if (value.get_string().get(text) != simdjson::SUCCESS) {
        return InvalidData("__metadata__ " + Quote(key) + " is not a string");
      }
      if (!keys.insert(key).second) {
        return InvalidData("__metadata__ " + Quote(key) + " is there twice");
      }
      attributes_.emplace_back(std::string(key), Value(text));
    }
    return OkStatus();
  }

  Status ParseTensor(std::string_view name, const dom::element& entry) {
    dom::object fields;
    if (entry.get_object().get(fields) != simdjson::SUCCESS)
      return InvalidData("it is not a JSON object");
    std::optional<std::string_view> tag;
    std::optional<Shape> shape;
    std::optional<Range> range;
    for (const auto& [key, value] : fields) {
      if (key == "dtype") {
        std::string_view text;
        if (tag) return InvalidData("dtype is there twice");
        if (value.get_string().get(text) != simdjson::SUCCESS)
          return InvalidData("dtype is not a string");
        tag = text;
      } else if (key == "shape") {
        if (shape) return InvalidData("shape is there twice");
        shape.emplace();
        dom::array dims;
        if (value.get_array().get(dims) != simdjson::SUCCESS)
          return InvalidData("shape is not an array");
        shape->reserve(dims.size());
        for (const dom::element dim : dims) {
          ZT_ASSIGN_OR_RETURN(const std::uint64_t number, Unsigned(dim, "a dimension"));
          shape->push_back(number);
        }
      } else if (key == "data_offsets") {
        if (range) return InvalidData("data_offsets is there twice");
        dom::array pair;
        if (value.get_array().get(pair) != simdjson::SUCCESS || pair.size() != 2) {
          return InvalidData("data_offsets is not a pair");
        }
        range.emplace();
        ZT_ASSIGN_OR_RETURN(range->begin, Unsigned(pair.at(0).value_unsafe(), "data_offsets"));
        ZT_ASSIGN_OR_RETURN(range->end, Unsigned(pair.at(1).value_unsafe(), "data_offsets"));
      } else {
        return InvalidData("unknown field " + Quote(key));
      }
    }
    if (!tag || !shape || !range) {
      return InvalidData(std::string(!tag     ? "dtype"
                                     : !shape ? "shape"
                                              : "data_offsets") +
                         " is missing");
    }
    return Declare(name, *tag, *std::move(shape), *range);
  }

  Status Declare(std::string_view name, std::string_view tag, Shape shape, const Range& range) {
    const DTypeRow* row = nullptr;
    for (const DTypeRow& each : kDTypes) {
      if (each.tag == tag) row = &each;
    }
    if (row == nullptr) return Unsupported("dtype " + Quote(tag) + " is not known");
    if (range.end < range.begin) {
      return InvalidData("data_offsets run backwards: " + std::to_string(range.begin) + " to " +
                         std::to_string(range.end));
    }
    const auto count = ElementCount(shape);
    const auto bits = count ? CheckedMul(*count, row->bits) : std::nullopt;
    if (!bits) return InvalidData("shape " + ToString(shape) + " overflows 64 bits");
    if (*bits % 8 != 0) {
      return InvalidData("shape " + ToString(shape) + " of " + std::string(tag) +
                         " ends within a byte");
    }
    if (range.end - range.begin != *bits / 8) {
      return InvalidData("shape " + ToString(shape) + " of " + std::string(tag) + " asks for " +
                         std::to_string(*bits / 8) + " bytes, data_offsets give " +
                         std::to_string(range.end - range.begin));
    }
    Value::Map attributes;
    if (row->bits < 8) {
      Value::Array logical(shape.begin(), shape.end());
      attributes.emplace_back(kLogicalShape, std::move(logical));
      shape = PackedShape(shape, row->bits, *bits / 8);
    }
    ZT_ASSIGN_OR_RETURN(Object object, DenseObject(std::string(name), std::move(shape),
                                                   *ParseElementType(row->name)));
    object.attributes = std::move(attributes);
    ZT_RETURN_IF_ERROR(ValidateObject(object));
    objects_.push_back(std::move(object));
    ranges_.push_back(range);
    return OkStatus();
  }

  // Puts objects into file order. Most writers list them so.
  void SortByOffset() {
    const auto before = [&](std::size_t a, std::size_t b) {
      return std::tie(ranges_[a].begin, ranges_[a].end, objects_[a].name) <
             std::tie(ranges_[b].begin, ranges_[b].end, objects_[b].name);
    };
    std::vector<std::size_t> order(objects_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (std::is_sorted(order.begin(), order.end(), before)) return;
    std::sort(order.begin(), order.end(), before);
    std::vector<Object> objects;
    std::vector<Range> ranges;
    objects.reserve(order.size());
    ranges.reserve(order.size());
    for (const std::size_t i : order) {
      objects.push_back(std::move(objects_[i]));
      ranges.push_back(ranges_[i]);
    }
    objects_ = std::move(objects);
    ranges_ = std::move(ranges);
  }

  // Checks that the ranges cover the data exactly, tied weights aside.
  Status CheckCoverage() {
    SortByOffset();
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
      const Range range = ranges_[i];
      const bool tied = i > 0 && range.begin < range.end && range.begin == ranges_[i - 1].begin &&
                        range.end == ranges_[i - 1].end;
      if (!tied && range.begin != at) {
        const std::string what = range.begin < at
                                     ? "overlaps the tensor before, which ends at "
                                     : "leaves a hole after the tensor before, which ends at ";
        return Annotate(InvalidData("begins at " + std::to_string(range.begin) + " and " + what +
                                    std::to_string(at)),
                        TensorContext(objects_[i].name));
      }
      at = range.end;
    }
    data_bytes_ = at;
    const auto size = bytes_->size();
    if (!size) return OkStatus();
    const std::uint64_t present = *size - data_begin_;
    if (present < at) {
      return InvalidData("the tensors take " + std::to_string(at) + " bytes, the file has " +
                         std::to_string(present) + " of them; it is truncated");
    }
    if (present > at) {
      return InvalidData("there are " + std::to_string(present - at) +
                         " bytes after the last tensor");
    }
    return OkStatus();
  }

  std::shared_ptr<ByteSource> bytes_;
  std::uint64_t data_begin_ = 0, data_bytes_ = 0;
  std::vector<Range> ranges_;  // by object, relative to data_begin_
};

}  // namespace

bool LooksLikeSafetensors(std::span<const std::byte> head) {
  if (head.size() < 9) return false;
  std::uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i)
    header_bytes = header_bytes << 8 | static_cast<std::uint64_t>(head[i]);
  const auto first = static_cast<char>(head[8]);
  return header_bytes <= kMaxSafetensorsHeader &&
         (first == '{' || first == ' ' || first == '\t' || first == '\n' || first == '\r');
}

StatusOr<std::unique_ptr<TensorSource>> OpenSafetensors(std::shared_ptr<ByteSource> bytes) {
  auto source = std::make_unique<SafetensorsSource>(std::move(bytes));
  ZT_RETURN_IF_ERROR(source->Init());
  return source;
}

StatusOr<std::unique_ptr<TensorSource>> OpenSafetensorsFolder(const std::string& path,
                                                              const CheckpointOptions& options) {
  const auto open = [](std::shared_ptr<ByteSource> bytes, const std::string&, const ShardIndex&) {
    return OpenSafetensors(std::move(bytes));
  };
  return OpenShards(path, {".safetensors", ".safetensors.index.json", open}, options);
}

}  // namespace zt
