// zt.convert.hdf5:index — the contents of an HDF5 file, as sent by the process that
// runs libhdf5. Internal.
module zt.convert.hdf5:index;

import zt.std;
import zt.core;

namespace zt::hdf5::internal {

// A dataset under one of its names. A dataset with several names has an entry for each.
struct Dataset {
  std::string name;           // path without the leading slash
  std::uint64_t address = 0;  // offset of its object header, equal for all its names
  std::string problem;        // why it cannot be converted; empty if it can
  bool damaged = false;       // the problem is one of the file, not of this program
  bool too_large = false;     // ... and more memory solves it
  std::string element;        // name of the element type
  Shape shape;
  std::uint64_t swap = 1;    // size of the units whose bytes are reversed; 1: none
  bool contiguous = false;   // stored contiguously at `offset`
  std::uint64_t offset = 0;  // in the file
  Shape chunk;               // chunk shape, of the same rank as `shape`; empty if not chunked
  Value::Map attributes;
};

struct Index {
  std::vector<Dataset> datasets;
  Value::Map attributes;
  std::vector<std::string> warnings;
};

// Serializes an index: numbers as eight bytes in host order, strings and lists preceded by their
// size.
std::string Encode(const Index& index);
// Accepts any bytes: kDataLoss if they are no index.
StatusOr<Index> Decode(std::string_view text);

}  // namespace zt::hdf5::internal
