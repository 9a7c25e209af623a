// zt.convert.npy:header — the header of an .npy file: a Python literal that describes the array.
module zt.convert.npy:header;

import zt.std;
import zt.core;
import zt.source;

namespace zt::npy::internal {

// A numpy type string, parsed: "<f4" is {'<', 'f', 4}.
struct Descr {
  char order = 0;           // '<' '>' '|' '=', or 0 if absent
  char kind = 0;            // 'b' 'i' 'u' 'f' 'c' 'V' 'S' 'U' 'M' 'm' 'O'
  std::uint64_t width = 0;  // in bytes; for 'U' in characters
  std::string text;         // unparsed; "structured" for a list of fields
};

struct Header {
  Descr descr;
  bool fortran_order = false;
  Shape shape;
  std::uint64_t size = 0;  // size of the header, which is the offset of the data
};

// Reads the header at the beginning of `bytes`, front to back. Accepts any well-formed descr.
StatusOr<Header> ReadHeader(ByteSource& bytes);

// The descr without its byte order, for listings: "U5", "structured"; "unknown" if
// no header was read.
std::string DescrName(const Descr& descr);

// The element type of a descr, and how its bytes are swapped.
struct ArrayType {
  ElementType element;
  std::uint64_t width = 1;  // bytes per element: 8 for complex64
  // Size of the units whose bytes are reversed; 1 if little-endian.
  std::uint64_t swap = 1;
  bool guessed = false;  // the file does not say the byte order: little-endian, as on most machines
};
// kUnimplemented, naming the dtype, if a descr is no tensor element type.
StatusOr<ArrayType> TypeOf(const Descr& descr, const std::optional<ElementType>& void_type);

// The comment of an archive's entry that names a type which numpy has no name for: "dtype: bf16".
std::string TypeComment(const ElementType& element);
// The type that such a comment names; nullopt for other comments.
std::optional<ElementType> TypeInComment(std::string_view comment);

}  // namespace zt::npy::internal
