// zt.convert.hdf5:keras — the weights in a .keras archive. Internal.
module;

#include <cstdint>
#include <memory>

module zt.convert.hdf5:keras;

import zt.core;
import zt.source;

namespace zt::hdf5::internal {

// The HDF5 file in a .keras archive: a stored one is read where it lies, a deflated one is held in memory, up to the
// limit. Its CheckUnchanged checks the entry's CRC.
StatusOr<std::shared_ptr<ByteSource>> OpenWeights(std::shared_ptr<ByteSource> bytes,
                                                  std::uint64_t memory_limit);

}  // namespace zt::hdf5::internal
