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
// The head of a group in the content: the last key, the mode, two counts.
constexpr std::size_t kGroupHead = 10;

enum Mode : std::uint8_t { kNone, kSparse, kAll };

struct Group {
  std::uint8_t last_key = 255;
  Mode mode = kNone;
  std::uint32_t elements = 0;  // known by the base alone
  std::uint32_t changed = 0, gaps = 0;
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

// One group of planes over all of `bytes`.
void Split(std::span<const std::byte> in, std::byte* out, std::size_t width) {
  if (in.empty()) return;
  if (width == 1) {
    std::memcpy(out, in.data(), in.size());
    return;
  }
  CodecParameters layout;
  layout.width = static_cast<std::uint8_t>(width);
  layout.group = static_cast<std::uint32_t>(in.size());
  SplitPlanes(in, {out, in.size()}, layout);
}
void Merge(std::span<const std::byte> in, std::byte* out, std::size_t width) {
  if (in.empty()) return;
  if (width == 1) {
    std::memcpy(out, in.data(), in.size());
    return;
  }
  CodecParameters layout;
  layout.width = static_cast<std::uint8_t>(width);
  layout.group = static_cast<std::uint32_t>(in.size());
  MergePlanes(in, {out, in.size()}, layout);
}

// Memory that is used for one chunk after the other.
struct Scratch {
  std::vector<std::byte> swapped[2];   // on big-endian hosts
  std::vector<std::byte> differences;  // of the chunk, group by group
  std::vector<std::byte> values;       // of one group
  std::vector<std::byte> content, frame;
  std::uint32_t places[kernel::kDeltaParts][256];
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

// The order of a chunk's elements: by group, and within one as in the chunk.
class Order {
 public:
  Order(const ElementType& element, std::span<const std::byte> base, Scratch& scratch)
      : key_(KeyOf(element)),
        width_(ByteWidth(element.dtype)),
        base_(base),
        count_(base.size() / width_),
        places_(scratch.places) {
    if (key_.mask == 0) return;
    std::memset(places_, 0, sizeof places_);
    kernel::CountKeys(Octets(base.data()), count_, width_, key_, places_);
  }

  // The fewest groups of kLeastGroup elements or more.
  std::vector<Group> Choose() const {
    std::vector<Group> groups;
    std::uint32_t held = 0;
    for (std::size_t key = 0; key_.mask != 0 && key <= key_.mask; ++key) {
      for (const auto& part : places_) held += part[key];
      if (held < kLeastGroup) continue;
      groups.push_back({.last_key = static_cast<std::uint8_t>(key)});
      held = 0;
    }
    if (groups.empty()) groups.emplace_back();
    groups.back().last_key = 255;  // the rest are too few
    return groups;
  }

  // Counts the elements of each group, and finds their places.
  void Arrange(std::span<Group> groups) {
    if (groups.size() == 1) {
      groups[0].elements = static_cast<std::uint32_t>(count_);
      return;
    }
    ordered_ = true;
    std::uint32_t at = 0;
    std::size_t key = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      std::uint32_t in[kernel::kDeltaParts] = {};
      for (; key <= groups[g].last_key; ++key) {
        group_of_[key] = static_cast<std::uint8_t>(g);
        for (std::size_t p = 0; p < kernel::kDeltaParts; ++p) in[p] += places_[p][key];
      }
      // The keys before this one have been counted, and g is at most one of them.
      const std::uint32_t begin = at;
      for (std::size_t p = 0; p < kernel::kDeltaParts; ++p) {
        places_[p][g] = at;
        at += in[p];
      }
      groups[g].elements = at - begin;
    }
  }

  void TakeDifferences(std::span<const std::byte> fresh, std::byte* out) {
    if (ordered_) {
      kernel::OrderDifferences(Octets(base_.data()), Octets(fresh.data()), count_, width_, key_,
                               group_of_.data(), places_, Octets(out));
    } else {
      kernel::Differences(Octets(base_.data()), Octets(fresh.data()), count_, width_, Octets(out));
    }
  }
  void AddTo(std::span<std::byte> bytes, const std::byte* differences) {
    if (ordered_) {
      kernel::AddOrdered(Octets(bytes.data()), count_, width_, key_, group_of_.data(), places_,
                         Octets(differences));
    } else {
      kernel::AddDifferences(Octets(bytes.data()), Octets(differences), count_, width_);
    }
  }

 private:
  const kernel::DeltaKey key_;
  const std::size_t width_;
  const std::span<const std::byte> base_;
  const std::size_t count_;
  std::uint32_t (&places_)[kernel::kDeltaParts][256];
  std::array<std::uint8_t, 256> group_of_{};
  bool ordered_ = false;
};

// The content of a frame of differences: heads of groups, then for each group gaps and planes.
struct Content {
  std::size_t bytes = 0;
  std::vector<std::size_t> pieces;
};

Content LayOut(const ElementType& element, std::span<const std::byte> old,
               std::span<const std::byte> fresh, Scratch& scratch) {
  const std::size_t width = ByteWidth(element.dtype);
  old = ToHost(old, width, scratch.swapped[0]);
  fresh = ToHost(fresh, width, scratch.swapped[1]);
  Order order(element, old, scratch);
  std::vector<Group> groups = order.Choose();
  order.Arrange(groups);
  std::byte* const differences = Room(scratch.differences, old.size());
  order.TakeDifferences(fresh, differences);

  Content content;
  content.pieces.push_back(1 + kGroupHead * groups.size());
  std::byte* const out =
      Room(scratch.content, content.pieces[0] + old.size() + old.size() / 128 + 64);
  std::byte* at = out + content.pieces[0];
  const auto add = [&](std::size_t bytes) {
    at += bytes;
    if (bytes > 0) content.pieces.push_back(bytes);
  };
  std::byte* from = differences;
  for (Group& group : groups) {
    const std::size_t count = group.elements;
    std::span<std::byte> values(from, count * width);
    from += values.size();
    group.changed =
        static_cast<std::uint32_t>(kernel::CountChanged(Octets(values.data()), count, width));
    if (group.changed == 0) continue;
    group.mode = group.changed > count / 2 ? kAll : kSparse;
    if (group.mode == kSparse) {
      std::byte* const packed = Room(scratch.values, group.changed * width);
      group.gaps = static_cast<std::uint32_t>(
          kernel::PackChanged(Octets(values.data()), count, width, Octets(packed), Octets(at)));
      add(group.gaps);
      values = {packed, group.changed * width};
    }
    ToHost(values, width);
    Split(values, at, width);
    for (std::size_t p = 0; p < width; ++p) add(values.size() / width);
  }
  content.bytes = static_cast<std::size_t>(at - out);
  at = out;
  *at++ = static_cast<std::byte>(groups.size() - 1);
  for (const Group& group : groups) {
    at[0] = static_cast<std::byte>(group.last_key);
    at[1] = static_cast<std::byte>(group.mode);
    zt::internal::StoreLittle(group.changed, 4, at + 2);
    zt::internal::StoreLittle(group.gaps, 4, at + 6);
    at += kGroupHead;
  }
  return content;
}

// Where Huffman codes, of a bit or more, are far above what the bytes hold.
bool MayShrinkMore(std::size_t frame, std::size_t content) {
  return content < 65536 || frame * 16 < content * 3;
}

const FrameEncoder& Matches() {
  static const FrameEncoder* const encoder =
      FindCodec(Encoding::kZstd)->MakeEncoder({.level = 3}).release();
  return *encoder;
}

Status Damaged(std::string_view what) {
  return InvalidData("the frame of a chunk is not one of differences: " + std::string(what));
}

// The heads of the groups. Counts are checked against each other, and the content's size.
StatusOr<std::vector<Group>> ReadGroups(std::span<const std::byte> content, std::size_t width) {
  if (content.empty()) return Damaged("it is empty");
  const std::size_t count = static_cast<std::size_t>(content[0]) + 1;
  if (content.size() < 1 + count * kGroupHead) return Damaged("it ends within the groups");
  std::vector<Group> groups(count);
  std::uint64_t bytes = 1 + count * kGroupHead;
  int before = -1;
  for (std::size_t g = 0; g < count; ++g) {
    const std::byte* const head = &content[1 + g * kGroupHead];
    Group& group = groups[g];
    group.last_key = static_cast<std::uint8_t>(head[0]);
    group.changed = static_cast<std::uint32_t>(zt::internal::LoadLittle(head + 2, 4));
    group.gaps = static_cast<std::uint32_t>(zt::internal::LoadLittle(head + 6, 4));
    if (static_cast<unsigned>(head[1]) > kAll) return Damaged("a group has an unknown mode");
    group.mode = static_cast<Mode>(head[1]);
    if (group.last_key <= before) return Damaged("the keys of groups do not ascend");
    before = group.last_key;
    if (group.mode == kNone && group.changed != 0) return Damaged("a group changes and does not");
    if (group.mode != kSparse && group.gaps != 0) return Damaged("a group has gaps");
    bytes += group.gaps;
    if (group.mode == kSparse) bytes += std::uint64_t{group.changed} * width;
  }
  if (before != 255) return Damaged("the last group does not end at 255");
  if (bytes > content.size()) return Damaged("it ends within the values");
  return groups;
}

Status DecodeContent(const DeltaChunk& chunk, std::span<const std::byte> frame, std::byte* out) {
  return FindCodec(Encoding::kZstd)->DecodeFrame({}, frame, {out, chunk.content});
}

// Takes the content of a frame apart to differences in the order of the groups.
Status Unpack(std::span<const std::byte> content, std::span<const Group> groups,
              std::span<std::byte> differences, std::size_t width, Scratch& scratch) {
  std::size_t at = 1 + groups.size() * kGroupHead;
  std::byte* to = differences.data();
  for (const Group& group : groups) {
    const std::size_t bytes = group.elements * width;
    const std::span<std::byte> out(to, bytes);
    to += bytes;
    if (group.mode == kAll) {
      if (content.size() - at < bytes) return Damaged("it ends within the planes of a group");
      Merge(content.subspan(at, bytes), out.data(), width);
      ToHost(out, width);
      kernel::UndoZigZag(Octets(out.data()), group.elements, width);
      at += bytes;
      continue;
    }
    if (!out.empty()) std::memset(out.data(), 0, out.size());
    if (group.mode == kNone) continue;
    const std::size_t packed = group.changed * width;
    if (content.size() - at < packed + group.gaps) return Damaged("it ends within a group");
    const std::byte* const gaps = content.data() + at;
    std::byte* const values = Room(scratch.values, packed);
    Merge(content.subspan(at + group.gaps, packed), values, width);
    ToHost({values, packed}, width);
    kernel::UndoZigZag(Octets(values), group.changed, width);
    at += group.gaps + packed;
    if (!kernel::UnpackChanged(Octets(gaps), group.gaps, Octets(values), group.changed, width,
                               Octets(out.data()), group.elements))
      return Damaged("the gaps of a group do not fit it");
  }
  return at == content.size() ? OkStatus() : Damaged("bytes follow the last group");
}

Status CheckSizes(const DeltaChunk& chunk, std::span<const std::byte> frame, std::size_t bytes,
                  std::size_t width) {
  if (frame.size() != chunk.frame) return InvalidArgument("the frame has another size");
  if (bytes > kMaxDeltaChunk || bytes % width != 0)
    return InvalidArgument("a chunk is whole elements, of at most 16 MiB");
  const std::size_t most = 1 + kMostGroups * kGroupHead + bytes + bytes / 128 + 64;
  if (chunk.content > most)
    return InvalidData("the frame of a chunk has more content than one has");
  if (chunk.kind == DeltaKind::kPlanes && chunk.content != bytes)
    return InvalidData("the planes of a chunk have another size than the chunk");
  return OkStatus();
}

}  // namespace

std::size_t DeltaBound(std::size_t bytes) {
  const std::size_t content = 1 + kMostGroups * kGroupHead + bytes + bytes / 128 + 64;
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
    const Content content = LayOut(element, old, fresh, scratch);
    const std::span<const std::byte> bytes(scratch.content.data(), content.bytes);
    ZT_ASSIGN_OR_RETURN(std::size_t size, EncodePieces(bytes, content.pieces, out));
    chunk.kind = DeltaKind::kDifferences;
    chunk.content = static_cast<std::uint32_t>(content.bytes);
    const auto keep = [&](std::size_t made, DeltaKind kind, std::size_t holds) {
      if (made >= size) return;
      size = made;
      chunk.kind = kind;
      chunk.content = static_cast<std::uint32_t>(holds);
      std::memcpy(out.data(), scratch.frame.data(), size);
    };
    if (MayShrinkMore(size, content.bytes)) {
      const std::size_t bound = FindCodec(Encoding::kZstd)->Bound(content.bytes);
      const std::span<std::byte> room(Room(scratch.frame, bound), bound);
      ZT_ASSIGN_OR_RETURN(const std::size_t matched, Matches().Encode({}, bytes, room));
      keep(matched, DeltaKind::kDifferences, content.bytes);
    }
    if (size > fresh.size() / 2) {
      const std::size_t bound = PiecesFrameBound(fresh.size(), 9 * (fresh.size() >> 17) + 9);
      const std::span<std::byte> room(Room(scratch.frame, bound), bound);
      if (width == 1) {
        const std::size_t whole = fresh.size();
        ZT_ASSIGN_OR_RETURN(const std::size_t plain, EncodePieces(fresh, {&whole, 1}, room));
        keep(plain, DeltaKind::kPlanes, fresh.size());
      } else {
        static const FrameEncoder* const planes = PlanesCodec().MakeEncoder({}).release();
        ZT_ASSIGN_OR_RETURN(const std::size_t made, planes->Encode(PlanesOf(element), fresh, room));
        keep(made, DeltaKind::kPlanes, fresh.size());
      }
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
    const std::span<const std::byte> content(room, chunk.content);
    ZT_ASSIGN_OR_RETURN(std::vector<Group> groups, ReadGroups(content, width));
    ToHost(bytes, width);
    Order order(element, bytes, scratch);
    if (groups.size() > 1 && KeyOf(element).mask == 0)
      return Damaged("elements of this type have no groups");
    order.Arrange(groups);
    const std::span<std::byte> differences(Room(scratch.differences, bytes.size()), bytes.size());
    ZT_RETURN_IF_ERROR(Unpack(content, groups, differences, width, scratch));
    order.AddTo(bytes, differences.data());
    ToHost(bytes, width);
    return OkStatus();
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
    return ReadGroups({room, chunk.content}, width).status();
  });
}

StatusOr<std::optional<std::uint64_t>> CountChanged(const DeltaChunk& chunk,
                                                    std::span<const std::byte> frame) {
  if (chunk.kind == DeltaKind::kEqual) return 0;
  if (chunk.kind == DeltaKind::kPlanes) return std::nullopt;
  return WithScratch([&](Scratch& scratch) -> StatusOr<std::optional<std::uint64_t>> {
    std::byte* const room = Room(scratch.content, chunk.content);
    ZT_RETURN_IF_ERROR(DecodeContent(chunk, frame, room));
    ZT_ASSIGN_OR_RETURN(const std::vector<Group> groups, ReadGroups({room, chunk.content}, 1));
    std::uint64_t changed = 0;
    for (const Group& group : groups) changed += group.changed;
    return changed;
  });
}

}  // namespace zt
