// zt.convert.hdf5:index — what is in an HDF5 file, as the process that runs libhdf5 tells it. Internal.
module zt.convert.hdf5:index;

import zt.std;
import zt.core;

namespace zt::hdf5::internal {

// A dataset under one of its names.
struct Dataset {
  std::string name;           // its path without the leading slash
  std::uint64_t address = 0;  // of its header in the file, the same under all its names
  std::string problem;        // why it cannot be converted, or empty
  std::string element;        // its element type by name
  Shape shape;
  std::uint64_t swap = 1;    // bytes that are reversed together; 1: none are
  bool contiguous = false;   // its bytes follow each other from `offset` on
  std::uint64_t offset = 0;  // in the file
  Shape chunk;               // as many dimensions as the shape has; empty where there are no chunks
  Value::Map attributes;
};

struct Index {
  std::vector<Dataset> datasets;
  Value::Map attributes;
  std::vector<std::string> warnings;
};

}  // namespace zt::hdf5::internal
