// zt.convert.hdf5 — recognizes HDF5 files and .keras archives, and serves the weights in
// an archive as a file.
module;

#include "core/status_macros.h"

module zt.convert.hdf5;

import zt.std;
import :keras;
import zt.convert.zip;
import zt.core;
import zt.source;

namespace zt {
namespace hdf5::internal {
namespace {

constexpr std::string_view kWeights = "model.weights.h5";

bool IsWeights(const ZipEntry& entry) {
  return entry.name == kWeights || entry.name.ends_with("/" + std::string(kWeights));
}

// The entry of the weights. CheckUnchanged verifies its CRC.
class Weights final : public ByteSource {
 public:
  Weights(std::shared_ptr<ZipArchive> archive, std::size_t index, std::shared_ptr<ByteSource> entry,
          std::vector<std::byte> held)
      : archive_(std::move(archive)),
        index_(index),
        entry_(std::move(entry)),
        held_(std::move(held)),
        bytes_(held_.empty() ? entry_ : MemoryBytes(held_, archive_->name())) {}

  const std::string& name() const override { return archive_->name(); }
  std::optional<std::uint64_t> size() const override { return entry_->size(); }
  bool sequential() const override { return false; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    return bytes_->ReadAt(offset, out);
  }
  Status CheckUnchanged() override {
    ZT_RETURN_IF_ERROR(archive_->CheckUnchanged());
    return archive_->Verify(index_, 0);
  }

 private:
  std::shared_ptr<ZipArchive> archive_;
  const std::size_t index_;
  std::shared_ptr<ByteSource> entry_;
  std::vector<std::byte> held_;  // content of a deflated entry; else empty
  std::shared_ptr<ByteSource> bytes_;
};

// The content of the entry; empty if it is not UTF-8, or too large for an attribute.
StatusOr<std::string> ReadConfig(ZipArchive& archive, std::size_t index) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 20;
  const ZipEntry& entry = archive.entries()[index];
  if (entry.size > kMost) return std::string();
  ZT_ASSIGN_OR_RETURN(const auto bytes, archive.OpenEntry(index));
  std::string text(entry.size, '\0');
  ZT_RETURN_IF_ERROR(bytes->ReadAt(0, std::as_writable_bytes(std::span(text))));
  ZT_RETURN_IF_ERROR(archive.Verify(index, 0));
  return IsUtf8(text) ? text : std::string();
}

// Reads config.json and lists the other entries. `weights` is the index of the weights' entry.
Status ReadOthers(ZipArchive& archive, std::size_t weights, KerasModel& model) {
  const std::string& name = archive.entries()[weights].name;
  const std::string config = name.substr(0, name.size() - kWeights.size()) + "config.json";
  for (std::size_t i = 0; i < archive.entries().size(); ++i) {
    const std::string& other = archive.entries()[i].name;
    if (i == weights || other.ends_with('/')) continue;
    if (other == config && model.config.empty()) {
      auto text = ReadConfig(archive, i);
      if (!text.ok()) return Annotate(text.status(), "entry " + Quote(other));
      model.config = *std::move(text);
      if (!model.config.empty()) continue;
    }
    model.others.Add(Quote(other));
  }
  return OkStatus();
}

}  // namespace

StatusOr<KerasModel> OpenKeras(std::shared_ptr<ByteSource> bytes, std::uint64_t memory_limit) {
  ZT_ASSIGN_OR_RETURN(std::shared_ptr<ZipArchive> archive, ZipArchive::Open(std::move(bytes)));
  const auto& entries = archive->entries();
  const auto found = std::ranges::find_if(entries, IsWeights);
  if (found == entries.end())
    return InvalidData("the archive holds no " + Quote(kWeights) + "; it is not a Keras model");
  const auto index = static_cast<std::size_t>(found - entries.begin());
  auto opened = archive->OpenEntry(index);
  if (!opened.ok()) return Annotate(opened.status(), "entry " + Quote(found->name));
  std::shared_ptr<ByteSource> entry = *std::move(opened);
  // Peek reads some bytes of the entry, so that Verify checks its CRC even if nothing else is read.
  ZT_ASSIGN_OR_RETURN(const std::vector<std::byte> head, Peek(*entry, kHdf5HeadBytes));
  if (!LooksLikeHdf5(head))
    return InvalidData("the archive's " + Quote(kWeights) + " is not an HDF5 file");
  std::vector<std::byte> held;
  if (entry->sequential()) {
    if (found->size > memory_limit) {
      return WithAdvice(Unsupported("its weights are deflated, and would be held in memory: " +
                                    std::to_string(found->size) + " bytes, the memory limit is " +
                                    std::to_string(memory_limit) +
                                    "; unpack the archive and name its " + Quote(kWeights)),
                        Advice::kMemory);
    }
    held.resize(found->size);
    ZT_RETURN_IF_ERROR(Annotate(entry->ReadAt(0, held), found->name));
  }
  KerasModel model;
  ZT_RETURN_IF_ERROR(ReadOthers(*archive, index, model));
  model.weights =
      std::make_shared<Weights>(std::move(archive), index, std::move(entry), std::move(held));
  return model;
}

}  // namespace hdf5::internal

bool LooksLikeHdf5(std::span<const std::byte> head) {
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
  for (std::size_t offset = 0; offset + kSignature.size() <= head.size();
       offset = offset == 0 ? 512 : 2 * offset) {
    if (std::memcmp(head.data() + offset, kSignature.data(), kSignature.size()) == 0) return true;
  }
  return false;
}

bool HoldsKeras(const ZipArchive& archive) {
  return std::ranges::any_of(archive.entries(), hdf5::internal::IsWeights);
}

}  // namespace zt
