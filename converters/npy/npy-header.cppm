// zt.convert.npy:header — the Python literal at the head of an .npy file, and what it says of the array.
module zt.convert.npy:header;

import zt.std;
import zt.core;
import zt.source;

namespace zt::npy::internal {

// numpy's array-protocol type string taken apart: "<f4" is {'<', 'f', 4}.
struct Descr {
  char order = 0;           // '<' '>' '|' '=', or 0 where the header does not say it
  char kind = 0;            // 'b' 'i' 'u' 'f' 'c' 'V' 'S' 'U' 'M' 'm' 'O'
  std::uint64_t width = 0;  // bytes; for 'U' characters
  std::string text;         // as written; "structured" for lists of fields
};

struct Header {
  Descr descr;
  bool fortran_order = false;
  Shape shape;
  std::uint64_t size = 0;  // bytes from the file's beginning to the array's
};

// Reads the header at the beginning of `bytes`, in ascending order. Any descr that is well formed
// is accepted.
StatusOr<Header> ReadHeader(ByteSource& bytes);

// A descr as a word for listings, without its byte order: "U5", "structured"; "unknown" where no header was read.
std::string DescrName(const Descr& descr);

// The element a descr stands for and, where its bytes are big-endian, the width to swap by (else 1).
struct ArrayType {
  ElementType element;
  std::uint64_t width = 1;  // bytes of one logical element: 8 for complex64
  std::uint64_t swap = 1;
};
// kUnimplemented, by name, for descrs that are not tensor elements.
StatusOr<ArrayType> TypeOf(const Descr& descr, const std::optional<ElementType>& void_type);

}  // namespace zt::npy::internal
