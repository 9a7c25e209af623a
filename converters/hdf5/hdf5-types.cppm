// zt.convert.hdf5:types — HDF5 types as element types, and attributes as values. Internal.
module;

#include <hdf5.h>

module zt.convert.hdf5:types;

import zt.std;
import zt.core;

namespace zt::hdf5::internal {

// The element type of a dataset. If `problem` says why it cannot be converted, the rest is empty.
struct Elements {
  std::string name;        // name of the element type
  std::uint64_t swap = 1;  // size of the units whose bytes are reversed; 1: none
  std::string problem;
};
// The elements of a dataset of this type.
Elements ElementsOf(hid_t type, hid_t dataset);
// True for an enumeration of FALSE and TRUE, h5py's form of bool.
bool IsBool(hid_t type);
// The names and values of an enumeration's members, to become attributes; nothing if there are too
// many, or a name is not UTF-8. `most`: limit on the bytes of the names.
std::optional<Value::Map> LabelsOf(hid_t type, std::uint64_t most);

// The names of the attributes of `object`.
std::vector<std::string> AttributeNames(hid_t object);
// An attribute of `object`; nothing if it is neither a number, a string nor a list of these, or
// takes more than `most` bytes.
std::optional<Value> ReadAttribute(hid_t object, const char* name, std::uint64_t most);

}  // namespace zt::hdf5::internal
