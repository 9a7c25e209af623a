// zt.cli:shards — the files that a plan reads: their times, and samples of their bytes.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :output;
import :shards;

namespace zt::cli::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSampleBytes = 4096;
constexpr std::uint64_t kMostSamples = 1024, kLeastSamples = 16;  // in all files; in one of many
constexpr std::uint64_t kRemoteSamples = 4;                       // in one on a server
// At the end of a file, where many formats have a directory or manifest.
constexpr std::uint64_t kEndBytes = 65536;

// Hashes the end of a file and samples at even distances: all of it if it is small.
Status SampleFile(const std::string& path, std::uint64_t most, Hasher& hasher) {
  ZT_ASSIGN_OR_RETURN(const auto bytes, TheStore().Open(path));
  ZT_ASSIGN_OR_RETURN(const std::uint64_t size, KnownSize(*bytes, "a file in shards"));
  std::vector<std::byte> buffer(kEndBytes);
  const auto hash = [&](std::uint64_t offset, std::uint64_t count) -> Status {
    const auto piece = std::span(buffer).first(std::min(count, size - offset));
    ZT_RETURN_IF_ERROR(bytes->ReadAt(offset, piece));
    hasher.Update(piece);
    return OkStatus();
  };
  ZT_RETURN_IF_ERROR(hash(size - std::min(size, kEndBytes), kEndBytes));
  const std::uint64_t samples = std::min(most, (size + kSampleBytes - 1) / kSampleBytes);
  for (std::uint64_t i = 0; i < samples; ++i)
    ZT_RETURN_IF_ERROR(hash(size / samples * i, kSampleBytes));
  return OkStatus();
}

}  // namespace

std::optional<fs::file_time_type> LastChange(std::span<const std::string> files) {
  std::optional<fs::file_time_type> last;
  for (const std::string& file : files) {
    std::error_code error;
    const fs::file_time_type time = fs::last_write_time(file, error);
    if (!error) last = last ? std::max(*last, time) : time;
  }
  return last;
}

StatusOr<std::string> SampleInputs(std::span<const std::string> files) {
  const std::unique_ptr<Hasher> hasher = MakeHasher(DigestKind::kSha256);
  for (const std::string& file : files) {
    const std::optional<std::uint64_t> size = TheStore().SizeOf(file);
    if (!size) continue;  // a folder
    hasher->Update(std::as_bytes(std::span(&*size, 1)));
    const std::uint64_t most =
        IsUrl(file) ? kRemoteSamples : std::max(kMostSamples / files.size(), kLeastSamples);
    ZT_RETURN_IF_ERROR(WithFile(SampleFile(file, most, *hasher), file));
  }
  return hasher->Finish();
}

}  // namespace zt::cli::internal
