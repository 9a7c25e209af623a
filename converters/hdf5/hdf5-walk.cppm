// zt.convert.hdf5:walk — the objects of a file, link by link. Internal.
module;

#include <hdf5.h>

module zt.convert.hdf5:walk;

import zt.std;
import :index;
import zt.core;

namespace zt::hdf5::internal {

// What can be reached from the root group of `file`, which has `size` bytes. Each group is walked once. Datasets whose
// chunks decode to more than `most_chunk` bytes have a problem.
StatusOr<Index> Walk(hid_t file, std::uint64_t size, std::uint64_t most_chunk);

}  // namespace zt::hdf5::internal
