// zt.reader — opening, ranges, maps.
module;

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/mutex.h"
#include "core/status_macros.h"

module zt.reader;

import zt.compress;
import zt.core;
import zt.format;
import zt.source;
import zt.transform;

namespace zt {

using internal::Mutex;
using internal::MutexLock;
using reader::internal::kMaxFrameContent;

namespace {

// How a compressed component is decoded.
struct Compressed {
  std::vector<Frame> frames;        // empty: no usable seek table
  std::uint64_t content_bytes = 0;  // as declared, or found
  Mutex mutex;
  std::unique_ptr<StreamDecoder> stream ZT_GUARDED_BY(mutex);
  std::uint64_t position ZT_GUARDED_BY(mutex) = 0;
};

}  // namespace

struct Reader::State {
  std::shared_ptr<ByteSource> bytes;
  std::string path;  // empty where not opened by path
  Manifest manifest;
  std::uint64_t data_end = 0, file_bytes = 0;
  std::unordered_map<std::string_view, std::uint32_t> names;

  Mutex mutex;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::shared_ptr<Compressed>> compressed
      ZT_GUARDED_BY(mutex);
  const std::byte* mapping ZT_GUARDED_BY(mutex) = nullptr;

  ~State() {
    const MutexLock lock(mutex);
    if (mapping != nullptr) ::munmap(const_cast<std::byte*>(mapping), file_bytes);
  }

  Status Init() {
    const auto size = bytes->size();
    if (!size) return InvalidArgument("a .zt file is read from its end; a pipe will not do");
    file_bytes = *size;
    std::vector<std::byte> head(std::min<std::uint64_t>(file_bytes, 8));
    std::vector<std::byte> tail(std::min<std::uint64_t>(file_bytes, 16));
    ZT_RETURN_IF_ERROR(bytes->ReadAt(0, head));
    ZT_RETURN_IF_ERROR(bytes->ReadAt(file_bytes - tail.size(), tail));
    ZT_ASSIGN_OR_RETURN(const Trailer trailer, LocateManifest(head, tail, file_bytes));
    std::vector<std::byte> encoded(trailer.manifest_bytes);
    ZT_RETURN_IF_ERROR(bytes->ReadAt(trailer.manifest_offset, encoded));
    ZT_ASSIGN_OR_RETURN(manifest, DecodeManifest(encoded, trailer.family));
    data_end = trailer.manifest_offset;
    ZT_RETURN_IF_ERROR(CheckLayout(manifest, data_end));
    for (std::uint32_t i = 0; i < manifest.objects.size(); ++i) {
      names.emplace(manifest.objects[i].name, i);
    }
    return OkStatus();
  }

  const StoredComponent& component(ComponentId id) const {
    return manifest.objects[id.object].components[id.component];
  }

  StreamReader ReaderOf(const StoredComponent& c) {
    return [this, base = c.offset](std::uint64_t offset, std::span<std::byte> out) {
      return bytes->ReadAt(base + offset, out);
    };
  }

  StatusOr<std::shared_ptr<Compressed>> Open(ComponentId id) {
    const std::pair key(id.object, id.component);
    {
      const MutexLock lock(mutex);
      if (const auto it = compressed.find(key); it != compressed.end()) return it->second;
    }
    const StoredComponent& c = component(id);
    auto fresh = std::make_shared<Compressed>();
    const Codec& codec = *FindCodec(c.encoding);
    ZT_ASSIGN_OR_RETURN(auto table, codec.ReadFrames(ReaderOf(c), c.length, c.decoded_bytes));
    if (table) {
      ZT_RETURN_IF_ERROR(CheckFrames(c.parameters, *table));
      const bool sane = std::all_of(table->begin(), table->end(), [](const Frame& frame) {
        return frame.content_bytes <= kMaxFrameContent;
      });
      if (sane) fresh->frames = *std::move(table);
    }
    fresh->content_bytes = c.decoded_bytes;
    if (c.decoded_bytes == kUnknownSize) {
      if (fresh->frames.empty()) {
        ZT_ASSIGN_OR_RETURN(fresh->content_bytes, CountContent(c));
      } else {
        const Frame& last = fresh->frames.back();
        fresh->content_bytes = last.content_offset + last.content_bytes;
      }
    }
    const MutexLock lock(mutex);
    return compressed.emplace(key, std::move(fresh)).first->second;
  }

  StatusOr<std::uint64_t> CountContent(const StoredComponent& c) {
    StreamDecompressor stream(ReaderOf(c), c.length, kUnknownSize);
    std::vector<std::byte> piece(256 << 10);
    std::uint64_t total = 0;
    while (true) {
      ZT_ASSIGN_OR_RETURN(const std::size_t got, stream.ReadSome(piece));
      total += got;
      if (got < piece.size()) return total;
    }
  }

  Status ReadFrames(const StoredComponent& c, const std::vector<Frame>& all, std::uint64_t offset,
                    std::span<std::byte> out) const {
    auto frame = std::upper_bound(
        all.begin(), all.end(), offset,
        [](std::uint64_t at, const Frame& f) { return at < f.content_offset + f.content_bytes; });
    const Codec& codec = *FindCodec(c.encoding);
    std::vector<std::byte> stored, content;
    for (; !out.empty() && frame != all.end(); ++frame) {
      if (frame->content_bytes == 0) continue;
      stored.resize(frame->bytes);
      ZT_RETURN_IF_ERROR(bytes->ReadAt(c.offset + frame->offset, stored));
      const std::uint64_t skip = offset - frame->content_offset;
      const auto take = std::min<std::uint64_t>(out.size(), frame->content_bytes - skip);
      if (take == frame->content_bytes) {
        ZT_RETURN_IF_ERROR(codec.DecodeFrame(c.parameters, stored, out.first(take)));
      } else {
        content.resize(frame->content_bytes);
        ZT_RETURN_IF_ERROR(codec.DecodeFrame(c.parameters, stored, content));
        std::memcpy(out.data(), content.data() + skip, take);
      }
      out = out.subspan(take);
      offset += take;
    }
    return OkStatus();
  }

  Status ReadStream(const StoredComponent& c, Compressed& how, std::uint64_t offset,
                    std::span<std::byte> out) {
    const MutexLock lock(how.mutex);
    if (how.stream == nullptr || offset < how.position) {
      how.stream =
          FindCodec(c.encoding)->OpenStream(c.parameters, ReaderOf(c), c.length, how.content_bytes);
      how.position = 0;
    }
    std::vector<std::byte> skipped(std::min<std::uint64_t>(offset - how.position, 1 << 20));
    while (how.position < offset) {
      const auto step = std::min<std::uint64_t>(offset - how.position, skipped.size());
      ZT_RETURN_IF_ERROR(how.stream->Read(std::span(skipped).first(step)));
      how.position += step;
    }
    ZT_RETURN_IF_ERROR(how.stream->Read(out));
    how.position += out.size();
    if (how.position == how.content_bytes) {
      ZT_RETURN_IF_ERROR(how.stream->Finish());
      how.stream.reset();
      how.position = 0;
    }
    return OkStatus();
  }
};

Reader::Reader(std::unique_ptr<State> state) : state_(std::move(state)) {}
Reader::~Reader() = default;

StatusOr<std::unique_ptr<Reader>> Reader::Open(std::shared_ptr<ByteSource> bytes) {
  auto state = std::make_unique<State>();
  state->bytes = std::move(bytes);
  ZT_RETURN_IF_ERROR(state->Init());
  return std::unique_ptr<Reader>(new Reader(std::move(state)));
}

StatusOr<std::unique_ptr<Reader>> Reader::Open(const std::string& path) {
  ZT_ASSIGN_OR_RETURN(auto bytes, OpenFile(path));
  ZT_ASSIGN_OR_RETURN(auto reader, Open(std::move(bytes)));
  reader->state_->path = path;
  return reader;
}

const Manifest& Reader::manifest() const { return state_->manifest; }
const StoredComponent& Reader::component(ComponentId id) const { return state_->component(id); }
ByteSource& Reader::bytes() const { return *state_->bytes; }
std::uint64_t Reader::data_end() const { return state_->data_end; }

std::optional<std::uint32_t> Reader::Find(std::string_view name) const {
  const auto it = state_->names.find(name);
  if (it == state_->names.end()) return std::nullopt;
  return it->second;
}

Status Reader::Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) const {
  const StoredComponent& c = component(id);
  ZT_ASSIGN_OR_RETURN(const std::uint64_t size, DecodedBytes(id));
  if (offset > size || out.size() > size - offset) {
    return InvalidArgument("the range lies beyond the component");
  }
  if (out.empty()) return OkStatus();
  if (c.encoding == Encoding::kRaw) {
    ZT_RETURN_IF_ERROR(state_->bytes->ReadAt(c.offset + offset, out));
    if (!c.big_endian) return OkStatus();
    const std::size_t width = ByteWidth(c.element.dtype);
    if (offset % width != 0 || out.size() % width != 0) {
      return InvalidArgument("big-endian data is read in whole elements");
    }
    SwapBytes(out, width);
    return OkStatus();
  }
  ZT_ASSIGN_OR_RETURN(const std::shared_ptr<Compressed> how, state_->Open(id));
  return how->frames.empty() ? state_->ReadStream(c, *how, offset, out)
                             : state_->ReadFrames(c, how->frames, offset, out);
}

StatusOr<std::uint64_t> Reader::DecodedBytes(ComponentId id) const {
  const StoredComponent& c = component(id);
  if (c.decoded_bytes != kUnknownSize) return c.decoded_bytes;
  ZT_ASSIGN_OR_RETURN(const std::shared_ptr<Compressed> how, state_->Open(id));
  return how->content_bytes;
}

bool Reader::sequential_component(ComponentId id) const {
  if (component(id).encoding == Encoding::kRaw) return false;
  const auto how = state_->Open(id);
  return how.ok() && (*how)->frames.empty();
}

std::uint64_t Reader::frame_bytes(ComponentId id) const {
  if (component(id).encoding == Encoding::kRaw) return 0;
  const auto how = state_->Open(id);
  return how.ok() && !(*how)->frames.empty() ? (*how)->frames.front().content_bytes : 0;
}

StatusOr<std::span<const std::byte>> Reader::Map(ComponentId id) const {
  const StoredComponent& c = component(id);
  if (c.encoding != Encoding::kRaw || c.big_endian) {
    return FailedPrecondition("only raw little-endian components can be mapped");
  }
  if (state_->path.empty()) return FailedPrecondition("the file was not opened by its path");
  const MutexLock lock(state_->mutex);
  if (state_->mapping == nullptr) {
    const int fd = ::open(state_->path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return IoError(errno, "cannot open");
    struct stat info;
    const bool same =
        ::fstat(fd, &info) == 0 && static_cast<std::uint64_t>(info.st_size) == state_->file_bytes;
    void* data =
        same ? ::mmap(nullptr, state_->file_bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    const int error = errno;
    ::close(fd);
    if (!same) return InvalidData("the file has changed since it was opened");
    if (data == MAP_FAILED) return IoError(error, "cannot map");
    state_->mapping = static_cast<const std::byte*>(data);
  }
  return std::span(state_->mapping + c.offset, c.length);
}

}  // namespace zt
