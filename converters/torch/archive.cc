// zt.convert.torch — the zip container: data.pkl, and an entry for each storage.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.torch;

import zt.std;
import :contents;
import :open;
import :pickle;
import :source;
import zt.convert.zip;
import zt.core;
import zt.source;

namespace zt {
namespace torch::internal {
namespace {

constexpr std::string_view kPickle = "data.pkl";
// So many times what is stored of it may a deflated pickle have, and more where SourceMemory::free_inflated has some left.
constexpr std::uint64_t kMostInflated = 32;

// True where the last part of the path is `name`.
bool IsNamed(std::string_view path, std::string_view name) {
  return path.ends_with(name) &&
         (path.size() == name.size() || path[path.size() - name.size() - 1] == '/');
}

class ArchiveSource final : public StorageSource {
 public:
  ArchiveSource(std::shared_ptr<ZipArchive> archive, std::vector<std::size_t> entries)
      : archive_(std::move(archive)), entries_(std::move(entries)) {}

  const std::string& file(ComponentId) const override { return archive_->name(); }
  Status Finish() override {
    ZT_RETURN_IF_ERROR(WithFile(archive_->CheckUnchanged(), archive_->name()));
    for (const std::size_t entry : entries_) {
      ZT_RETURN_IF_ERROR(WithFile(
          Annotate(archive_->Verify(entry, 0), "entry " + Quote(archive_->entries()[entry].name)),
          archive_->name()));
    }
    return OkStatus();
  }

 private:
  std::shared_ptr<ZipArchive> archive_;
  std::vector<std::size_t> entries_;  // of the storages
};

// What other files are that torch writes as zip archives.
Status CheckKind(const ZipArchive& archive) {
  for (const ZipEntry& entry : archive.entries()) {
    if (IsNamed(entry.name, "constants.pkl") || IsNamed(entry.name, "bytecode.pkl")) {
      return Unsupported(
          "it is a TorchScript archive; load it with torch.jit.load and save its state_dict()");
    }
    if (IsNamed(entry.name, "archive_format") ||
        IsNamed(entry.name, "serialized_exported_program.json")) {
      return Unsupported(
          "it is an exported program (torch.export); load it and save its state_dict");
    }
  }
  return OkStatus();
}

// Entries by what follows the folder that data.pkl is in.
class Entries {
 public:
  static StatusOr<Entries> Find(const ZipArchive& archive) {
    Entries entries;
    const std::string* root = nullptr;
    for (const ZipEntry& entry : archive.entries()) {
      if (!IsNamed(entry.name, kPickle)) continue;
      if (root != nullptr) return InvalidData("the archive has data.pkl twice");
      root = &entry.name;
    }
    if (root == nullptr) return InvalidData("the archive has no data.pkl");
    const std::string_view prefix =
        std::string_view(*root).substr(0, root->size() - kPickle.size());
    for (std::size_t i = 0; i < archive.entries().size(); ++i) {
      const std::string_view name = archive.entries()[i].name;
      if (!name.starts_with(prefix)) continue;
      if (!entries.by_name_.emplace(name.substr(prefix.size()), i).second) {
        return InvalidData("entry " + Quote(name) + " is in the archive twice");
      }
    }
    return entries;
  }
  std::optional<std::size_t> Get(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::unordered_map<std::string_view, std::size_t, zt::internal::NameHash> by_name_;
};

StatusOr<bool> IsBigEndian(ZipArchive& archive, const Entries& entries) {
  const std::optional<std::size_t> index = entries.Get("byteorder");
  if (!index) return false;  // files older than the entry are little-endian
  ZT_ASSIGN_OR_RETURN(const auto bytes, archive.OpenEntry(*index));
  std::string text(std::min<std::uint64_t>(*bytes->size(), 16), '\0');
  ZT_RETURN_IF_ERROR(bytes->ReadAt(0, std::as_writable_bytes(std::span(text))));
  if (text == "little") return false;
  if (text == "big") return true;
  return Unsupported("its byte order is " + Quote(text) + ", neither little nor big");
}

}  // namespace

StatusOr<std::unique_ptr<TensorSource>> OpenArchive(std::shared_ptr<ByteSource> bytes,
                                                    const std::string& stem,
                                                    std::uint64_t memory_limit,
                                                    const SourceMemory& memory) {
  ZT_ASSIGN_OR_RETURN(std::shared_ptr<ZipArchive> archive, ZipArchive::Open(std::move(bytes)));
  ZT_RETURN_IF_ERROR(CheckKind(*archive));
  const std::size_t unchecked = archive->SkipAbsentCrcs();
  ZT_ASSIGN_OR_RETURN(const Entries entries, Entries::Find(*archive));
  ZT_ASSIGN_OR_RETURN(const bool big_endian, IsBigEndian(*archive, entries));
  Contents contents;
  {
    const std::size_t index = *entries.Get(std::string(kPickle));
    const auto opened = archive->OpenEntry(index);
    if (!opened.ok()) {
      return Annotate(opened.status(), "entry " + Quote(archive->entries()[index].name));
    }
    const auto& pickle = *opened;
    const ZipEntry& entry = archive->entries()[index];
    if (entry.size > PickleLimits().bytes) {
      return Unsupported("data.pkl has " + std::to_string(entry.size) + " bytes, more than " +
                         std::to_string(PickleLimits().bytes));
    }
    const std::uint64_t allowed = kMostInflated * entry.stored_size,
                        beyond = entry.size > allowed ? entry.size - allowed : 0;
    if (beyond > *memory.free_inflated) {
      return Unsupported("data.pkl has " + std::to_string(entry.size) +
                         " bytes that were deflated to " + std::to_string(entry.stored_size) +
                         ", as no checkpoint's are; unpack the archive, and zip it uncompressed");
    }
    *memory.free_inflated -= beyond;
    ZT_ASSIGN_OR_RETURN(const Graph graph, Graph::Read(*pickle, 0));
    if (graph.size() != *pickle->size()) {
      return InvalidData("bytes follow the pickle in data.pkl");
    }
    ZT_ASSIGN_OR_RETURN(contents, ReadContents(graph, stem, memory.chunk ? 0 : memory_limit));
    if (memory.chunk) contents.attributes = {};
  }
  std::vector<Place> places;
  std::vector<std::size_t> used;
  for (const Storage& storage : contents.storages) {
    if (storage.bytes != nullptr) {
      places.push_back({storage.bytes, 0, storage.count, 0, storage.big_endian, false});
      continue;
    }
    const std::optional<std::size_t> index = entries.Get("data/" + storage.key);
    if (!index) return InvalidData("storage " + Quote(storage.key) + " is not in the archive");
    const std::string context = "entry " + Quote(archive->entries()[*index].name);
    auto entry = archive->OpenEntry(*index);
    if (!entry.ok()) return Annotate(entry.status(), context);
    const std::uint64_t size = *(*entry)->size();
    if (size != storage.width * storage.count) {
      return Annotate(InvalidData("it has " + std::to_string(size) + " bytes, the pickle says " +
                                  std::to_string(storage.width * storage.count)),
                      context);
    }
    places.push_back({*std::move(entry), 0, size, *index, big_endian, false});
    used.push_back(*index);
  }
  auto source = std::make_unique<ArchiveSource>(std::move(archive), std::move(used));
  AddLeftOut(contents, *source);
  if (unchecked > 0) {
    source->AddWarning("the archive has no CRCs for " + std::to_string(unchecked) +
                       " of its entries: damage in them goes unnoticed");
  }
  ZT_RETURN_IF_ERROR(
      source->Init(std::move(contents), std::move(places), false, memory_limit, memory));
  return source;
}

}  // namespace torch::internal

bool HoldsTorch(const ZipArchive& archive) {
  return std::any_of(archive.entries().begin(), archive.entries().end(), [](const ZipEntry& entry) {
    return torch::internal::IsNamed(entry.name, "data.pkl") ||
           torch::internal::IsNamed(entry.name, "constants.pkl") ||
           torch::internal::IsNamed(entry.name, "serialized_exported_program.json") ||
           torch::internal::IsNamed(entry.name, "archive_format");
  });
}

}  // namespace zt
