// zt.reader — joins a file and its shards (2.0 §7) into one source, and finds shards.
module;

#include "core/status_macros.h"
#include "core/thread_annotations.h"

module zt.reader;

import zt.std;
import :checks;
import zt.core;
import zt.digest;
import zt.format;
import zt.source;

namespace zt {

using internal::Mutex;
using internal::MutexLock;

namespace {

StatusOr<std::string> DigestOfRange(ByteSource& bytes, std::uint64_t begin, std::uint64_t end,
                                    DigestKind kind) {
  const std::unique_ptr<Hasher> hasher = MakeHasher(kind);
  const auto update = [&](std::uint64_t, std::span<const std::byte> piece) {
    hasher->Update(piece);
    return true;
  };
  ZT_RETURN_IF_ERROR(ReadThrough(bytes, begin, end, update));
  return hasher->Finish();
}

StatusOr<std::string> DigestOfBytes(ByteSource& bytes, DigestKind kind) {
  ZT_ASSIGN_OR_RETURN(const std::uint64_t size, KnownSize(bytes, "a shard"));
  return DigestOfRange(bytes, 0, size, kind);
}

// Limit on the folder entries examined for a shard that is not found by name.
constexpr std::size_t kMostEntries = 65536;

// The bytes of the file, followed by those of each shard. A shard is opened at its first read.
class ShardedBytes final : public ByteSource {
 public:
  ShardedBytes(std::shared_ptr<ByteSource> file, std::vector<StoredShard> shards, ShardFinder find)
      : name_(file->name()), shards_(std::move(shards)), find_(std::move(find)) {
    const std::uint64_t begin = shards_.front().begin;
    open_.push_back({0, begin, std::move(file)});
    for (const StoredShard& shard : shards_) open_.push_back({shard.begin, shard.bytes, nullptr});
  }

  const std::string& name() const override { return name_; }
  std::optional<std::uint64_t> size() const override {
    return open_.back().begin + open_.back().bytes;
  }
  bool sequential() const override { return false; }

  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    auto file = std::upper_bound(open_.begin(), open_.end(), offset,
                                 [](std::uint64_t at, const ShardSlot& p) { return at < p.begin; });
    for (--file; !out.empty(); ++file) {
      if (file == open_.end()) return InvalidData("the data ends early");
      const std::uint64_t skip = offset - file->begin;
      if (skip >= file->bytes) continue;
      const auto part = out.first(std::min<std::uint64_t>(out.size(), file->bytes - skip));
      const auto number = static_cast<std::size_t>(file - open_.begin());
      ZT_ASSIGN_OR_RETURN(const auto bytes, Open(number));
      ZT_RETURN_IF_ERROR(InShard(number, bytes->ReadAt(skip, part)));
      out = out.subspan(part.size());
      offset += part.size();
    }
    return OkStatus();
  }

  // The digest of file `number`. Shards that are the same file share a source, and so a digest.
  StatusOr<std::string> Digest(std::size_t number, DigestKind kind) {
    ZT_ASSIGN_OR_RETURN(const auto source, Open(number));
    const std::pair<const ByteSource*, DigestKind> key(source.get(), kind);
    if (auto held = HeldDigest(key)) return *std::move(held);
    const MutexLock hashing(hashing_);  // one thread hashes a shard, others wait
    if (auto held = HeldDigest(key)) return *std::move(held);
    auto digest = DigestOfBytes(*source, kind);
    if (!digest.ok()) return InShard(number, digest.status());
    const MutexLock lock(mutex_);
    return digests_.emplace(key, *std::move(digest)).first->second;
  }

  Status CheckUnchanged() override {
    for (std::size_t i = 0; i < open_.size(); ++i) {
      std::shared_ptr<ByteSource> bytes;
      {
        const MutexLock lock(mutex_);
        bytes = open_[i].source;
      }
      if (bytes != nullptr) ZT_RETURN_IF_ERROR(InShard(i, bytes->CheckUnchanged()));
    }
    return OkStatus();
  }

 private:
  struct ShardSlot {
    std::uint64_t begin, bytes;
    std::shared_ptr<ByteSource> source;  // null until it is opened
  };

  Status InShard(std::size_t number, const Status& status) const {
    if (number == 0 || status.ok()) return status;
    return Annotate(status, "shard " + Quote(shards_[number - 1].name));
  }

  std::optional<std::string> HeldDigest(const std::pair<const ByteSource*, DigestKind>& key) {
    const MutexLock lock(mutex_);
    const auto found = digests_.find(key);
    return found == digests_.end() ? std::nullopt : std::optional(found->second);
  }

  StatusOr<std::shared_ptr<ByteSource>> Open(std::size_t number) {
    const MutexLock lock(mutex_);
    ShardSlot& place = open_[number];
    if (place.source != nullptr) return place.source;
    auto found = find_(shards_[number - 1]);
    if (!found.ok()) return InShard(number, found.status());
    place.source = *std::move(found);
    return place.source;
  }

  const std::string name_;
  const std::vector<StoredShard> shards_;
  const ShardFinder find_;
  Mutex hashing_;                // locked before mutex_
  Mutex mutex_;                  // guards ShardSlot::source and digests_; the rest is constant
  std::vector<ShardSlot> open_;  // sorted by `begin`
  std::map<std::pair<const ByteSource*, DigestKind>, std::string> digests_;
};

// The first two checks of §7.3: the size in the root, and the footer of a 2.0 file.
Status CheckShardFile(ByteSource& bytes, const StoredShard& shard) {
  ZT_ASSIGN_OR_RETURN(const std::uint64_t size, KnownSize(bytes, "a .zt file"));
  if (size != shard.bytes) {
    return InvalidData("it has " + std::to_string(size) + " bytes, the shard table says " +
                       std::to_string(shard.bytes));
  }
  std::vector<std::byte> head(std::min<std::uint64_t>(shard.bytes, 8));
  std::vector<std::byte> tail(std::min<std::uint64_t>(shard.bytes, kTailBytes));
  ZT_RETURN_IF_ERROR(bytes.ReadAt(0, head));
  ZT_RETURN_IF_ERROR(bytes.ReadAt(shard.bytes - tail.size(), tail));
  ZT_ASSIGN_OR_RETURN(const Trailer trailer, LocateManifest(head, tail, shard.bytes));
  if (trailer.family == SpecVersion::k2_0) return OkStatus();
  return InvalidData("it is not a file of zTensor 2.0");
}

// The files of a folder: listed once, each opened and hashed once, for any number of shards.
// Thread-safe.
class Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {}

  // The first file by name with this size and digest that `open` accepts; nullopt if there is none.
  // An error if the system refuses to open a candidate, since it might be the one.
  template <typename Open>
  StatusOr<std::optional<std::shared_ptr<ByteSource>>> Find(std::uint64_t bytes,
                                                            const DigestText& digest, Open open) {
    const MutexLock lock(mutex_);
    if (!listed_) ZT_RETURN_IF_ERROR(List());
    const auto [begin, end] = by_size_.equal_range(bytes);
    for (auto file = begin; file != end; ++file) {
      File& at = file->second;
      const auto found = at.digests.find(digest.kind);
      if (found != at.digests.end() && found->second != digest.canonical) continue;
      std::shared_ptr<ByteSource> source = at.source.lock();
      if (source == nullptr) {
        auto opened = open(at.name);
        if (opened.status().code() == StatusCode::kUnavailable) {
          return Annotate(opened.status(), Quote(at.name));
        }
        if (!opened.ok()) continue;
        source = *std::move(opened);
        at.source = source;
      }
      if (found == at.digests.end()) {
        ZT_ASSIGN_OR_RETURN(std::string text, DigestOfBytes(*source, digest.kind));
        const bool same = text == digest.canonical;
        at.digests.emplace(digest.kind, std::move(text));
        if (!same) continue;
      }
      return std::optional(std::move(source));
    }
    return std::nullopt;
  }
  // The files among which Find has found none.
  std::string Searched() {
    const MutexLock lock(mutex_);
    if (!cut_) return "no other file beside the root";
    return "none of the first " + std::to_string(kMostEntries) +
           " files beside the root (there are more)";
  }

 private:
  struct File {
    std::string name;
    std::weak_ptr<ByteSource> source = {};  // while in use
    std::map<DigestKind, std::string> digests = {};
  };

  Status List() ZT_REQUIRES(mutex_) {
    std::vector<std::pair<std::string, std::uint64_t>> files;
    std::error_code error;
    std::size_t seen = 0;
    for (auto entry = std::filesystem::directory_iterator(path_, error);
         !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      cut_ = ++seen > kMostEntries;
      if (cut_) break;
      std::error_code none;
      if (!entry->is_regular_file(none)) continue;
      const std::uint64_t bytes = entry->file_size(none);
      if (!none) files.emplace_back(entry->path().filename().string(), bytes);
    }
    if (error) return IoError(error.value(), "cannot list the folder " + path_);
    std::sort(files.begin(), files.end());
    for (auto& [name, bytes] : files) by_size_.emplace(bytes, File{std::move(name)});
    listed_ = true;
    return OkStatus();
  }

  const std::string path_;
  Mutex mutex_;
  bool listed_ ZT_GUARDED_BY(mutex_) = false;
  bool cut_ ZT_GUARDED_BY(mutex_) = false;  // there are more entries than were looked at
  // Files of equal size are sorted by name.
  std::multimap<std::uint64_t, File> by_size_ ZT_GUARDED_BY(mutex_);
};

}  // namespace

namespace reader::internal {

StatusOr<std::shared_ptr<ByteSource>> JoinShards(std::shared_ptr<ByteSource> file,
                                                 Manifest& manifest, ShardFinder find) {
  std::uint64_t end = *file->size();
  for (StoredShard& shard : manifest.shards) {
    shard.begin = end;
    const auto next = CheckedAdd(end, shard.bytes);
    if (!next || *next > std::uint64_t{1} << 62) {
      return InvalidData("the shards have more bytes than can be counted (zTensor 2.0 §7.1)");
    }
    end = *next;
  }
  for (StoredObject& object : manifest.objects) {
    for (StoredComponent& c : object.components) {
      if (c.shard > 0) c.offset += manifest.shards[c.shard - 1].begin;
    }
  }
  if (!find) {
    find = [](const StoredShard&) -> StatusOr<std::shared_ptr<ByteSource>> {
      return InvalidArgument("its bytes lie in another file, and nothing says where");
    };
  }
  return std::make_shared<ShardedBytes>(std::move(file), manifest.shards, std::move(find));
}

StatusOr<std::string> DigestOfShard(ByteSource& joined, const StoredShard& shard, std::size_t index,
                                    DigestKind kind) {
  if (auto* const files = dynamic_cast<ShardedBytes*>(&joined)) {
    return files->Digest(index + 1, kind);
  }
  return DigestOfRange(joined, shard.begin, shard.begin + shard.bytes, kind);
}

Status CompareDigest(const StoredShard& shard, const DigestText& stated, const std::string& found) {
  if (found == stated.canonical) return OkStatus();
  return InvalidData("shard " + Quote(shard.name) + ": the digest is " + found +
                     ", the root says " + shard.digest + " (zTensor 2.0 §7.1)");
}

}  // namespace reader::internal

std::string ShardPath(const std::string& path, const StoredShard& shard) {
  const std::filesystem::path root(path);
  return (root.parent_path() / (root.stem().string() + "-" + shard.name + ".zt")).string();
}

ShardFinder ShardsBeside(const std::string& path, const InputOptions& options) {
  const std::filesystem::path root(path);
  const std::string folder = root.has_parent_path() ? root.parent_path().string() : ".";
  return [path, root, folder, options, others = std::make_shared<Folder>(folder)](
             const StoredShard& shard) -> StatusOr<std::shared_ptr<ByteSource>> {
    const std::filesystem::path file = ShardPath(path, shard);
    const auto open = [&](const std::string& name) -> StatusOr<std::shared_ptr<ByteSource>> {
      ZT_RETURN_IF_ERROR(CheckStaysInside(folder, name, options));
      ZT_ASSIGN_OR_RETURN(auto bytes, options.store->Open((root.parent_path() / name).string()));
      ZT_RETURN_IF_ERROR(CheckShardFile(*bytes, shard));
      return bytes;
    };
    auto found = open(file.filename().string());
    if (found.ok()) return found;
    if (IsUrl(path)) {
      const bool there = found.status().code() == StatusCode::kUnimplemented;
      return WithAdvice(
          MakeStatus(found.status().code(),
                     Quote(file.string()) + ": " + Message(found.status()) +
                         (there ? "" : "; on a server shards are found by their names alone")),
          found.status());
    }
    const auto digest = ParseDigest(shard.digest);
    std::string other = "; its digest is of no kind that is known here, so no other file can be it";
    if (digest.ok() && digest->kind != DigestKind::kNone) {
      ZT_ASSIGN_OR_RETURN(auto same, others->Find(shard.bytes, *digest, open));
      if (same) return *std::move(same);
      other = "; " + others->Searched() + " has its size and digest";
    }
    std::error_code error;
    if (!std::filesystem::exists(file, error) && !error) {
      return InvalidData(Quote(file.string()) + " is missing" + other);
    }
    return WithAdvice(MakeStatus(found.status().code(),
                                 Quote(file.string()) + ": " + Message(found.status()) + other),
                      found.status());
  };
}

}  // namespace zt
