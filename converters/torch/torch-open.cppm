// zt.convert.torch:open — the two containers a checkpoint may be in.
module zt.convert.torch:open;

import zt.std;
import :contents;
import :source;
import zt.core;
import zt.source;

namespace zt::torch::internal {

// How a legacy stream of protocol 0 or 1 begins: the magic number, in digits.
inline constexpr std::string_view kOldMagic = "L119547037146038801333356L\n.";

// True where a file that begins with `head` (512 bytes) is one that OpenTorch reads, or refuses with a word.
bool LooksLikeTorch(std::span<const std::byte> head);

StatusOr<std::unique_ptr<TensorSource>> OpenArchive(std::shared_ptr<ByteSource> bytes,
                                                    const std::string& stem,
                                                    std::uint64_t memory_limit,
                                                    const SourceMemory& memory);
StatusOr<std::unique_ptr<TensorSource>> OpenStream(std::shared_ptr<ByteSource> bytes,
                                                   const std::string& stem,
                                                   std::uint64_t memory_limit,
                                                   const SourceMemory& memory);
// OpenTorch, for one of the files that share `memory`.
StatusOr<std::unique_ptr<TensorSource>> OpenOneOf(std::shared_ptr<ByteSource> bytes,
                                                  const std::string& stem,
                                                  std::uint64_t memory_limit,
                                                  const SourceMemory& memory);
// What is listed of an object that cannot be converted: under its name, as `what`, without a shape.
Object Unreadable(std::string name, std::string_view what);
// Says once what of the contents does not become part of the source.
void AddLeftOut(const Contents& contents, TensorSource& source);

}  // namespace zt::torch::internal
