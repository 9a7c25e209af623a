// zt.convert.safetensors — opens one file: parses and validates the header, and serves ranges.
module;

#include "core/huge_pages.h"
#include "core/little_endian.h"
#include "core/name_table.h"
#include "core/raw_vector.h"
#include "core/status_macros.h"

module zt.convert.safetensors;

import zt.std;
import :dtypes;
import zt.convert.parts;
import zt.core;
import zt.pipeline;
import zt.source;

namespace zt {
namespace {

using safetensors::internal::DTypeRow;
using safetensors::internal::kDTypes;
using safetensors::internal::Metadata;
using safetensors::internal::TensorEntry;

// The shortest possible entry: "":{"dtype":"","shape":[],"data_offsets":[0,0]}
constexpr std::size_t kLeastEntryBytes = 48;
// A larger header is parsed in parts, on several threads: what the parser needs for a part stays in
// a core's cache. More than kMostThreads only wait for the one that puts the parts together.
constexpr std::size_t kPartBytes = std::size_t{64} << 10;
constexpr unsigned kMostThreads = 8;

struct Range {
  std::uint64_t begin = 0, end = 0;
};

// The text of a header, with the padding that the parser requires.
class HeaderText {
 public:
  // Appends `bytes` bytes, which the caller writes.
  std::span<char> Extend(std::size_t bytes) {
    const std::size_t held = text_.size();
    text_.resize(held + bytes);
    return std::span(text_).subspan(held);
  }
  void Reserve(std::size_t bytes) {
    internal::ReserveHuge(text_, bytes + safetensors::internal::kPadding);
  }
  std::size_t size() const { return text_.size(); }
  // Adds the padding; call it once the header is complete.
  void Pad() {
    Reserve(size());
    std::memset(text_.data() + size(), 0, safetensors::internal::kPadding);
  }
  std::string_view view() const { return {text_.data(), text_.size()}; }

 private:
  internal::RawVector<char> text_;
};

// Counts in one-byte sums, many of which fit a vector register: a header may have hundreds of
// megabytes.
std::size_t CountBraces(std::string_view text) {
  std::size_t braces = 0;
  for (std::string_view part; !text.empty(); text.remove_prefix(part.size())) {
    part = text.substr(0, 255);
    std::uint8_t some = 0;
    for (const char each : part) some += each == '{' ? 1 : 0;
    braces += some;
  }
  return braces;
}

// The shape in packed bytes: the last dimension shrinks if it is a whole number of bytes; else the
// tensor becomes flat.
Shape PackedShape(const Shape& logical, unsigned bits, std::uint64_t bytes) {
  Shape packed = logical;
  if (!packed.empty() && packed.back() <= (~std::uint64_t{0}) / bits &&
      packed.back() * bits % 8 == 0) {
    packed.back() = packed.back() * bits / 8;
    return packed;
  }
  return {bytes};
}

// The tensors of a header, or of a part of it, and its metadata.
class Entries final : public safetensors::internal::EntryTaker {
 public:
  void Reserve(std::size_t count) {
    internal::ReserveHuge(objects, count);
    internal::ReserveHuge(begins, count);
  }
  Status TakeEntry(const TensorEntry& entry) override {
    const std::string_view tag = entry.dtype;
    const Range range{entry.begin, entry.end};
    Shape shape(entry.shape.begin(), entry.shape.end());
    const DTypeRow* const row = std::ranges::find(kDTypes, tag, &DTypeRow::tag);
    if (row == std::end(kDTypes)) return Unsupported("dtype " + Quote(tag) + " is not known");
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
      return InvalidData("shape " + ToString(shape) + " of " + std::string(tag) + " needs " +
                         std::to_string(*bits / 8) + " bytes, data_offsets give " +
                         std::to_string(range.end - range.begin));
    }
    Value::Map attributes;
    if (row->bits < 8) {
      Value::Array logical(shape.begin(), shape.end());
      attributes.emplace_back(kLogicalShape, std::move(logical));
      shape = PackedShape(shape, row->bits, *bits / 8);
    }
    static const std::vector<ElementType> elements = [] {
      std::vector<ElementType> all;
      for (const DTypeRow& each : kDTypes) all.push_back(*ParseElementType(each.name));
      return all;
    }();
    auto object = DenseObject(std::string(entry.name), std::move(shape),
                              elements[static_cast<std::size_t>(row - kDTypes)]);
    if (!object.ok()) return object.status();
    object->attributes = std::move(attributes);
    objects.push_back(*std::move(object));
    begins.push_back(range.begin);
    return OkStatus();
  }
  void TakeMetadata(std::string_view key, std::string_view text) override {
    attributes.emplace_back(std::string(key), Value(text));
  }
  // Adds what follows. False if both have metadata.
  bool Append(Entries part) {
    for (Object& object : part.objects) objects.push_back(std::move(object));
    begins.insert(begins.end(), part.begins.begin(), part.begins.end());
    if (part.metadata == Metadata::kNone) return true;
    attributes = std::move(part.attributes);
    return std::exchange(metadata, part.metadata) == Metadata::kNone;
  }

  std::vector<Object> objects;
  std::vector<std::uint64_t> begins;  // by object, relative to the data
  Value::Map attributes;
  Metadata metadata = Metadata::kNone;
};

// A part of a header: from its brace or a comma between two entries to the next part, or to the end.
struct HeaderPart {
  std::string_view text;
  bool last = false;
  Entries entries = {};
};

// Parses a part. With braces for its commas it must be an object, which proves that it ends between
// two entries: its text has no other reading.
Status ParsePart(HeaderPart& part) {
  std::string text;
  text.reserve(part.text.size() + 1 + safetensors::internal::kPadding);
  text = part.text;
  text.front() = '{';
  if (!part.last) text += '}';
  const std::size_t bytes = text.size();
  text.append(safetensors::internal::kPadding, '\0');
  ZT_ASSIGN_OR_RETURN(
      part.entries.metadata,
      safetensors::internal::ParseEntries(std::string_view(text).substr(0, bytes), part.entries));
  return OkStatus();
}

// Where the part that begins at `begin` is likely to end; at the end of the text if nothing tells.
std::size_t GuessEnd(std::string_view text, std::size_t begin) {
  for (std::size_t at = begin + kPartBytes; at < text.size(); ++at) {
    at = text.find("},", at);
    if (at == text.npos) break;
    const std::size_t next = text.find_first_not_of(" \t\r\n", at + 2);
    if (next != text.npos && text[next] == '"') return at + 1;
  }
  return text.size();
}

// Parses a header in parts. False if it is small, if a guess was wrong, or if it has any fault.
bool ParseParts(std::string_view text, Entries& all) {
  if (GuessEnd(text, 0) == text.size() || text.front() != '{') return false;
  const unsigned threads = std::min(UsableThreads(), kMostThreads);
  using Batch = BatchOf<HeaderPart>;
  const auto parse = [](Batch& batch) {
    Status status;
    for (HeaderPart& part : batch.ranges) status.Update(ParsePart(part));
    return status;
  };
  const auto append = [&all](Batch& batch) {
    bool one = true;
    for (HeaderPart& part : batch.ranges) one &= all.Append(std::move(part.entries));
    return one ? OkStatus() : InvalidData("__metadata__ occurs twice");
  };
  RangePipeline<Batch> pipeline(
      {{StageOrder::kParallel, parse}, {StageOrder::kInOrder, append}},
      {.threads = threads, .memory_bytes = threads * (std::uint64_t{8} << 20)});
  for (std::size_t begin = 0, end = 0; end != text.size(); begin = end) {
    end = GuessEnd(text, begin);
    const std::uint64_t bytes = end - begin;
    if (!pipeline
             .Add({.text = text.substr(begin, bytes), .last = end == text.size()},
                  {.bytes = bytes, .weight = 4 * bytes})
             .ok()) {
      return false;
    }
  }
  return pipeline.Drain().ok();
}

class SafetensorsSource final : public TensorSource {
 public:
  explicit SafetensorsSource(std::shared_ptr<ByteSource> bytes) : bytes_(std::move(bytes)) {}

  Status Init() {
    std::byte length[8];
    ZT_RETURN_IF_ERROR(bytes_->ReadAt(0, length));
    const std::uint64_t header_bytes = internal::LoadLittle(length, 8);
    if (header_bytes > kMaxSafetensorsHeader) {
      return InvalidData("the header claims " + std::to_string(header_bytes) +
                         " bytes, the limit is " + std::to_string(kMaxSafetensorsHeader));
    }
    const auto size = bytes_->size();
    if (size && header_bytes + 8 > *size) {
      return InvalidData("the header claims " + std::to_string(header_bytes) +
                         " bytes, the file has " + std::to_string(*size) + " in all");
    }
    ZT_ASSIGN_OR_RETURN(HeaderText header, ReadHeader(header_bytes));
    data_begin_ = header_bytes + 8;
    ZT_RETURN_IF_ERROR(ParseHeader(std::move(header)));
    ZT_RETURN_IF_ERROR(CheckNames());
    ZT_RETURN_IF_ERROR(MarkParts());
    return CheckCoverage();
  }

  std::string_view format() const override { return "safetensors"; }
  bool seekable() const override { return !bytes_->sequential(); }
  bool sequential(ComponentId) const override { return bytes_->sequential(); }
  std::optional<Extent> extent(ComponentId id) const override {
    const Range range = RangeOf(id.object);
    return Extent{bytes_.get(), data_begin_ + range.begin, range.end - range.begin};
  }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    return bytes_->ReadAt(data_begin_ + begins_[id.object] + offset, out);
  }
  Status Finish() override { return WithFile(CheckEnd(), bytes_->name()); }

 private:
  Status CheckEnd() {
    if (bytes_->size()) return bytes_->CheckUnchanged();
    ZT_ASSIGN_OR_RETURN(const bool at_end, bytes_->AtEnd(data_begin_ + data_bytes_));
    return at_end ? OkStatus() : InvalidData("there are bytes after the last tensor");
  }

  // Memory grows with the bytes received, as a pipe may claim any header length.
  StatusOr<HeaderText> ReadHeader(std::uint64_t header_bytes) {
    HeaderText header;
    if (bytes_->size()) header.Reserve(header_bytes);
    while (header.size() < header_bytes) {
      const std::size_t have = header.size();
      const std::uint64_t left = header_bytes - have;
      const std::uint64_t step = bytes_->size() ? left : std::min<std::uint64_t>(left, 1 << 20);
      ZT_RETURN_IF_ERROR(bytes_->ReadAt(8 + have, std::as_writable_bytes(header.Extend(step))));
    }
    header.Pad();
    return header;
  }

  Status ParseHeader(HeaderText header) {
    Entries all;
    // Limited by the number of entries that fit the header.
    const std::size_t most = std::min(CountBraces(header.view()), header.size() / kLeastEntryBytes);
    all.Reserve(most);
    if (!ParseParts(header.view(), all)) {
      all = Entries();
      all.Reserve(most);
      const auto metadata = safetensors::internal::ParseEntries(header.view(), all);
      if (!metadata.ok()) {
        // Entries are validated while parsing. An error in the JSON itself, anywhere in the header,
        // takes precedence.
        const Status fault = safetensors::internal::FindJsonFault(header.view());
        return fault.ok() ? metadata.status() : fault;
      }
      all.metadata = *metadata;
    }
    objects_ = std::move(all.objects);
    begins_ = std::move(all.begins);
    attributes_ = std::move(all.attributes);
    if (all.metadata == Metadata::kMap && attributes_.empty()) {
      attributes_.emplace_back(std::string(kEmptyMetadata), Value::Map{});
    }
    return OkStatus();
  }

  Status CheckNames() const {
    const auto name_of = [this](std::size_t object) {
      return std::string_view(objects_[object].name);
    };
    const auto twice = internal::FindTwice(objects_.size(), name_of);
    if (!twice) return OkStatus();
    return InvalidData("key " + Quote(name_of(twice->again)) + " occurs twice");
  }

  // Marks the tensors of a rank's file, of which `__metadata__` says where they begin in whole ones.
  Status MarkParts() {
    const auto info =
        std::ranges::find(attributes_, safetensors::internal::kShardingInfo, &Value::Member::first);
    if (info == attributes_.end()) return OkStatus();
    ZT_ASSIGN_OR_RETURN(const auto all,
                        safetensors::internal::ParseShardingInfo(*info->second.AsString()));
    const NameIndex places = ByName(objects_);
    bool begins = true;  // all tensors begin where the whole ones do
    for (const auto& [name, offsets] : all) {
      const auto found = places.find(name);
      if (found != places.end() && offsets.size() != objects_[found->second].shape.size()) {
        return WithTensor(
            InvalidData("__metadata__ " + Quote(safetensors::internal::kShardingInfo) +
                        " says in " + std::to_string(offsets.size()) +
                        " numbers where it begins, and it has shape " +
                        ToString(objects_[found->second].shape)),
            name);
      }
      begins &= std::ranges::all_of(offsets, [](std::uint64_t offset) { return offset == 0; });
    }
    // Files of whole tensors have it, too, and other names: model-00001-of-00001.safetensors.
    const auto shard =
        ParseShardName(std::filesystem::path(bytes_->name()).filename().string(), ".safetensors");
    if (begins && (!shard || !shard->stem.starts_with("shard-"))) {
      if (!shard) {
        warnings_.push_back(
            "the file has " + std::string(info->first) +
            ", as each rank's has: if it is that of the first, its tensors may be parts of larger "
            "ones");
      }
      return OkStatus();
    }
    attributes_.erase(info);
    std::map<Shape, Value> values;  // shared by tensors that begin at the same place
    for (const auto& [name, offsets] : all) {
      const auto found = places.find(name);
      if (found == places.end()) continue;
      Object& object = objects_[found->second];
      if (FindMember(object.attributes, kPart) != nullptr) {
        return WithTensor(
            InvalidData("__metadata__ " + Quote(safetensors::internal::kShardingInfo) +
                        " has it twice"),
            name);
      }
      const auto [value, fresh] = values.try_emplace(Shape(offsets.begin(), offsets.end()));
      if (fresh) value->second = ToValue(Part{.offsets = value->first});
      object.attributes.emplace_back(std::string(kPart), value->second);
    }
    return OkStatus();
  }

  Range RangeOf(std::size_t object) const {
    return {begins_[object], begins_[object] + objects_[object].components[0].bytes};
  }

  // Sorts objects by offset. Most writers have sorted them already.
  void SortByOffset() {
    const auto before = [&](std::size_t a, std::size_t b) {
      const Range first = RangeOf(a), second = RangeOf(b);
      return std::tie(first.begin, first.end, objects_[a].name) <
             std::tie(second.begin, second.end, objects_[b].name);
    };
    std::size_t sorted = 1;
    while (sorted < objects_.size() && !before(sorted, sorted - 1)) ++sorted;
    if (sorted >= objects_.size()) return;
    std::vector<std::size_t> order(objects_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), before);
    std::vector<Object> objects;
    std::vector<std::uint64_t> begins;
    objects.reserve(order.size());
    begins.reserve(order.size());
    for (const std::size_t i : order) {
      objects.push_back(std::move(objects_[i]));
      begins.push_back(begins_[i]);
    }
    objects_ = std::move(objects);
    begins_ = std::move(begins);
  }

  // Checks that the ranges cover the data exactly; tied weights share theirs.
  Status CheckCoverage() {
    SortByOffset();
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < objects_.size(); ++i) {
      const Range range = RangeOf(i);
      const bool tied = i > 0 && range.begin < range.end && range.begin == begins_[i - 1] &&
                        range.end == RangeOf(i - 1).end;
      if (!tied && range.begin != at) {
        const std::string what = range.begin < at
                                     ? "overlaps the tensor before, which ends at "
                                     : "leaves a hole after the tensor before, which ends at ";
        return WithTensor(InvalidData("begins at " + std::to_string(range.begin) + " and " + what +
                                      std::to_string(at)),
                          objects_[i].name);
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
  std::vector<std::uint64_t> begins_;  // by object, relative to data_begin_
};

}  // namespace

bool LooksLikeSafetensors(std::span<const std::byte> head) {
  if (head.size() < 9) return false;
  const std::uint64_t header_bytes = internal::LoadLittle(head.data(), 8);
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
                                                              const InputOptions& options,
                                                              OpenOther other) {
  const auto open = [](std::shared_ptr<ByteSource> bytes, const std::string&, const ShardIndex&) {
    return OpenSafetensors(std::move(bytes));
  };
  return OpenShards(path, {".safetensors", open, false, nullptr, std::move(other)}, options);
}

}  // namespace zt
