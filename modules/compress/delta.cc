// zt.compress:delta — lays out differences by groups of the base's exponents, and takes them apart.
module;

#include "compress/delta_kernel.h"
#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.compress;

import zt.std;
import :codec;
import :delta;
import :planes;
import zt.core;

namespace zt {

using namespace compress::internal;

namespace {

// Groups of fewer elements are joined with the next: each has planes of its own.
constexpr std::uint32_t kLeastGroup = 16384;
constexpr std::size_t kMostGroups = 256;
// The head of a group in the content: the last key, two counts.
constexpr std::size_t kGroupHead = 9;

struct Group {
  std::uint8_t last_key = 255;
  std::uint32_t elements = 0, changed = 0;
  // Differences of all take less room than gaps.
  bool all() const { return changed > elements / 2; }
};

// How the elements of a type are ordered: by the exponent, or its upper 8 bits.
kernel::DeltaKey KeyOf(const ElementType& element) {
  if (element.type == "f8_e4m3fn" || element.type == "f8_e4m3fnuz") return {3, 15};
  if (element.type == "f8_e5m2" || element.type == "f8_e5m2fnuz") return {2, 31};
  switch (element.dtype) {
    case DType::kBF16:
      return {7, 255};
    case DType::kF16:
      return {10, 31};
    case DType::kF32:
      return {23, 255};
    case DType::kF64:
      return {55, 255};
    default:
      return {0, 0};
  }
}

const std::uint8_t* Octets(const std::byte* p) { return reinterpret_cast<const std::uint8_t*>(p); }
std::uint8_t* Octets(std::byte* p) { return reinterpret_cast<std::uint8_t*>(p); }

CodecParameters PlanesOf(const ElementType& element) {
  CodecParameters layout;
  layout.width = static_cast<std::uint8_t>(ByteWidth(element.dtype));
  layout.rotate = IsFloat(element.dtype) ? 1 : 0;
  layout.group = layout.width * (std::uint32_t{128} << 10);
  return layout;
}

// Hands `in` and `out` to SplitPlanes or MergePlanes, as one group of planes.
template <class Planes>
void AsOneGroup(const Planes& planes, std::span<const std::byte> in, std::byte* out,
                std::size_t width) {
  if (in.empty()) return;
  if (width == 1) {
    std::memcpy(out, in.data(), in.size());
    return;
  }
  CodecParameters layout;
  layout.width = static_cast<std::uint8_t>(width);
  layout.group = static_cast<std::uint32_t>(in.size());
  planes(in, std::span(out, in.size()), layout);
}

// Memory that is used for one chunk after the other.
struct Scratch {
  std::vector<std::byte> swapped[2];    // on big-endian hosts
  std::vector<std::byte> values, gaps;  // of all groups
  std::vector<std::byte> content, frame;
};

std::byte* Room(std::vector<std::byte>& buffer, std::size_t bytes) {
  if (buffer.size() < bytes) buffer.resize(bytes);
  return buffer.data();
}

using Pool = zt::internal::ObjectPool<std::unique_ptr<Scratch>>;
Pool& Idle() {
  static Pool* const pool = new Pool;
  return *pool;
}

// Calls run(scratch) with memory of the pool.
template <class Run>
auto WithScratch(const Run& run) {
  auto scratch = Idle().Take().value_or(nullptr);
  if (scratch == nullptr) scratch = std::make_unique<Scratch>();
  auto result = run(*scratch);
  Idle().Give(std::move(scratch));
  return result;
}

// Reverses elements on hosts whose numbers are not little-endian, as kernels need them.
void ToHost(std::span<std::byte> bytes, std::size_t width) {
  if constexpr (std::endian::native == std::endian::little) return;
  for (std::size_t i = 0; i < bytes.size(); i += width) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                 bytes.begin() + static_cast<std::ptrdiff_t>(i + width));
  }
}
std::span<const std::byte> ToHost(std::span<const std::byte> bytes, std::size_t width,
                                  std::vector<std::byte>& swapped) {
  if constexpr (std::endian::native == std::endian::little) return bytes;
  swapped.assign(bytes.begin(), bytes.end());
  ToHost(swapped, width);
  return swapped;
}

// The most content that a frame of differences of a chunk has.
std::size_t MostContent(std::size_t chunk) {
  return 1 + kMostGroups * (kGroupHead + 1) + chunk + chunk / 128 + 64;
}

// The fewest groups of kLeastGroup elements or more, of neighbouring keys.
std::vector<Group> ChooseGroups(const std::uint32_t (&counts)[256],
                                const std::uint32_t (&changed)[256]) {
  std::vector<Group> groups(1);
  for (std::size_t k = 0; k < std::size(counts); ++k) {
    if (groups.back().elements >= kLeastGroup) groups.emplace_back();
    Group& group = groups.back();
    group.last_key = static_cast<std::uint8_t>(k);
    group.elements += counts[k];
    group.changed += changed[k];
  }
  if (groups.size() > 1 && groups.back().elements < kLeastGroup) {
    const Group rest = groups.back();
    groups.pop_back();
    groups.back().elements += rest.elements;
    groups.back().changed += rest.changed;
  }
  groups.back().last_key = 255;
  return groups;
}

// Fills scratch.content with the content of a frame: heads of groups, then for each group gaps and
// planes. The sizes of these pieces.
std::vector<std::size_t> LayOut(const ElementType& element, std::span<const std::byte> old,
                                std::span<const std::byte> fresh, Scratch& scratch) {
  const std::size_t width = ByteWidth(element.dtype), elements = old.size() / width;
  old = ToHost(old, width, scratch.swapped[0]);
  fresh = ToHost(fresh, width, scratch.swapped[1]);
  const kernel::DeltaKey key = KeyOf(element);
  std::uint32_t counts[256] = {}, changed[256] = {};
  kernel::CountKeys(Octets(old.data()), Octets(fresh.data()), elements, width, key, counts,
                    changed);
  const std::vector<Group> groups = ChooseGroups(counts, changed);

  std::byte* value = Room(scratch.values, old.size());
  std::byte* gap = Room(scratch.gaps, elements + groups.size());
  std::vector<kernel::DeltaGroup> packed;
  for (const Group& group : groups) {
    const bool all = group.all();
    const std::uint32_t values = all ? group.elements : group.changed;
    packed.push_back({group.last_key, all, values, 0, Octets(value), Octets(gap)});
    value += values * width;
    gap += all ? 0 : group.changed + group.elements / 255 + 1;
  }
  kernel::PackGroups(Octets(old.data()), Octets(fresh.data()), elements, width, key, packed.data(),
                     packed.size());

  std::vector<std::size_t> pieces = {1 + kGroupHead * groups.size()};
  std::byte* head = Room(scratch.content, MostContent(old.size()));
  std::byte* at = head + pieces[0];
  *head++ = static_cast<std::byte>(groups.size() - 1);
  const auto add = [&](std::size_t bytes) {
    at += bytes;
    if (bytes > 0) pieces.push_back(bytes);
  };
  for (const kernel::DeltaGroup& each : packed) {
    head[0] = static_cast<std::byte>(each.last_key);
    zt::internal::StoreLittle(each.value_count, 4, head + 1);
    zt::internal::StoreLittle(each.gap_count, 4, head + 5);
    head += kGroupHead;
    if (each.gap_count > 0) std::memcpy(at, each.gaps, each.gap_count);
    add(each.gap_count);
    const std::span<std::byte> values(reinterpret_cast<std::byte*>(each.values),
                                      each.value_count * width);
    ToHost(values, width);
    AsOneGroup(SplitPlanes, values, at, width);
    for (std::size_t p = 0; p < width; ++p) add(each.value_count);
  }
  return pieces;
}

const FrameEncoder& Matches() {
  static const FrameEncoder* const encoder =
      FindCodec(Encoding::kZstd)->MakeEncoder({.level = 3}).release();
  return *encoder;
}

Status Damaged(std::string_view what) {
  return InvalidData("the frame of a chunk is not one of differences: " + std::string(what));
}

// Takes the content of a frame apart. The groups point into it and into scratch.values, where their
// values are as they were laid out.
StatusOr<std::vector<kernel::DeltaGroup>> ReadGroups(std::span<std::byte> content,
                                                     std::size_t width, Scratch& scratch) {
  if (content.empty()) return Damaged("it is empty");
  const std::size_t count = static_cast<std::size_t>(content[0]) + 1;
  std::size_t at = 1 + count * kGroupHead;
  if (content.size() < at) return Damaged("it ends within the groups");
  std::byte* value = Room(scratch.values, content.size());
  std::vector<kernel::DeltaGroup> groups;
  int before = -1;
  for (std::size_t g = 0; g < count; ++g) {
    const std::byte* const head = &content[1 + g * kGroupHead];
    kernel::DeltaGroup group = {};
    group.last_key = static_cast<std::uint8_t>(head[0]);
    group.value_count = static_cast<std::uint32_t>(zt::internal::LoadLittle(head + 1, 4));
    group.gap_count = static_cast<std::uint32_t>(zt::internal::LoadLittle(head + 5, 4));
    group.all = group.value_count > 0 && group.gap_count == 0;
    if (group.last_key <= before) return Damaged("the keys of groups do not ascend");
    before = group.last_key;
    const std::uint64_t bytes = std::uint64_t{group.value_count} * width;
    if (bytes + group.gap_count > content.size() - at) return Damaged("it ends within a group");
    group.gaps = Octets(content.data() + at);
    at += group.gap_count;
    group.values = Octets(value);
    AsOneGroup(MergePlanes, content.subspan(at, bytes), value, width);
    at += bytes;
    value += bytes;
    groups.push_back(group);
  }
  if (before != 255) return Damaged("the last group does not end at 255");
  if (at != content.size()) return Damaged("bytes follow the last group");
  return groups;
}

Status DecodeContent(const DeltaChunk& chunk, std::span<const std::byte> frame, std::byte* out) {
  return FindCodec(Encoding::kZstd)->DecodeFrame({}, frame, {out, chunk.content});
}

Status CheckSizes(const DeltaChunk& chunk, std::span<const std::byte> frame, std::size_t bytes,
                  std::size_t width) {
  if (frame.size() != chunk.frame) return InvalidArgument("the frame has another size");
  if (bytes > kMaxDeltaChunk || bytes % width != 0)
    return InvalidArgument("a chunk is whole elements, of at most 16 MiB");
  if (chunk.content > MostContent(bytes))
    return InvalidData("the frame of a chunk has more content than one has");
  if (chunk.kind == DeltaKind::kPlanes && chunk.content != bytes)
    return InvalidData("the planes of a chunk have another size than the chunk");
  return OkStatus();
}

}  // namespace

std::size_t DeltaBound(std::size_t bytes) {
  const std::size_t content = MostContent(bytes);
  const std::size_t bound = PiecesFrameBound(content, kMostGroups * 9 + 1);
  return std::max(bound, FindCodec(Encoding::kZstd)->Bound(content));
}

StatusOr<DeltaChunk> EncodeDelta(const ElementType& element, std::span<const std::byte> old,
                                 std::span<const std::byte> fresh, std::span<std::byte> out) {
  const std::size_t width = ByteWidth(element.dtype);
  if (old.size() != fresh.size() || old.size() % width != 0 || old.size() > kMaxDeltaChunk ||
      out.size() < DeltaBound(old.size()))
    return InvalidArgument("chunks are whole elements, of equal size and at most 16 MiB");
  DeltaChunk chunk;
  if (old.empty() || std::memcmp(old.data(), fresh.data(), old.size()) == 0) return chunk;
  const auto encode = [&](Scratch& scratch) -> Status {
    const std::vector<std::size_t> pieces = LayOut(element, old, fresh, scratch);
    const std::span<const std::byte> bytes(
        scratch.content.data(), std::accumulate(pieces.begin(), pieces.end(), std::size_t{0}));
    ZT_ASSIGN_OR_RETURN(std::size_t size, EncodePieces(bytes, pieces, out));
    chunk.kind = DeltaKind::kDifferences;
    chunk.content = static_cast<std::uint32_t>(bytes.size());
    const auto keep = [&](std::size_t made, DeltaKind kind, std::size_t holds) {
      if (made >= size) return;
      size = made;
      chunk.kind = kind;
      chunk.content = static_cast<std::uint32_t>(holds);
      std::memcpy(out.data(), scratch.frame.data(), size);
    };
    const std::span<std::byte> room(Room(scratch.frame, out.size()), out.size());
    // Huffman codes, of a bit or more, may be far above what the bytes hold.
    if (bytes.size() < 65536 || size * 16 < bytes.size() * 3) {
      ZT_ASSIGN_OR_RETURN(const std::size_t matched, Matches().Encode({}, bytes, room));
      keep(matched, DeltaKind::kDifferences, bytes.size());
    }
    if (size > fresh.size() / 2) {
      static const FrameEncoder* const planes = PlanesCodec().MakeEncoder({}).release();
      const std::size_t whole = fresh.size();
      ZT_ASSIGN_OR_RETURN(const std::size_t made,
                          width == 1 ? EncodePieces(fresh, {&whole, 1}, room)
                                     : planes->Encode(PlanesOf(element), fresh, room));
      keep(made, DeltaKind::kPlanes, whole);
    }
    chunk.frame = static_cast<std::uint32_t>(size);
    return OkStatus();
  };
  ZT_RETURN_IF_ERROR(WithScratch(encode));
  return chunk;
}

Status ApplyDelta(const ElementType& element, const DeltaChunk& chunk,
                  std::span<const std::byte> frame, std::span<std::byte> bytes) {
  const std::size_t width = ByteWidth(element.dtype);
  ZT_RETURN_IF_ERROR(CheckSizes(chunk, frame, bytes.size(), width));
  if (chunk.kind == DeltaKind::kEqual) return OkStatus();
  if (chunk.kind == DeltaKind::kPlanes) {
    if (width == 1) return DecodeContent(chunk, frame, bytes.data());
    return DecodePlanesFrame(PlanesOf(element), frame, bytes);
  }
  return WithScratch([&](Scratch& scratch) -> Status {
    std::byte* const room = Room(scratch.content, chunk.content);
    ZT_RETURN_IF_ERROR(DecodeContent(chunk, frame, room));
    ZT_ASSIGN_OR_RETURN(const auto groups, ReadGroups({room, chunk.content}, width, scratch));
    const kernel::DeltaKey key = KeyOf(element);
    if (groups.size() > 1 && key.mask == 0) return Damaged("elements of this type have no groups");
    for (const kernel::DeltaGroup& group : groups)
      ToHost({reinterpret_cast<std::byte*>(group.values), group.value_count * width}, width);
    ToHost(bytes, width);
    const bool fits = kernel::AddGroups(Octets(bytes.data()), bytes.size() / width, width, key,
                                        groups.data(), groups.size());
    ToHost(bytes, width);
    return fits ? OkStatus() : Damaged("the gaps or values of a group do not fit it");
  });
}

Status CheckDelta(const ElementType& element, const DeltaChunk& chunk,
                  std::span<const std::byte> frame, std::size_t bytes) {
  const std::size_t width = ByteWidth(element.dtype);
  ZT_RETURN_IF_ERROR(CheckSizes(chunk, frame, bytes, width));
  if (chunk.kind == DeltaKind::kEqual) return OkStatus();
  return WithScratch([&](Scratch& scratch) -> Status {
    std::byte* const room = Room(scratch.content, chunk.content);
    ZT_RETURN_IF_ERROR(DecodeContent(chunk, frame, room));
    if (chunk.kind == DeltaKind::kPlanes) return OkStatus();
    return ReadGroups({room, chunk.content}, width, scratch).status();
  });
}

}  // namespace zt
