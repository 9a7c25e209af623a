// zt.convert.npy — .npz archives.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.npy;

import zt.std;
import :array;
import :arrays;
import :header;
import zt.convert.zip;
import zt.core;
import zt.source;

namespace zt {
namespace npy::internal {
namespace {

class NpzSource final : public ArraySource {
 public:
  NpzSource(std::shared_ptr<ZipArchive> archive, std::uint64_t memory_limit)
      : ArraySource("npz", memory_limit), archive_(std::move(archive)) {}

  // What is well formed but cannot be served is listed, so that the others can be had without it.
  Status AddEntry(const EntryArray& array, const InputOptions& options) {
    entries_.push_back(array.index);
    const Status status = array.unreadable.ok() ? AddArray(array, options) : array.unreadable;
    if (status.code() != StatusCode::kUnimplemented) return status;
    const std::uint64_t size = archive_->entries()[array.index].size;
    AddUnreadable(array.name, archive_->name(), DescrName(array.header.descr), array.header.shape,
                  size - std::min(size, array.header.size), status);
    return OkStatus();
  }

  Status Finish() override {
    ZT_RETURN_IF_ERROR(WithFile(archive_->CheckUnchanged(), archive_->name()));
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (readers_[i] == nullptr) continue;
      ZT_RETURN_IF_ERROR(AtTensor(*this, {static_cast<std::uint32_t>(i), 0},
                                  archive_->Verify(entries_[i], readers_[i]->data())));
    }
    return OkStatus();
  }

 private:
  Status AddArray(const EntryArray& array, const InputOptions& options) {
    ZT_ASSIGN_OR_RETURN(const ArrayType type, TypeOf(array.header.descr, options.void_type));
    ZT_ASSIGN_OR_RETURN(auto bytes, archive_->OpenEntry(array.index));
    const std::uint64_t entry_size = *bytes->size();
    ZT_RETURN_IF_ERROR(Add(array.name, std::move(bytes), array.header, type));
    const std::uint64_t needed = array.header.size + readers_.back()->size();
    if (needed != entry_size) {
      return InvalidData("its header declares " + std::to_string(needed) +
                         " bytes, its entry has " + std::to_string(entry_size));
    }
    return OkStatus();
  }

  std::shared_ptr<ZipArchive> archive_;
  std::vector<std::size_t> entries_;  // of each object
};

struct Listing {
  std::vector<EntryArray> arrays;
  std::vector<std::string> others;
};

// Tells arrays from other entries by their first bytes, as numpy does, whatever their names.
StatusOr<Listing> ListArrays(ZipArchive& archive) {
  constexpr std::string_view kSuffix = ".npy";
  Listing listing;
  std::unordered_set<std::string_view, zt::internal::NameHash> names;
  for (std::size_t i = 0; i < archive.entries().size(); ++i) {
    const ZipEntry& entry = archive.entries()[i];
    std::string_view name = entry.name;
    if (name.ends_with('/')) continue;  // a folder
    const bool claims = name.ends_with(kSuffix);
    if (claims) name.remove_suffix(kSuffix.size());
    // The entry is opened again when it is read: a deflated one holds buffers from its first byte on.
    auto bytes = archive.OpenEntry(i);
    StatusOr<Header> header = bytes.ok() ? ReadHeader(**bytes) : bytes.status();
    if (!header.ok()) {
      const StatusCode code = header.status().code();
      if (!claims && code != StatusCode::kUnavailable) {
        listing.others.push_back(entry.name);
        continue;
      }
      // A read error is an error of the whole file: it does not tell what the entry is.
      if (code != StatusCode::kUnimplemented) return WithTensor(header.status(), name);
    }
    if (name.find('\0') != std::string_view::npos) {
      return WithTensor(InvalidData("the name holds a NUL"), name);
    }
    if (!names.insert(name).second) {
      return InvalidData(TensorContext(name) + " is in the archive twice");
    }
    listing.arrays.push_back(
        {i, std::string(name), header.ok() ? *header : Header{}, header.status()});
  }
  return listing;
}

StatusOr<std::unique_ptr<TensorSource>> OpenArrays(std::shared_ptr<ByteSource> bytes,
                                                   const std::string& stem,
                                                   const InputOptions& options) {
  ZT_ASSIGN_OR_RETURN(std::shared_ptr<ZipArchive> archive, ZipArchive::Open(std::move(bytes)));
  ZT_ASSIGN_OR_RETURN(const Listing listing, ListArrays(*archive));
  if (listing.arrays.empty() && !listing.others.empty()) {
    return Unsupported(ListNames("the zip archive holds no .npy array, but", listing.others));
  }
  ZT_ASSIGN_OR_RETURN(const auto sparse, ScipyFormat(*archive, listing.arrays));
  if (sparse && !options.keep_sparse) {
    return WithTensor(
        OpenScipy(archive, listing.arrays, *sparse, stem, options.void_type, options.memory_limit),
        stem);
  }
  auto source = std::make_unique<NpzSource>(archive, options.memory_limit);
  for (const EntryArray& array : listing.arrays) {
    if (sparse && array.name == "format") continue;  // a string; kept as an attribute below
    ZT_RETURN_IF_ERROR(WithTensor(source->AddEntry(array, options), array.name));
    if (sparse && array.name == "data") {
      Object& data = source->object(source->objects().size() - 1);
      SetMember(data.attributes, kScipyFormat, *sparse);
    }
  }
  if (!listing.others.empty()) {
    source->AddWarning(ListNames("entries that are not arrays left out:", listing.others));
  }
  return source;
}

}  // namespace
}  // namespace npy::internal

StatusOr<std::unique_ptr<TensorSource>> OpenNpz(std::shared_ptr<ByteSource> bytes,
                                                const std::string& stem,
                                                const InputOptions& options) {
  return npy::internal::OpenArrays(std::move(bytes), stem, options);
}

}  // namespace zt
