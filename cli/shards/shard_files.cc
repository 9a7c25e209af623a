// zt.cli:shards — the files of shards: names, digests, and the check of existing files.
module;

#include <sys/stat.h>

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :output;
import :shards;
import :paths;
import :signals;
import zt.convert.shards;

namespace zt::cli::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kXxhsumTag = "XXH3_";  // xxhsum writes it before the hash
constexpr std::uint64_t kMaxDigestFile = 1 << 16;

// kWhole if the file is the shard with this stamp and has its digest, kUnvouched if it has no digest;
// else the reason.
StatusOr<ShardState> CheckIsShard(const std::string& path, const ShardStamp& stamp) {
  const auto damaged = [](const Status& cause) {
    return InvalidData("it is damaged: " + Message(cause));
  };
  const auto reader = OpenReader(path);
  ZT_RETURN_IF_UNAVAILABLE(reader.status());
  if (!reader.ok()) return damaged(reader.status());
  const auto found = FindShardStamp((*reader)->manifest().attributes);
  if (!found) return InvalidData("it is not a shard");
  if (found->plan != stamp.plan)
    return InvalidData("it is a shard of another plan: the inputs or the options were different");
  if (*found != stamp) return InvalidData("it is shard " + std::to_string(found->number));
  ZT_ASSIGN_OR_RETURN(const std::string listed, ReadDigestFile(path));
  if (listed.empty()) return ShardState::kUnvouched;
  ZT_ASSIGN_OR_RETURN(const DigestText parsed, ParseDigest(listed));
  ZT_ASSIGN_OR_RETURN(const std::string digest, DigestOfFile(path, parsed.kind));
  if (digest != listed) return damaged(InvalidData("its digest is " + digest + ", not " + listed));
  return ShardState::kWhole;
}

}  // namespace

std::string ShardPath(const std::string& output, std::uint64_t number, std::uint64_t count) {
  std::string_view stem = output;
  if (stem.ends_with(".zt")) stem.remove_suffix(3);  // a dry run takes any name
  return std::string(stem) + "-" + PartText(number) + "-of-" + PartText(count) + ".zt";
}

DigestKind FileDigestOf(const WriterOptions& options) {
  return options.storage.digest == DigestKind::kSha256 ? DigestKind::kSha256 : DigestKind::kXxh3;
}

Status WriteDigestFile(const std::string& path, const std::string& digest, bool sync) {
  ZT_ASSIGN_OR_RETURN(const DigestText parsed, ParseDigest(digest));
  const std::string target = DigestPath(path, parsed.kind);
  const std::string text = (parsed.kind == DigestKind::kXxh3 ? std::string(kXxhsumTag) : "") +
                           digest.substr(digest.find(':') + 1) + "  " +
                           fs::path(path).filename().string() + "\n";
  return WriteText(target, text, {.overwrite = true, .sync = sync, .like = path});
}

void RemoveDigestFiles(const std::string& path) {
  for (const DigestKind kind : kFileDigests) {
    std::error_code ignored;
    fs::remove(DigestPath(path, kind), ignored);
  }
}

namespace {

StatusOr<std::string> DigestIn(const std::string& file, DigestKind kind) {
  ZT_ASSIGN_OR_RETURN(const auto bytes, TheStore().Open(file));
  ZT_ASSIGN_OR_RETURN(const std::string text, ReadAll(*bytes, kMaxDigestFile));
  std::string_view hex = std::string_view(text).substr(0, text.find_first_of(" \n"));
  if (hex.starts_with(kXxhsumTag)) hex.remove_prefix(kXxhsumTag.size());
  ZT_ASSIGN_OR_RETURN(const auto digest,
                      ParseDigest(std::string(Name(kind)) + ":" + std::string(hex)));
  return digest.canonical;
}

}  // namespace

StatusOr<std::string> ReadDigestFile(const std::string& path) {
  for (const DigestKind kind : kFileDigests) {
    const std::string file = DigestPath(path, kind);
    ZT_ASSIGN_OR_RETURN(const bool there, WithFile(TheStore().Exists(file), file));
    if (there) return WithFile(DigestIn(file, kind), file);
  }
  return std::string();
}

StatusOr<std::string> DigestOfFile(const std::string& path, DigestKind kind) {
  ZT_ASSIGN_OR_RETURN(const std::shared_ptr<ByteSource> bytes, TheStore().Open(path));
  const std::unique_ptr<Hasher> hasher = MakeHasher(kind);
  const auto update = [&](std::uint64_t, std::span<const std::byte> piece) {
    hasher->Update(piece);
    return !Interrupted();
  };
  ZT_ASSIGN_OR_RETURN(const std::uint64_t size, KnownSize(*bytes, "a shard"));
  ZT_RETURN_IF_ERROR(ReadThrough(*bytes, 0, size, update));
  if (Interrupted()) return Cancelled("interrupted");
  ZT_RETURN_IF_ERROR(bytes->CheckUnchanged());
  return hasher->Finish();
}

Status CheckShardFolder(const Args& args, const FilesRead& inputs, const ShardPlan& cut,
                        const std::string& index) {
  const std::uint64_t count = cut.shards.size();
  for (std::uint64_t number = 1; number <= count; ++number)
    ZT_RETURN_IF_ERROR(inputs.CheckOmits(ShardPath(args.output, number, count)));
  if (!index.empty()) ZT_RETURN_IF_ERROR(inputs.CheckOmits(index));
  // If shards of different counts lie in one folder, a reader of the folder cannot tell them apart.
  const fs::path first(ShardPath(args.output, 1, count));
  const auto ours = ParseShardName(first.filename().string(), ".zt");
  const fs::path folder = first.has_parent_path() ? first.parent_path() : ".";
  if (!ours) return OkStatus();
  const auto listed = TheStore().List(folder.string());
  if (!listed.ok()) {  // as of a bucket that may only be written to
    const std::string line =
        folder.string() +
        ": whether shards of another count are there is not known: " + Message(listed.status());
    WarnAll(args, std::span(&line, 1));
    return OkStatus();
  }
  for (const std::string& name : *listed) {
    const auto other = ParseShardName(name, ".zt");
    if (!other || other->stem != ours->stem || other->count == ours->count) continue;
    return WithFile(
        AlreadyExists("shards of this name with another count, " + std::to_string(other->count) +
                      ", exist already; remove them first"),
        (folder / name).string());
  }
  return OkStatus();
}

StatusOr<ShardState> FindShard(const std::string& path, const ShardStamp& stamp, bool force,
                               std::optional<fs::file_time_type> inputs) {
  std::error_code error;
  ZT_ASSIGN_OR_RETURN(const bool there, WithFile(TheStore().Exists(path), path));
  if (!there) return ShardState::kAbsent;  // a dangling link, too
  StatusOr<ShardState> state = CheckIsShard(path, stamp);
  if (state.ok() && inputs && fs::last_write_time(path, error) < *inputs && !error)
    state = InvalidData("it is older than its inputs");
  if (state.ok()) return state;
  ZT_RETURN_IF_UNAVAILABLE(WithFile(state.status(), path));
  if (force) return ShardState::kUnvouched;
  return WithFile(
      WithAdvice(AlreadyExists("the output exists already, and " + Message(state.status())),
                 Advice::kReplace),
      path);
}

Status OtherIndex() {
  return WithAdvice(AlreadyExists("the index exists already and belongs to other shards"),
                    Advice::kReplace);
}

}  // namespace zt::cli::internal
