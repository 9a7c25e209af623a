// zt.convert.hdf5 — replaces source.cc in a build without libhdf5.
module zt.convert.hdf5;

import zt.std;
import zt.core;
import zt.source;

namespace zt {

bool ReadsHdf5() { return false; }

StatusOr<std::unique_ptr<TensorSource>> OpenHdf5(std::shared_ptr<ByteSource>, const InputOptions&) {
  return Unsupported(
      "it is HDF5, which this build leaves out (it was made with ZT_HDF5=OFF); load it with h5py "
      "and save the arrays as npz or safetensors");
}

}  // namespace zt
