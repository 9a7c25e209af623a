// zt.convert.npy:plan — how arrays are stated in files to be written. Internal.
module zt.convert.npy:plan;

import zt.std;
import zt.core;

namespace zt::npy::internal {

// numpy's name for an element, "<f4"; elements without one are as many bytes, "|V2".
struct DescrText {
  std::string text;
  bool named = true;
};
DescrText DescrOf(const ElementType& element);

// The bytes before an array in C order, as numpy.save writes them: a multiple of 64.
std::vector<std::byte> EncodeHeader(std::string_view descr, std::span<const std::uint64_t> shape);

// OK if the object is one array that numpy's header describes as it is.
Status CheckDense(const Object& object);

// The three letters of scipy's format, if the object is the array 'data' of a sparse archive kept as plain arrays.
const std::string* ScipyFormatOf(const Object& object);

// What a file of these objects does not say, in at most two lines: types without a name, and attributes.
class Losses {
 public:
  void Add(const Object& object, const ElementType& element);
  std::vector<std::string> Lines() const;

 private:
  std::vector<std::string> types_;  // each once
  std::uint64_t unnamed_ = 0, attributed_ = 0;
  std::string first_;  // with attributes
};

}  // namespace zt::npy::internal
