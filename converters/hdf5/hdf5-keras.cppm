// zt.convert.hdf5:keras — the weights in a .keras archive. Internal.
module zt.convert.hdf5:keras;

import zt.std;
import zt.core;
import zt.source;

namespace zt::hdf5::internal {

// The contents of a .keras archive.
struct KerasModel {
  std::shared_ptr<ByteSource> weights;  // the HDF5 file; its CheckUnchanged checks the entry's CRC
  std::string config;                   // content of config.json; empty if too large or not UTF-8
  NameList others;                      // all other entries
};

// A stored HDF5 file is read in place; a deflated one is held in memory, up to the limit.
StatusOr<KerasModel> OpenKeras(std::shared_ptr<ByteSource> bytes, std::uint64_t memory_limit);

}  // namespace zt::hdf5::internal
