// zt.reader — checks that a file is in the canonical form of its version (2.0 §6.3).
module;

#include "core/status_macros.h"

module zt.reader;

import zt.std;
import :checks;
import zt.core;
import zt.digest;
import zt.format;
import zt.source;

namespace zt::reader::internal {
namespace {

StatusOr<std::vector<std::byte>> BytesAt(const Reader& reader, std::uint64_t offset,
                                         std::uint64_t bytes) {
  std::vector<std::byte> out(bytes);
  ZT_RETURN_IF_ERROR(reader.bytes().ReadAt(offset, out));
  return out;
}

StatusOr<std::string> Sha256At(const Reader& reader, std::uint64_t offset, std::uint64_t bytes) {
  const auto hasher = MakeHasher(DigestKind::kSha256);
  ZT_RETURN_IF_ERROR(ReadThrough(reader.bytes(), offset, offset + bytes,
                                 [&](std::uint64_t, std::span<const std::byte> piece) {
                                   hasher->Update(piece);
                                   return true;
                                 }));
  return hasher->Finish();
}

}  // namespace

Status CheckCanonical(const Reader& reader, std::uint64_t unreferenced_bytes,
                      std::vector<VerifyProblem>& wrong) {
  const Manifest& manifest = reader.manifest();
  const auto add = [&wrong](std::string object, std::string component, std::string_view what) {
    wrong.push_back({.object = std::move(object),
                     .component = std::move(component),
                     .message = std::string(what) + " (zTensor 2.0 §6.3)"});
  };
  if (!Traits(manifest.version).canonical) {
    add("", "", "version " + std::string(Traits(manifest.version).text) + " has no canonical form");
    wrong.back().advice = Advice::kCanonical;
    return OkStatus();
  }
  if (unreferenced_bytes > 0) add("", "", "bytes that no blob covers are not zero");
  ZT_ASSIGN_OR_RETURN(const auto bytes, BytesAt(reader, manifest.offset, manifest.bytes));
  ZT_ASSIGN_OR_RETURN(auto fault,
                      FindCanonicalFault(bytes, manifest.offset,
                                         [&reader](std::uint64_t offset, std::uint64_t size) {
                                           return Sha256At(reader, offset, size);
                                         }));
  if (fault) add(std::move(fault->object), std::move(fault->component), fault->message);
  const std::uint64_t end = manifest.offset + manifest.bytes;
  const auto footer = EncodeFooter(manifest.offset, bytes, manifest.version);
  if (end != reader.data_end()) {
    add("", "", "the footer does not follow the manifest");
  } else {
    ZT_ASSIGN_OR_RETURN(const auto found, BytesAt(reader, end, footer.size()));
    if (found != footer) add("", "", "the footer is not that of the canonical form");
  }
  return OkStatus();
}

}  // namespace zt::reader::internal
