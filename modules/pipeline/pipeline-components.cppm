// zt.pipeline:components — the steps of everything that moves tensors: reads ranges of components,
// passes them to their digest, writes pieces.
export module zt.pipeline:components;

import zt.std;
import :buffer;
import :executor;
import zt.core;
import zt.sink;
import zt.source;

export namespace zt {

// A range of a component, to be read.
struct ComponentRange {
  TensorSource* source = nullptr;
  ComponentId id = {};
  std::uint64_t offset = 0, count = 0;  // in the component, in bytes
  // If set, reads the range in place of the source; see CheckDigest.
  std::shared_ptr<UnorderedReader> apart = nullptr;
  // If set, what is read is a range of this, the stream as which the component is stored.
  const Extent* stream = nullptr;
  // The tensor's name in errors; null means that of the source.
  const std::string* name = nullptr;
  std::span<std::byte> bytes = {};  // set by ReadComponents

  // Adds tensor and file.
  Status Named(const Status& status) const;
  // Passes bytes that were read apart to the digest. For kInChain stages.
  inline Status CheckDigest() const {
    return apart == nullptr ? OkStatus() : Named(apart->Check(offset, bytes));
  }
};

// Reads all ranges into one buffer, which is taken from the pool if the one given is too small;
// neighbours in a file with one call. Errors and exceptions of a source get the names of the range.
Status ReadComponents(std::span<ComponentRange* const> ranges, BufferPool& pool, Buffer& buffer);

// Pieces of a file that are written with one call. The bytes must outlive it.
class PieceList {
 public:
  // Neighbours in memory become one piece.
  void Add(std::span<const std::byte> piece);
  void AddZeros(std::uint64_t count);
  // Writes all pieces at `place` if the sink can place bytes, else appends them; leaves none.
  // Errors name the sink.
  Status WriteTo(Sink& sink, std::uint64_t place);

 private:
  std::vector<std::span<const std::byte>> pieces_;
};

// A stage that writes: in parallel if the sink can place bytes.
inline StageOrder WriteOrder(const Sink& sink) {
  return sink.can_place() ? StageOrder::kParallel : StageOrder::kInOrder;
}

}  // namespace zt
