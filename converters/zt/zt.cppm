// zt.convert.zt — a .zt file of any version as a source: upgrading, merging and filtering are conversions like others.
module;

#include <memory>

export module zt.convert.zt;

import zt.core;
import zt.source;

export namespace zt {

// Opens a .zt file. Objects keep their format, attributes and logical types; components are served decoded and
// little-endian. What differs from the file:
//   - objects and components come in the order of their bytes, not of the manifest;
//   - indices of sparse_csr and sparse_coo are u64 whatever 1.1 stored them as; a negative one is kDataLoss;
//   - the one blob of a sparse 0.1.0 entry becomes the components of sparse_csr or sparse_coo (see legacy.cc); an entry
//     whose structure nothing describes is kUnimplemented.
// Stored bytes are checked against their digest as they pass, so that reading a component whole either yields what was
// written or fails with kDataLoss. A digest of an unknown algorithm is a warning.
StatusOr<std::unique_ptr<TensorSource>> OpenZt(std::shared_ptr<ByteSource> bytes);

}  // namespace zt
