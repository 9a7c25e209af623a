// zt.open:deltas — finds the base of a delta. Internal.
module zt.open:deltas;

import zt.std;
import :options;
import zt.core;
import zt.source;

namespace zt::open::internal {

// Opens an input that may be a base.
using Opener = std::function<StatusOr<std::unique_ptr<TensorSource>>(const std::string& path,
                                                                     const SourceOptions& options)>;

// The model of which `source`, opened from `path`, has the differences, if it is a delta: with its
// base, which may be a delta again. Else the source.
StatusOr<std::unique_ptr<TensorSource>> ResolveDelta(std::unique_ptr<TensorSource> source,
                                                     const std::string& path,
                                                     const SourceOptions& options,
                                                     const Opener& open);

}  // namespace zt::open::internal
