// zt.reader — opens files, reads and maps ranges.
module;

#include <errno.h>
#include <sys/mman.h>

#include "core/name_table.h"
#include "core/raw_vector.h"
#include "core/status_macros.h"
#include "core/thread_annotations.h"

module zt.reader;

import zt.std;
import :checks;
import :recent;
import :sparse_0_1;
import zt.compress;
import zt.core;
import zt.digest;
import zt.format;
import zt.source;
import zt.transform;

namespace zt {

using internal::Mutex;
using internal::MutexLock;
using reader::internal::Recent;

bool reader::internal::CanReadByFrame(const Codec& codec, std::span<const Frame> frames) {
  constexpr std::uint64_t kMaxFrameContent = std::uint64_t{16} << 20;
  return !frames.empty() && std::all_of(frames.begin(), frames.end(), [&](const Frame& frame) {
    return frame.content_bytes <= kMaxFrameContent &&
           frame.bytes <= MostOfFrame(codec, frame.content_bytes);
  });
}

namespace {

// Wraps a ByteSource of a caller: turns exceptions into errors.
class CatchingBytes final : public ByteSource {
 public:
  explicit CatchingBytes(std::shared_ptr<ByteSource> bytes) : bytes_(std::move(bytes)) {}
  const std::string& name() const override { return bytes_->name(); }
  std::optional<std::uint64_t> size() const override { return bytes_->size(); }
  bool sequential() const override { return bytes_->sequential(); }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    return CatchAsStatus([&] { return bytes_->ReadAt(offset, out); });
  }
  void WillRead(std::span<const ByteRange> ranges) override { bytes_->WillRead(ranges); }
  std::optional<int> descriptor() const override { return bytes_->descriptor(); }
  Status CheckUnchanged() override {
    return CatchAsStatus([&] { return bytes_->CheckUnchanged(); });
  }
  StatusOr<bool> AtEnd(std::uint64_t offset) override {
    return CatchAsStatus([&] { return bytes_->AtEnd(offset); });
  }

 private:
  std::shared_ptr<ByteSource> bytes_;
};

// The frames of a blob. Components with the same blob share it.
struct FrameTable {
  std::vector<Frame> frames;        // empty if the stream must be read in order
  std::uint64_t content_bytes = 0;  // declared or counted

  std::uint64_t memory() const { return sizeof *this + frames.size() * sizeof(Frame); }
};

// A stream that is read in order.
struct OpenStream {
  Mutex mutex;
  std::unique_ptr<StreamDecoder> decoder ZT_GUARDED_BY(mutex);
  std::uint64_t position ZT_GUARDED_BY(mutex) = 0;
};

// A decoded frame that has been read only in part: kept so that reading the next part does not
// decode it again.
struct PartFrame {
  Mutex mutex;
  internal::RawVector<std::byte> content ZT_GUARDED_BY(mutex);  // empty until decoded
  std::uint64_t served ZT_GUARDED_BY(mutex) = 0;                // bytes read so far
};

constexpr std::uint64_t kMostPartBytes = std::uint64_t{32} << 20;
constexpr std::uint64_t kMostTableBytes = std::uint64_t{16} << 20;
// A stream decoder holds a window of up to 128 MiB.
constexpr std::uint64_t kMostStreams = 16;

// Identifies a frame of a blob by the blob and the offset of the frame in it.
using FrameKey = std::pair<ContentKey, std::uint64_t>;

}  // namespace

struct Reader::State {
  std::shared_ptr<ByteSource> bytes;
  std::shared_ptr<ByteSource> file;  // mapped by Map: has no shards; null if reads are observed
  std::string path;                  // empty if not opened by path
  Manifest manifest;
  std::uint64_t data_end = 0, file_bytes = 0;
  std::unordered_map<std::string_view, std::uint32_t, zt::internal::NameHash> names;

  Mutex mutex;
  Recent<ContentKey, const FrameTable> tables ZT_GUARDED_BY(mutex){kMostTableBytes};
  Recent<std::pair<std::uint32_t, std::uint32_t>, OpenStream> streams ZT_GUARDED_BY(mutex){
      kMostStreams};
  Recent<FrameKey, PartFrame> parts ZT_GUARDED_BY(mutex){kMostPartBytes};
  internal::ObjectPool<std::vector<std::byte>> rooms;                // buffers for stored frames
  std::map<ContentKey, std::uint64_t> counted ZT_GUARDED_BY(mutex);  // sizes found by decoding
  const std::byte* mapping ZT_GUARDED_BY(mutex) = nullptr;

  ~State() {
    const MutexLock lock(mutex);
    if (mapping != nullptr) ::munmap(const_cast<std::byte*>(mapping), file_bytes);
  }

  Status Init(const OpenOptions& options, const reader::internal::Observe& observe) {
    ZT_ASSIGN_OR_RETURN(file_bytes, KnownSize(*bytes, "a .zt file"));
    std::vector<std::byte> head(std::min<std::uint64_t>(file_bytes, 8));
    std::vector<std::byte> tail(std::min<std::uint64_t>(file_bytes, kTailBytes));
    ZT_RETURN_IF_ERROR(bytes->ReadAt(0, head));
    ZT_RETURN_IF_ERROR(bytes->ReadAt(file_bytes - tail.size(), tail));
    ZT_ASSIGN_OR_RETURN(const Trailer trailer, LocateManifest(head, tail, file_bytes));
    if (trailer.manifest_bytes == 0) {
      return Unsupported(
          "it is a data shard of zTensor 2.0, which has no manifest: open the root that names it");
    }
    std::vector<std::byte> encoded(trailer.manifest_bytes);
    ZT_RETURN_IF_ERROR(bytes->ReadAt(trailer.manifest_offset, encoded));
    ZT_ASSIGN_OR_RETURN(manifest, DecodeManifest(encoded, trailer));
    data_end = trailer.data_end;
    ZT_RETURN_IF_ERROR(CheckLayout(manifest, data_end));
    if (!manifest.shards.empty()) {
      ZT_ASSIGN_OR_RETURN(
          bytes, reader::internal::JoinShards(std::move(bytes), manifest, options.find_shard));
    }
    if (observe) bytes = observe(std::move(bytes));
    for (std::uint32_t i = 0; i < manifest.objects.size(); ++i) {
      names.emplace(manifest.objects[i].name, i);
    }
    return OkStatus();
  }

  const StoredComponent& component(ComponentId id) const {
    return manifest.objects[id.object].components[id.component];
  }

  // True if the component has bools with nonzero values other than 1 (loose_bools). Mixed sparse
  // blobs are excluded: they also hold indices.
  bool HasLooseBools(ComponentId id) const {
    return Traits(manifest.version).loose_bools && component(id).element.dtype == DType::kBool &&
           !reader::internal::IsSparse01Layout(manifest.objects[id.object].format);
  }

  StreamReader ReaderOf(const StoredComponent& c) {
    return [this, base = c.offset](std::uint64_t offset, std::span<std::byte> out) {
      return bytes->ReadAt(base + offset, out);
    };
  }

  Status CheckId(ComponentId id) const {
    const auto& objects = manifest.objects;
    if (id.object < objects.size() && id.component < objects[id.object].components.size()) {
      return OkStatus();
    }
    return InvalidArgument("there is no component " + std::to_string(id.component) + " of object " +
                           std::to_string(id.object));
  }

  StatusOr<std::uint64_t> Size(ComponentId id) {
    ZT_RETURN_IF_ERROR(CheckId(id));
    const StoredComponent& c = component(id);
    if (c.decoded_bytes != kUnknownSize) return c.decoded_bytes;
    ZT_ASSIGN_OR_RETURN(const auto table, Table(c));
    return table->content_bytes;
  }

  // Checks the digest of the shard that holds a component, so that no similar file is read instead.
  Status CheckShardOf(const StoredComponent& c) {
    if (c.shard == 0 || file == nullptr) return OkStatus();
    const StoredShard& shard = manifest.shards[c.shard - 1];
    const DigestText stated = DigestOrUnknown(shard.digest);
    if (stated.kind == DigestKind::kNone) return OkStatus();
    ZT_ASSIGN_OR_RETURN(const std::string found,
                        reader::internal::DigestOfShard(*bytes, shard, c.shard - 1, stated.kind));
    return reader::internal::CompareDigest(shard, stated, found);
  }

  StatusOr<Access> FindAccess(ComponentId id) {
    ZT_RETURN_IF_ERROR(CheckId(id));
    const StoredComponent& c = component(id);
    if (c.encoding == Encoding::kRaw) return Access{};
    ZT_ASSIGN_OR_RETURN(const auto table, Table(c));
    if (table->frames.empty()) return Access{.sequential = true};
    return Access{.frame_bytes = table->frames.front().content_bytes};
  }

  StatusOr<std::vector<Frame>> Frames(ComponentId id) {
    ZT_RETURN_IF_ERROR(CheckId(id));
    const StoredComponent& c = component(id);
    if (c.encoding == Encoding::kRaw) return std::vector<Frame>();
    ZT_ASSIGN_OR_RETURN(const auto table, Table(c));
    return table->frames;
  }

  StatusOr<std::shared_ptr<const FrameTable>> Table(const StoredComponent& c) {
    const ContentKey key(c);
    {
      const MutexLock lock(mutex);
      if (auto held = tables.Find(key)) return held;
    }
    FrameTable table;
    const Codec& codec = *FindCodec(c.encoding);
    ZT_ASSIGN_OR_RETURN(auto frames, codec.ReadFrames(ReaderOf(c), c.length, c.decoded_bytes));
    ZT_RETURN_IF_ERROR(CheckFrames(c, Traits(manifest.version), frames));
    if (frames && reader::internal::CanReadByFrame(codec, *frames)) {
      table.frames = *std::move(frames);
    }
    table.content_bytes = c.decoded_bytes;
    if (c.decoded_bytes == kUnknownSize) {
      if (table.frames.empty()) {
        ZT_ASSIGN_OR_RETURN(table.content_bytes, CountContent(c, key));
      } else {
        const Frame& last = table.frames.back();
        table.content_bytes = last.content_offset + last.content_bytes;
      }
    }
    const std::uint64_t cost = table.memory();
    auto fresh = std::make_shared<const FrameTable>(std::move(table));
    const MutexLock lock(mutex);
    return tables.Add(key, std::move(fresh), cost);
  }

  StatusOr<std::uint64_t> CountContent(const StoredComponent& c, const ContentKey& key) {
    {
      const MutexLock lock(mutex);
      if (const auto found = counted.find(key); found != counted.end()) return found->second;
    }
    const auto stream =
        FindCodec(c.encoding)->OpenStream(c.parameters, ReaderOf(c), c.length, kUnknownSize);
    std::vector<std::byte> piece(256 << 10);
    std::uint64_t total = 0;
    while (true) {
      ZT_ASSIGN_OR_RETURN(const std::size_t got, stream->ReadSome(piece));
      total += got;
      if (got < piece.size()) break;
    }
    const MutexLock lock(mutex);
    counted.emplace(key, total);
    return total;
  }

  std::shared_ptr<OpenStream> StreamOf(ComponentId id) {
    const MutexLock lock(mutex);
    const std::pair key(id.object, id.component);
    if (auto held = streams.Find(key)) return held;
    return streams.Add(key, std::make_shared<OpenStream>(), 1);
  }

  // Frames without content at either end of the range are decoded too: they may be damaged, and a
  // digest covers them.
  Status ReadFrames(const StoredComponent& c, const FrameTable& table, std::uint64_t offset,
                    std::span<std::byte> out) {
    const std::vector<Frame>& all = table.frames;
    const std::uint64_t end = offset + out.size();
    auto frame = std::partition_point(all.begin(), all.end(), [offset](const Frame& f) {
      return f.content_offset < offset && f.content_offset + f.content_bytes <= offset;
    });
    for (; frame != all.end(); ++frame) {
      if (frame->content_offset >= end && end != table.content_bytes) break;
      const std::uint64_t at = std::max(offset, frame->content_offset);
      const std::uint64_t skip = at - frame->content_offset;
      const auto take = std::min(end - at, frame->content_bytes - skip);
      const auto to = out.subspan(at - offset, take);
      ZT_RETURN_IF_ERROR(take == frame->content_bytes ? DecodeFrame(c, *frame, to)
                                                      : ReadPart(c, *frame, skip, to));
    }
    return OkStatus();
  }

  // Reads part of a frame. Threads that need parts of the same frame wait until the first has
  // decoded it.
  Status ReadPart(const StoredComponent& c, const Frame& frame, std::uint64_t skip,
                  std::span<std::byte> out) {
    const FrameKey key(ContentKey(c), frame.offset);
    std::shared_ptr<PartFrame> part;
    {
      const MutexLock lock(mutex);
      part = parts.Find(key);
      if (part == nullptr) {
        part = parts.Add(key, std::make_shared<PartFrame>(), frame.content_bytes);
      }
    }
    bool done;
    {
      const MutexLock lock(part->mutex);
      if (part->content.empty()) {
        internal::RawVector<std::byte> content(frame.content_bytes);
        ZT_RETURN_IF_ERROR(DecodeFrame(c, frame, content));
        part->content = std::move(content);
      }
      std::memcpy(out.data(), part->content.data() + skip, out.size());
      part->served += out.size();
      done = part->served >= frame.content_bytes;
    }
    if (!done) return OkStatus();
    const MutexLock lock(mutex);
    parts.Drop(key);
    return OkStatus();
  }

  Status DecodeFrame(const StoredComponent& c, const Frame& frame, std::span<std::byte> out) {
    std::vector<std::byte> room = rooms.Take().value_or(std::vector<std::byte>());
    const Status status = DecodeFrame(c, frame, out, room);
    rooms.Give(std::move(room));
    return status;
  }

  // The buffer grows but never shrinks, because zeroing it again costs as much as reading.
  Status DecodeFrame(const StoredComponent& c, const Frame& frame, std::span<std::byte> out,
                     std::vector<std::byte>& room) const {
    if (room.size() < frame.bytes) room.resize(frame.bytes);
    const std::span<std::byte> stored = std::span(room).first(frame.bytes);
    ZT_RETURN_IF_ERROR(bytes->ReadAt(c.offset + frame.offset, stored));
    ZT_RETURN_IF_ERROR(CheckFrameBytes(Traits(manifest.version), stored));
    return FindCodec(c.encoding)->DecodeFrame(c.parameters, stored, out);
  }

  Status ReadStream(ComponentId id, std::uint64_t content_bytes, std::uint64_t offset,
                    std::span<std::byte> out) {
    const std::shared_ptr<OpenStream> stream = StreamOf(id);
    const MutexLock lock(stream->mutex);
    const Status status = ReadOn(component(id), *stream, content_bytes, offset, out);
    if (!status.ok() || stream->position == content_bytes) {  // the next read restarts
      stream->decoder.reset();
      stream->position = 0;
    }
    return status;
  }

  Status ReadOn(const StoredComponent& c, OpenStream& stream, std::uint64_t content_bytes,
                std::uint64_t offset, std::span<std::byte> out) ZT_REQUIRES(stream.mutex) {
    if (stream.decoder == nullptr || offset < stream.position) {
      stream.decoder =
          FindCodec(c.encoding)->OpenStream(c.parameters, ReaderOf(c), c.length, content_bytes);
      stream.position = 0;
    }
    std::vector<std::byte> skipped(std::min<std::uint64_t>(offset - stream.position, 1 << 20));
    while (stream.position < offset) {
      const auto step = std::min<std::uint64_t>(offset - stream.position, skipped.size());
      ZT_RETURN_IF_ERROR(stream.decoder->Read(std::span(skipped).first(step)));
      stream.position += step;
    }
    ZT_RETURN_IF_ERROR(stream.decoder->Read(out));
    stream.position += out.size();
    return stream.position == content_bytes ? stream.decoder->Finish() : OkStatus();
  }
};

Reader::Reader(std::unique_ptr<State> state) : state_(std::move(state)) {}
Reader::~Reader() = default;

StatusOr<std::unique_ptr<Reader>> Reader::Open(std::shared_ptr<ByteSource> bytes,
                                               const OpenOptions& options) {
  return reader::internal::OpenObserved(std::move(bytes), options, {});
}

StatusOr<std::unique_ptr<Reader>> reader::internal::OpenObserved(std::shared_ptr<ByteSource> bytes,
                                                                 const OpenOptions& options,
                                                                 const Observe& observe) {
  if (bytes == nullptr) return InvalidArgument("a reader needs bytes");
  auto state = std::make_unique<Reader::State>();
  state->bytes = std::make_shared<CatchingBytes>(std::move(bytes));
  if (!observe) state->file = state->bytes;
  ZT_RETURN_IF_ERROR(state->Init(options, observe));
  return std::unique_ptr<Reader>(new Reader(std::move(state)));
}

StatusOr<std::unique_ptr<Reader>> Reader::Open(const std::string& path) {
  ZT_ASSIGN_OR_RETURN(auto bytes, WithFile(Store().Open(path), path));
  ZT_ASSIGN_OR_RETURN(auto reader,
                      WithFile(Open(std::move(bytes), {.find_shard = ShardsBeside(path)}), path));
  reader->state_->path = path;
  return reader;
}

const std::string& Reader::path() const { return state_->path; }

Status Reader::Named(ComponentId id, const Status& status) const {
  const auto& objects = state_->manifest.objects;
  if (status.ok() || id.object >= objects.size()) return WithFile(status, state_->path);
  return Named(objects[id.object].name, status);
}

const Manifest& Reader::manifest() const { return state_->manifest; }
std::vector<FileEntry> Reader::files() const { return ListFiles(manifest()); }
const StoredComponent& Reader::component(ComponentId id) const { return state_->component(id); }
ByteSource& Reader::bytes() const { return *state_->bytes; }
std::uint64_t Reader::data_end() const { return state_->data_end; }

std::optional<std::uint32_t> Reader::Find(std::string_view name) const {
  const auto it = state_->names.find(name);
  if (it == state_->names.end()) return std::nullopt;
  return it->second;
}

Status Reader::Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) const {
  return Named(id, ReadUnnamed(id, offset, out));
}

Status Reader::ReadUnnamed(ComponentId id, std::uint64_t offset, std::span<std::byte> out) const {
  ZT_RETURN_IF_ERROR(ReadDecoded(id, offset, out));
  const StoredComponent& stored = component(id);
  const ElementType& element = stored.element;
  const bool is_bool = element.dtype == DType::kBool;
  if (is_bool && Traits(manifest().version).loose_bools) {
    if (!state_->HasLooseBools(id)) return OkStatus();
    for (std::byte& each : out) each = std::byte{each != std::byte{0}};
    return OkStatus();
  }
  const bool packed = element.type == "f4_e2m1";
  if (!is_bool && !packed) return OkStatus();
  // Of packed elements the last byte alone has a rule.
  ZT_ASSIGN_OR_RETURN(const std::uint64_t size, state_->Size(id));
  if (packed && size - offset > out.size()) return OkStatus();
  // The object is declared for them alone: it may have as many other components as it likes.
  const Object object = packed ? Declare(manifest().objects[id.object]) : Object();
  const std::optional<DataRule> rule =
      packed ? RuleOf(object, id.component, size) : DataRule{DataRule::Kind::kBool, element.dtype};
  if (!rule) return OkStatus();
  DataValidator validator(*rule, offset);
  validator.Add(out);
  return validator.Check(object, std::nullopt);
}

Status Reader::ReadDecoded(ComponentId id, std::uint64_t offset, std::span<std::byte> out) const {
  ZT_ASSIGN_OR_RETURN(const std::uint64_t size, state_->Size(id));
  const StoredComponent& c = component(id);
  if (!c.undecodable.empty()) return Unsupported(c.undecodable);
  if (offset > size || out.size() > size - offset) {
    return InvalidArgument("the range lies beyond the component");
  }
  ZT_RETURN_IF_ERROR(state_->CheckShardOf(c));
  if (c.encoding == Encoding::kRaw) {
    if (out.empty()) return OkStatus();
    ZT_RETURN_IF_ERROR(state_->bytes->ReadAt(c.offset + offset, out));
    if (!c.big_endian) return OkStatus();
    const std::size_t width = ByteWidth(c.element.dtype);
    if (offset % width != 0 || out.size() % width != 0) {
      return InvalidArgument("big-endian data is read in whole elements");
    }
    SwapBytes(out, width);
    return OkStatus();
  }
  // An empty stream is still decoded, to validate it.
  if (out.empty() && size > 0) return OkStatus();
  ZT_ASSIGN_OR_RETURN(const auto table, state_->Table(c));
  return table->frames.empty() ? state_->ReadStream(id, size, offset, out)
                               : state_->ReadFrames(c, *table, offset, out);
}

StatusOr<std::uint64_t> Reader::DecodedBytes(ComponentId id) const {
  auto size = state_->Size(id);
  if (!size.ok()) return Named(id, size.status());
  return size;
}

StatusOr<Access> Reader::FindAccess(ComponentId id) const {
  auto access = state_->FindAccess(id);
  if (!access.ok()) return Named(id, access.status());
  return access;
}

StatusOr<std::vector<Frame>> Reader::Frames(ComponentId id) const {
  auto frames = state_->Frames(id);
  if (!frames.ok()) return Named(id, frames.status());
  return frames;
}

StatusOr<std::vector<std::uint64_t>> Reader::Cuts(ComponentId id, std::uint64_t bytes) const {
  // Size of a range of a raw component; a multiple of every element width.
  constexpr std::uint64_t kRange = 4 << 20;
  constexpr std::uint64_t kLeast = 1 << 20;  // minimum content of frames read together
  const StoredComponent& c = component(id);
  std::vector<std::uint64_t> cuts = {0};
  if (c.encoding == Encoding::kRaw) {
    for (std::uint64_t at = kRange; at < bytes; at += kRange) cuts.push_back(at);
  } else {
    ZT_ASSIGN_OR_RETURN(const auto table, state_->Table(c));
    for (const Frame& frame : table->frames) {
      const std::uint64_t at = frame.content_offset;
      if (at < bytes && at - cuts.back() >= kLeast) cuts.push_back(at);
    }
  }
  cuts.push_back(bytes);
  return cuts;
}

StatusOr<std::span<const std::byte>> Reader::Map(ComponentId id) const {
  auto mapped = MapWhole(id);
  if (!mapped.ok()) return Named(id, mapped.status());
  return mapped;
}

Status Reader::CheckMappable(ComponentId id) const {
  ZT_RETURN_IF_ERROR(state_->CheckId(id));
  const StoredComponent& c = component(id);
  if (c.encoding != Encoding::kRaw || c.big_endian) {
    return FailedPrecondition("only raw little-endian components can be mapped");
  }
  if (state_->HasLooseBools(id)) {
    return FailedPrecondition(
        "stored bools of this version may have other values than 0 and 1, so they cannot be "
        "mapped; read them");
  }
  if (c.shard != 0) return FailedPrecondition("the component lies in another file");
  if (!c.undecodable.empty()) return Unsupported(c.undecodable);
  if (state_->file == nullptr || !state_->file->descriptor()) {
    return FailedPrecondition("only bytes of a regular file can be mapped");
  }
  return OkStatus();
}

StatusOr<std::span<const std::byte>> Reader::MapWhole(ComponentId id) const {
  ZT_RETURN_IF_ERROR(CheckMappable(id));
  const StoredComponent& c = component(id);
  const MutexLock lock(state_->mutex);
  if (state_->mapping == nullptr) {
    ZT_RETURN_IF_ERROR(state_->file->CheckUnchanged());
    void* const data =
        ::mmap(nullptr, state_->file_bytes, PROT_READ, MAP_SHARED, *state_->file->descriptor(), 0);
    if (data == MAP_FAILED) return IoError(errno, "cannot map");
    state_->mapping = static_cast<const std::byte*>(data);
  }
  return std::span(state_->mapping + c.offset, c.length);
}

}  // namespace zt
