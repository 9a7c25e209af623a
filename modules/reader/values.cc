// zt.reader — reads whole components: by several threads, by name, as numbers.
module;

#include "core/status_macros.h"

module zt.reader;

import zt.std;
import zt.core;
import zt.format;
import zt.pipeline;
import zt.source;
import zt.transform;

namespace zt {
namespace {

struct DecodeRange {
  std::uint64_t begin = 0, end = 0;
};
using Batch = BatchOf<DecodeRange>;

}  // namespace

Status Reader::Named(std::string_view name, const Status& status) const {
  return WithFile(WithTensor(status, name), path());
}

StatusOr<ComponentId> Reader::Locate(std::string_view name, std::string_view role) const {
  const auto object = Find(name);
  if (!object) return Named(name, InvalidArgument("there is no tensor of this name"));
  const std::vector<StoredComponent>& components = manifest().objects[*object].components;
  if (role.empty() && components.size() == 1) return ComponentId{*object, 0};
  std::string roles;
  for (std::uint32_t c = 0; c < components.size(); ++c) {
    if (components[c].role == role) return ComponentId{*object, c};
    if (c < 8) roles += (c == 0 ? "" : ", ") + Quote(components[c].role);
  }
  return Named(name, InvalidArgument(
                         role.empty() ? "it has several components; name one of " + roles
                                      : "it has no component " + Quote(role) + ", only " + roles));
}

StatusOr<ComponentId> Reader::LocateAs(std::string_view name, std::string_view role,
                                       DType dtype) const {
  ZT_ASSIGN_OR_RETURN(const ComponentId id, Locate(name, role));
  const DType held = component(id).element.dtype;
  if (held == dtype || (held == DType::kBool && dtype == DType::kU8)) return id;
  return Named(name, InvalidArgument("it is " + std::string(Name(component(id).element)) +
                                     ", not " + std::string(Name(dtype))));
}

Status Reader::ReadAll(ComponentId id, std::span<std::byte> out, unsigned threads) const {
  if (threads > kMaxThreads) {
    return InvalidArgument("threads is " + std::to_string(threads) + ", more than " +
                           std::to_string(kMaxThreads));
  }
  ZT_ASSIGN_OR_RETURN(const std::uint64_t bytes, DecodedBytes(id));
  if (out.size() != bytes) {
    return Named(id, InvalidArgument("it has " + std::to_string(bytes) +
                                     " bytes, there is room for " + std::to_string(out.size())));
  }
  const auto cuts = Cuts(id, bytes);
  if (!cuts.ok()) return Named(id, cuts.status());
  const std::size_t ranges = cuts->size() - 1;
  if (threads == 0) threads = UsableThreads();
  threads = static_cast<unsigned>(std::min<std::size_t>(threads, ranges));
  if (threads <= 1) return Read(id, 0, out);
  const auto read = [&](Batch& batch) {
    for (const auto [begin, end] : batch.ranges) {
      ZT_RETURN_IF_ERROR(Read(id, begin, out.subspan(begin, end - begin)));
    }
    return OkStatus();
  };
  RangePipeline<Batch> pipeline({{StageOrder::kParallel, read}}, {.threads = threads});
  for (std::size_t i = 0; i < ranges; ++i) {
    const DecodeRange range = {(*cuts)[i], (*cuts)[i + 1]};
    ZT_RETURN_IF_ERROR(pipeline.Add(range, {.bytes = range.end - range.begin}));
  }
  return pipeline.Drain();
}

Status Reader::ReadAs(std::string_view name, std::string_view role, DType dtype,
                      const MakeRoom& room) const {
  ZT_ASSIGN_OR_RETURN(const ComponentId id, LocateAs(name, role, dtype));
  // Reads the seek table before allocating, so that a declared size that contradicts it costs no
  // memory.
  ZT_RETURN_IF_ERROR(FindAccess(id).status());
  ZT_ASSIGN_OR_RETURN(const std::uint64_t bytes, DecodedBytes(id));
  const std::size_t width = ByteWidth(dtype);
  if (bytes % width != 0) return Named(name, InvalidData("it ends within an element"));
  std::span<std::byte> out;
  try {
    out = room(bytes / width);
  } catch (const std::exception&) {
    return Named(name, IoError("there is no memory for " + std::to_string(bytes) + " bytes"));
  }
  ZT_RETURN_IF_ERROR(ReadAll(id, out));
  LittleEndian(out, width);
  return OkStatus();
}

Status Reader::ReadRangeAs(std::string_view name, std::string_view role, DType dtype,
                           std::uint64_t first, std::span<std::byte> out) const {
  ZT_ASSIGN_OR_RETURN(const ComponentId id, LocateAs(name, role, dtype));
  const auto offset = CheckedMul(first, ByteWidth(dtype));
  if (!offset) return Named(name, InvalidArgument("the range lies beyond the component"));
  ZT_RETURN_IF_ERROR(Read(id, *offset, out));
  LittleEndian(out, ByteWidth(dtype));
  return OkStatus();
}

StatusOr<std::span<const std::byte>> Reader::MapAs(std::string_view name, std::string_view role,
                                                   DType dtype, std::size_t alignment) const {
  ZT_ASSIGN_OR_RETURN(const ComponentId id, LocateAs(name, role, dtype));
  const auto bytes = MapWhole(id);
  if (!bytes.ok()) return Named(name, bytes.status());
  if (std::endian::native == std::endian::big && ByteWidth(dtype) > 1) {
    return Named(name, FailedPrecondition("its values are little-endian, this machine is not"));
  }
  if (reinterpret_cast<std::uintptr_t>(bytes->data()) % alignment != 0) {
    return Named(name, FailedPrecondition("its values do not lie at multiples of " +
                                          std::to_string(alignment) + " bytes"));
  }
  return bytes;
}

}  // namespace zt
