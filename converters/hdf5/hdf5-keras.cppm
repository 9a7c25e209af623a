// zt.convert.hdf5:keras — the weights in a .keras archive. Internal.
module zt.convert.hdf5:keras;

import zt.std;
import zt.core;
import zt.source;

namespace zt::hdf5::internal {

// What a .keras archive holds.
struct KerasModel {
  std::shared_ptr<ByteSource> weights;  // an HDF5 file; its CheckUnchanged checks the entry's CRC
  std::string config;  // the text of config.json; empty where it is too large, or no text
  NameList others;     // entries that are neither
};

// The HDF5 file in it is read where it lies if it is stored; a deflated one is held in memory, up to the limit.
StatusOr<KerasModel> OpenKeras(std::shared_ptr<ByteSource> bytes, std::uint64_t memory_limit);

}  // namespace zt::hdf5::internal
