// zt.cli:shards — the files that a plan reads: their times, and samples of their bytes.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :output;
import :shards;

namespace zt::cli::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostSamples = 4096;    // in all files together
constexpr std::uint64_t kSampleBytes = 4096;  // at the start of a tensor
// At the end of a file, where many formats have a directory or manifest.
constexpr std::uint64_t kEndBytes = 65536;
// Samples at even distances, of a file on a server and of others.
constexpr std::uint64_t kRemoteSpread = 4;
constexpr std::uint64_t kSpread = 16;

struct Sample {
  const std::string* path = nullptr;
  std::uint64_t offset = 0;
};

// Appends the offsets at which to sample a file, ascending.
void AddSamples(const std::string& path, std::vector<std::uint64_t> places,
                std::vector<Sample>& samples) {
  const std::optional<std::uint64_t> size = TheStore().SizeOf(path);
  if (!size) return;
  const std::uint64_t bytes = *size;
  // Every sample of a remote file costs a request.
  if (IsUrl(path)) places.clear();
  const std::uint64_t spread = IsUrl(path) ? kRemoteSpread : kSpread;
  for (std::uint64_t i = 0; i < spread; ++i) places.push_back(bytes / spread * i);
  std::ranges::sort(places);
  const auto again = std::ranges::unique(places);
  places.erase(again.begin(), again.end());
  for (const std::uint64_t place : places) {
    if (place < bytes) samples.push_back({&path, place});
  }
}

}  // namespace

std::vector<InputFile> FindInputFiles(const TensorSource& source, const Plan& plan,
                                      const std::vector<std::string>& shards) {
  std::vector<InputFile> files;
  std::unordered_map<std::string_view, std::size_t, zt::internal::NameHash> known;
  for (const PlannedObject& object : plan.objects) {
    for (const PlannedComponent& component : object.components) {
      const std::string& name = source.file(component.source);
      const auto [held, fresh] = known.emplace(name, files.size());
      if (fresh) files.push_back({name, {}});
      if (const auto extent = source.extent(component.source); extent && extent->bytes != nullptr)
        files[held->second].places.push_back(extent->offset);
    }
  }
  // Of what is made of several files, a component names one.
  for (const auto* const others : {&source.part_files(), &source.other_files()}) {
    for (const std::string& name : *others) {
      if (known.emplace(name, files.size()).second) files.push_back({name, {}});
    }
  }
  std::erase_if(files, [&](const InputFile& file) {
    return TheStore().IsFolder(file.path) || !TheStore().Exists(file.path);
  });
  for (const std::string& shard : shards) files.push_back({shard, {}});
  return files;
}

std::optional<fs::file_time_type> LastChange(const std::vector<InputFile>& files) {
  std::optional<fs::file_time_type> last;
  for (const InputFile& file : files) {
    std::error_code error;
    const fs::file_time_type time = fs::last_write_time(file.path, error);
    if (!error) last = last ? std::max(*last, time) : time;
  }
  return last;
}

StatusOr<std::string> SampleInputs(const std::vector<InputFile>& files) {
  std::vector<Sample> samples;
  for (const InputFile& file : files) AddSamples(file.path, file.places, samples);
  const std::unique_ptr<Hasher> hasher = MakeHasher(DigestKind::kSha256);
  const std::size_t count = std::min(samples.size(), kMostSamples);
  std::vector<std::byte> buffer(kEndBytes);
  const std::string* open = nullptr;
  std::shared_ptr<ByteSource> bytes;
  std::uint64_t size = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Sample& sample = samples[i * samples.size() / count];
    const auto hash = [&](std::uint64_t offset, std::uint64_t most) -> Status {
      const auto piece = std::span(buffer).first(std::min(most, size - offset));
      ZT_RETURN_IF_ERROR(WithFile(bytes->ReadAt(offset, piece), *sample.path));
      hasher->Update(piece);
      return OkStatus();
    };
    if (sample.path != open) {
      ZT_ASSIGN_OR_RETURN(bytes, WithFile(TheStore().Open(*sample.path), *sample.path));
      open = sample.path;
      ZT_ASSIGN_OR_RETURN(size, WithFile(KnownSize(*bytes, "a file in shards"), *sample.path));
      ZT_RETURN_IF_ERROR(hash(size - std::min(size, kEndBytes), kEndBytes));
    }
    if (sample.offset < size) ZT_RETURN_IF_ERROR(hash(sample.offset, kSampleBytes));
  }
  return hasher->Finish();
}

}  // namespace zt::cli::internal
