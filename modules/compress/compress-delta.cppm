// zt.compress:delta — a chunk of a tensor as what differs from the same chunk of another (profile
// ztstream.delta/1): the layout, and its zstd frames.
export module zt.compress:delta;

import zt.std;
import :codec;
import zt.core;

export namespace zt {

// The largest chunk, in bytes.
inline constexpr std::uint32_t kMaxDeltaChunk = std::uint32_t{16} << 20;

// How the frame of a chunk is made (docs/DELTA.md).
enum class DeltaKind : std::uint8_t {
  kEqual,        // there is none: the chunk is that of the base
  kDifferences,  // differences from the base, in the order of its exponents
  kPlanes,       // the chunk itself in byte planes; the base is not needed
};

// What is kept of a chunk beside its frame.
struct DeltaChunk {
  DeltaKind kind = DeltaKind::kEqual;
  std::uint32_t frame = 0;    // bytes
  std::uint32_t content = 0;  // bytes that the frame decodes to
  std::uint64_t result = 0;   // XXH3 of the chunk, and of that of the base
  std::uint64_t base = 0;
  bool operator==(const DeltaChunk&) const = default;  // equal in all
};

// The size of a buffer that holds the frame of any chunk of `bytes`.
std::size_t DeltaBound(std::size_t bytes);

// Encodes the chunk `fresh` of elements of this type by the chunk `old`, of equal size, into `out`
// of DeltaBound bytes. Sets kind, frame and content; the digests are the caller's. Equal chunks
// give equal bytes on any thread and any processor. Thread-safe.
StatusOr<DeltaChunk> EncodeDelta(const ElementType& element, std::span<const std::byte> old,
                                 std::span<const std::byte> fresh, std::span<std::byte> out);

// Changes a chunk of the base to the result, in place. kDataLoss if the frame is damaged or is not
// for such a chunk; the bytes are then undefined. The caller compares digests. Thread-safe.
Status ApplyDelta(const ElementType& element, const DeltaChunk& chunk,
                  std::span<const std::byte> frame, std::span<std::byte> bytes);

// Checks what can be checked of a frame without the base, for a chunk of `bytes`. kDataLoss.
Status CheckDelta(const ElementType& element, const DeltaChunk& chunk,
                  std::span<const std::byte> frame, std::size_t bytes);

}  // namespace zt
