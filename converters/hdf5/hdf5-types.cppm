// zt.convert.hdf5:types — element types and attributes as libhdf5 describes them. Internal.
module;

#include <hdf5.h>

module zt.convert.hdf5:types;

import zt.std;
import zt.core;

namespace zt::hdf5::internal {

// What elements are. `problem` says why they cannot be converted; the rest is then empty.
struct Elements {
  std::string name;        // of the element type
  std::uint64_t swap = 1;  // each so many bytes are turned around
  std::string problem;
};
Elements ElementsOf(hid_t type);

// An attribute of `object`, or nothing where it is no number or text, nor a list of these, or takes more than `most` bytes.
std::optional<Value> ReadAttribute(hid_t object, const char* name, std::uint64_t most);

// The names of the attributes of `object`.
std::vector<std::string> AttributeNames(hid_t object);

}  // namespace zt::hdf5::internal
