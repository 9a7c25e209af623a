// zt.convert.gguf:model — a parsed header as objects and attributes; shared by source, sets and writer.
module;

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

module zt.convert.gguf:model;

import zt.core;
import zt.source;
import :header;

namespace zt::gguf::internal {

// Reads and parses the header of `bytes`; on a pipe the bytes after it are kept.
StatusOr<GgufHeader> ReadHeader(ByteSource& bytes);

struct File {
  std::shared_ptr<ByteSource> bytes;
  GgufHeader header;
};

// A source over the files; `header.kv` of the first is the metadata. Several files: no offsets are recorded.
StatusOr<std::unique_ptr<TensorSource>> MakeSource(std::vector<File> files,
                                                   std::vector<std::string> warnings);

}  // namespace zt::gguf::internal
