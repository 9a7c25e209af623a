// zt.reader — verification: every byte read once, in parallel, problems gathered by component.
module;

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/mutex.h"
#include "core/status_macros.h"

module zt.reader;

import zt.compress;
import zt.core;
import zt.digest;
import zt.format;
import zt.pipeline;
import zt.source;

namespace zt {

using internal::Mutex;
using internal::MutexLock;
using reader::internal::kMaxFrameContent;

namespace {

constexpr std::uint64_t kRange = 4 << 20;  // stored bytes of one chunk of a raw component

std::uint64_t LoadLittle(const std::byte* p, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;) value = value << 8 | static_cast<std::uint64_t>(p[i]);
  return value;
}

// One component under verification.
struct Item {
  const StoredObject* object = nullptr;
  const StoredComponent* component = nullptr;
  DigestText expected;
  std::vector<Frame> frames;     // of a compressed component that is read by frame
  std::uint32_t crc = 0;         // in-order stage
  std::uint64_t stored = 0;      // in-order stage
  std::uint64_t last_index = 0;  // in-order stage: the last row pointer
  std::unique_ptr<Hasher> hasher;
  Mutex mutex;
  std::optional<std::string> early ZT_GUARDED_BY(mutex);  // parallel stages: the first found

  void Found(std::string message) {
    const MutexLock lock(mutex);
    if (!early) early = std::move(message);
  }
};

// A range of an item: of a raw component, a frame, the tail behind the frames, or a whole stream.
struct Part final : Task {
  std::shared_ptr<Item> item;
  std::uint64_t offset = 0;          // of the stored bytes
  std::uint64_t count = 0;           // of stored bytes; kUnknownSize for a whole stream
  std::uint64_t content_offset = 0;  // of the decoded bytes
  std::uint32_t frame = 0;           // index of the frame, or how many there are
  bool last = false;                 // of the item
  Buffer stored, decoded;
  std::span<const std::byte> content;  // in one of these, once decoded
  std::uint32_t crc = 0;               // CRC-32C of the stored bytes, where asked for
};

// What the decoded bytes of a component have to satisfy, part by part.
enum class Check { kNone, kBool, kColumns, kPointers, kCoords };

Check CheckOf(const StoredObject& object, const StoredComponent& component) {
  if (component.element.dtype == DType::kBool) return Check::kBool;
  const bool integer =
      IsSignedInt(component.element.dtype) || IsUnsignedInt(component.element.dtype);
  if (!integer) return Check::kNone;
  if (object.format == "sparse_csr" && component.role == "indices") return Check::kColumns;
  if (object.format == "sparse_csr" && component.role == "indptr") return Check::kPointers;
  if (object.format == "sparse_coo" && component.role == "coords") return Check::kCoords;
  return Check::kNone;
}

// Signed indices read as unsigned are huge when negative, so one comparison refuses both.
std::uint64_t IndexAt(std::span<const std::byte> bytes, std::size_t i, DType dtype) {
  const std::size_t width = ByteWidth(dtype);
  std::uint64_t value = LoadLittle(bytes.data() + i * width, width);
  if (IsSignedInt(dtype) && width < 8 && (value >> (8 * width - 1)) != 0) value = ~std::uint64_t{0};
  return value;
}

class FetchStage final : public StageOf<Part> {
 public:
  FetchStage(const Reader& reader, BufferPool& pool) : reader_(reader), pool_(pool) {}

  Status Process(Part& part) override {
    Item& item = *part.item;
    const StoredComponent& c = *item.component;
    if (part.count == kUnknownSize) return StreamWhole(item);
    part.stored = pool_.Take(part.count);
    const std::span<std::byte> stored = part.stored.bytes();
    ZT_RETURN_IF_ERROR(reader_.bytes().ReadAt(c.offset + part.offset, stored));
    if (item.expected.kind == DigestKind::kCrc32c) part.crc = Crc32c(stored);
    if (c.encoding == Encoding::kRaw) {
      part.content = stored;
    } else if (part.frame < item.frames.size()) {
      part.decoded = pool_.Take(item.frames[part.frame].content_bytes);
      const auto status =
          FindCodec(c.encoding)->DecodeFrame(c.parameters, stored, part.decoded.bytes());
      if (!status.ok()) {
        item.Found(std::string(Message(status)));
        return OkStatus();
      }
      part.content = part.decoded.bytes();
    }
    CheckContent(item, part.content, part.content_offset);
    return OkStatus();
  }

 private:
  // A zstd stream without a usable seek table: decoded in order with bounded memory, by this worker alone.
  Status StreamWhole(Item& item) {
    const StoredComponent& c = *item.component;
    std::unique_ptr<Hasher> hasher = MakeHasher(item.expected.kind);
    std::uint64_t hashed = 0;
    Status io = OkStatus();
    StreamDecompressor stream(
        [&](std::uint64_t offset, std::span<std::byte> out) {
          const Status status = reader_.bytes().ReadAt(c.offset + offset, out);
          if (!status.ok()) io = status;
          if (status.ok() && hasher != nullptr && offset == hashed) hasher->Update(out);
          if (offset == hashed) hashed += out.size();
          return status;
        },
        c.length, c.decoded_bytes);
    Buffer content = pool_.Take(std::clamp<std::uint64_t>(c.decoded_bytes, 1, 1 << 20));
    Status status = OkStatus();
    std::uint64_t at = 0;
    while (at < c.decoded_bytes && status.ok()) {
      const auto piece = content.bytes().first(
          std::min<std::uint64_t>(content.bytes().size(), c.decoded_bytes - at));
      status = stream.Read(piece);
      if (!status.ok()) break;
      CheckContent(item, piece, at);
      if (CheckOf(*item.object, c) == Check::kPointers) CheckPointers(item, piece, at);
      at += piece.size();
    }
    if (status.ok()) status = stream.Finish();
    if (!io.ok()) return io;
    if (!status.ok()) {
      item.Found(std::string(Message(status)));
      hasher.reset();  // the stream was not read to its end
    }
    if (hasher != nullptr && hasher->Finish() != item.expected.canonical) {
      item.Found("the digest does not match the stored bytes");
    }
    return OkStatus();
  }

  void CheckContent(Item& item, std::span<const std::byte> bytes, std::uint64_t offset) const {
    const DType dtype = item.component->element.dtype;
    const std::size_t width = ByteWidth(dtype);
    switch (CheckOf(*item.object, *item.component)) {
      case Check::kBool: {
        const auto bad = std::find_if(bytes.begin(), bytes.end(),
                                      [](std::byte b) { return static_cast<unsigned>(b) > 1; });
        if (bad != bytes.end()) {
          item.Found("element " +
                     std::to_string(offset + static_cast<std::uint64_t>(bad - bytes.begin())) +
                     " of bool is " + std::to_string(static_cast<unsigned>(*bad)) +
                     ", neither 0 nor 1");
        }
        break;
      }
      case Check::kColumns:
      case Check::kCoords: {
        for (std::size_t i = 0; i < bytes.size() / width; ++i) {
          const std::uint64_t index = IndexAt(bytes, i, dtype);
          const std::uint64_t position = offset / width + i;
          const std::uint64_t bound = BoundAt(item, position);
          if (index < bound) continue;
          item.Found("index " + std::to_string(position) + " is " + std::to_string(index) +
                     ", beyond the dimension of " + std::to_string(bound));
          break;
        }
        break;
      }
      default:
        break;
    }
  }

  static std::uint64_t BoundAt(const Item& item, std::uint64_t position) {
    const Shape& shape = item.object->shape;
    if (item.object->format == "sparse_csr") return shape.size() == 2 ? shape[1] : 0;
    const std::uint64_t width = ByteWidth(item.component->element.dtype);
    const std::uint64_t count = item.component->decoded_bytes / width;
    const std::uint64_t each = shape.empty() ? 0 : count / shape.size();
    return each == 0 ? 0 : shape[std::min<std::uint64_t>(position / each, shape.size() - 1)];
  }

 public:
  // Row pointers begin at 0, never fall and end at the number of indices. Called in order.
  static void CheckPointers(Item& item, std::span<const std::byte> bytes, std::uint64_t offset) {
    const DType dtype = item.component->element.dtype;
    const std::size_t width = ByteWidth(dtype);
    for (std::size_t i = 0; i < bytes.size() / width; ++i) {
      const std::uint64_t pointer = IndexAt(bytes, i, dtype);
      const std::uint64_t position = offset / width + i;
      if ((position == 0 && pointer != 0) || pointer < item.last_index) {
        item.Found("row pointer " + std::to_string(position) + " is " + std::to_string(pointer) +
                   (position == 0 ? ", not 0" : ", less than the one before"));
        return;
      }
      item.last_index = pointer;
    }
    if (offset + bytes.size() != item.component->decoded_bytes) return;
    for (const StoredComponent& other : item.object->components) {
      if (other.role != "indices") continue;
      const std::uint64_t count = other.decoded_bytes / ByteWidth(other.element.dtype);
      if (item.last_index != count) {
        item.Found("the last row pointer is " + std::to_string(item.last_index) + ", there are " +
                   std::to_string(count) + " indices");
      }
    }
  }

 private:
  const Reader& reader_;
  BufferPool& pool_;
  FrameDecompressor decompressor_;
};

// Puts the pieces together, in order.
class SumStage final : public StageOf<Part> {
 public:
  explicit SumStage(const VerifyOptions& options, VerifyReport& report, std::uint64_t total)
      : options_(options), report_(report), total_(total) {}
  StageOrder order() const override { return StageOrder::kInOrder; }

  Status Process(Part& part) override {
    Item& item = *part.item;
    const StoredComponent& c = *item.component;
    const bool whole = part.count == kUnknownSize;
    const std::uint64_t stored = whole ? c.length : part.count;
    if (!whole) {
      if (item.hasher != nullptr) item.hasher->Update(part.stored.bytes());
      item.crc = item.stored == 0 ? part.crc : Crc32cCombine(item.crc, part.crc, stored);
      if (CheckOf(*item.object, c) == Check::kPointers && !part.content.empty()) {
        FetchStage::CheckPointers(item, part.content, part.content_offset);
      }
    }
    item.stored += stored;
    done_ += stored;
    report_.stored_bytes += stored;
    if (part.last) Complete(item, whole);
    if (options_.progress) options_.progress(done_, total_);
    return OkStatus();
  }

 private:
  void Complete(Item& item, bool whole) {
    ++report_.components;
    report_.decoded_bytes += item.component->decoded_bytes;
    if (!item.component->digest.empty()) {
      if (item.expected.kind == DigestKind::kNone) {
        report_.unverified.push_back(item.object->name + "/" + item.component->role + ": " +
                                     item.expected.algorithm);
      } else {
        ++report_.digests;
        if (!whole) {
          const std::string found =
              item.hasher != nullptr ? item.hasher->Finish() : Crc32cText(item.crc);
          if (found != item.expected.canonical) {
            Add(item, "the digest is " + found + ", the manifest says " + item.component->digest);
          }
        }
      }
    }
    const MutexLock lock(item.mutex);
    if (item.early) Add(item, *item.early);
  }
  void Add(const Item& item, std::string message) {
    report_.problems.push_back({item.object->name, item.component->role, std::move(message)});
  }

  const VerifyOptions& options_;
  VerifyReport& report_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
};

class Verifier {
 public:
  Verifier(const Reader& reader, const VerifyOptions& options)
      : reader_(reader), options_(options), pool_(options.memory_bytes / 2) {}

  StatusOr<VerifyReport> Run() {
    ZT_RETURN_IF_ERROR(CheckPadding());
    std::uint64_t total = 0;
    for (const StoredObject& object : reader_.manifest().objects) {
      for (const StoredComponent& c : object.components) total += c.length;
    }
    PipelineOptions options;
    options.threads = options_.threads == 0 ? UsableThreads() : options_.threads;
    options.window_bytes = options_.memory_bytes / 2;
    PipelineOf<Part> pipeline({std::make_shared<FetchStage>(reader_, pool_),
                               std::make_shared<SumStage>(options_, report_, total)},
                              options);
    const auto& objects = reader_.manifest().objects;
    for (std::uint32_t o = 0; o < objects.size(); ++o) {
      ++report_.objects;
      for (std::uint32_t c = 0; c < objects[o].components.size(); ++c) {
        auto status = Submit(pipeline, {o, c});
        if (!status.ok()) return Annotate(status, TensorContext(objects[o].name));
      }
    }
    ZT_RETURN_IF_ERROR(pipeline.Drain());
    return std::move(report_);
  }

 private:
  // The object with every decoded size known, found by decoding where the manifest leaves it open; null where that
  // fails or the sizes do not agree with the shape, which goes into the report.
  const StoredObject* Sized(std::uint32_t index) {
    const StoredObject& object = reader_.manifest().objects[index];
    if (std::none_of(object.components.begin(), object.components.end(),
                     [](const StoredComponent& c) { return c.decoded_bytes == kUnknownSize; })) {
      return &object;
    }
    const auto [held, fresh] = sized_.emplace(index, object);
    StoredObject& copy = held->second;
    if (fresh) {
      for (std::uint32_t c = 0; c < copy.components.size(); ++c) {
        const auto size = reader_.DecodedBytes({index, c});
        if (size.ok()) {
          copy.components[c].decoded_bytes = *size;
          continue;
        }
        report_.problems.push_back(
            {copy.name, copy.components[c].role, std::string(Message(size.status()))});
        copy.components.clear();
        return nullptr;
      }
      if (const auto status = ValidateObject(Declare(copy)); !status.ok()) {
        report_.problems.push_back({copy.name, "", std::string(Message(status))});
        copy.components.clear();
      }
    }
    return copy.components.empty() ? nullptr : &copy;
  }

  Status Submit(PipelineOf<Part>& pipeline, ComponentId id) {
    const StoredObject* known = Sized(id.object);
    if (known == nullptr) return OkStatus();
    const StoredObject& object = *known;
    const StoredComponent& c = object.components[id.component];
    auto item = std::make_shared<Item>();
    item->object = &object;
    item->component = &c;
    if (!c.digest.empty()) {
      auto digest = ParseDigest(c.digest);
      if (!digest.ok()) {
        report_.problems.push_back({object.name, c.role, std::string(Message(digest.status()))});
      } else {
        item->expected = *std::move(digest);
      }
    }
    if (item->expected.kind != DigestKind::kCrc32c) item->hasher = MakeHasher(item->expected.kind);
    if (c.encoding == Encoding::kRaw) {
      const std::uint64_t step = kRange;
      std::uint64_t at = 0;
      do {
        auto part = std::make_unique<Part>();
        part->offset = at;
        part->content_offset = at;
        part->count = std::min(step, c.length - at);
        at += part->count;
        part->last = at == c.length;
        ZT_RETURN_IF_ERROR(Send(pipeline, item, std::move(part), 0));
      } while (at < c.length);
      return OkStatus();
    }
    auto table = FindCodec(c.encoding)
                     ->ReadFrames(
                         [&](std::uint64_t offset, std::span<std::byte> out) {
                           return reader_.bytes().ReadAt(c.offset + offset, out);
                         },
                         c.length, c.decoded_bytes);
    if (table.ok() && table->has_value()) {
      if (Status frames = CheckFrames(c.parameters, **table); !frames.ok()) table = frames;
    }
    if (!table.ok()) {
      if (table.status().code() != StatusCode::kDataLoss) return table.status();
      report_.problems.push_back({object.name, c.role, std::string(Message(table.status()))});
      return OkStatus();
    }
    const bool by_frame = *table && !(*table)->empty() &&
                          std::all_of((*table)->begin(), (*table)->end(), [](const Frame& frame) {
                            return frame.content_bytes <= kMaxFrameContent;
                          });
    if (!by_frame) {
      auto part = std::make_unique<Part>();
      part->count = kUnknownSize;
      part->last = true;
      return Send(pipeline, item, std::move(part), 2 << 20);
    }
    item->frames = **std::move(table);
    for (std::uint32_t i = 0; i < item->frames.size(); ++i) {
      const Frame& frame = item->frames[i];
      auto part = std::make_unique<Part>();
      part->frame = i;
      part->offset = frame.offset;
      part->count = frame.bytes;
      part->content_offset = frame.content_offset;
      ZT_RETURN_IF_ERROR(Send(pipeline, item, std::move(part), frame.content_bytes));
    }
    auto rest = std::make_unique<Part>();  // the seek table itself: stored bytes without content
    rest->frame = static_cast<std::uint32_t>(item->frames.size());
    rest->offset = item->frames.back().offset + item->frames.back().bytes;
    rest->count = c.length - rest->offset;
    rest->content_offset = c.decoded_bytes;
    rest->last = true;
    return Send(pipeline, item, std::move(rest), 0);
  }

  Status Send(PipelineOf<Part>& pipeline, const std::shared_ptr<Item>& item,
              std::unique_ptr<Part> part, std::uint64_t content) {
    part->weight = (part->count == kUnknownSize ? 0 : part->count) + content;
    part->item = item;
    return pipeline.Submit(std::move(part));
  }

  // The gaps between header, blobs and manifest are zero.
  Status CheckPadding() {
    const Manifest& manifest = reader_.manifest();
    std::set<std::pair<std::uint64_t, std::uint64_t>> blobs;
    for (const StoredObject& object : manifest.objects) {
      for (const StoredComponent& c : object.components) {
        if (c.length > 0) blobs.emplace(c.offset, c.length);
      }
    }
    std::uint64_t at = Traits(manifest.version).header_magic.size();
    for (const auto& [offset, length] : blobs) {
      ZT_RETURN_IF_ERROR(CheckZero(at, offset));
      at = std::max(at, offset + length);
    }
    return CheckZero(at, reader_.data_end());
  }

  Status CheckZero(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return OkStatus();
    std::vector<std::byte> gap(std::min<std::uint64_t>(end - begin, 1 << 20));
    for (std::uint64_t at = begin; at < end;) {
      const auto piece = std::span(gap).first(std::min<std::uint64_t>(gap.size(), end - at));
      ZT_RETURN_IF_ERROR(reader_.bytes().ReadAt(at, piece));
      const auto bad =
          std::find_if(piece.begin(), piece.end(), [](std::byte b) { return b != std::byte{0}; });
      if (bad != piece.end()) {
        report_.problems.push_back(
            {"", "",
             "padding byte " +
                 std::to_string(at + static_cast<std::uint64_t>(bad - piece.begin())) +
                 " is not zero"});
        return OkStatus();
      }
      at += piece.size();
    }
    return OkStatus();
  }

  const Reader& reader_;
  const VerifyOptions& options_;
  BufferPool pool_;
  std::map<std::uint32_t, StoredObject> sized_;  // those whose sizes the manifest leaves open
  VerifyReport report_;
};

}  // namespace

StatusOr<VerifyReport> Verify(const Reader& reader, const VerifyOptions& options) {
  return Verifier(reader, options).Run();
}

}  // namespace zt
