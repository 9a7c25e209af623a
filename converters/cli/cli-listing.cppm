// zt.cli:listing — what a file holds, gathered from any format, as a table or a tree. Internal.
module;

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

module zt.cli:listing;

import :args;
import :output;
import zt;

namespace zt::cli::internal {

struct ListedComponent {
  std::string role;
  ElementType element;
  std::optional<std::uint64_t> offset;   // in the file; nullopt if it does not lie there as it is
  std::uint64_t stored = 0;              // bytes in the file
  std::uint64_t decoded = kUnknownSize;  // bytes of elements
  std::optional<Encoding> encoding;      // nullopt where the format has none
  CodecParameters parameters;            // of byte planes
  bool big_endian = false;
  std::string digest;
  std::string undecodable = {};       // why its bytes cannot be decoded
  std::string unknown_encoding = {};  // the name of an encoding that is not known
  std::string shard = {};             // the name of the file that it lies in, where that is another
  // The tensor whose bytes these are as well, where an earlier one has them.
  std::optional<std::uint32_t> shares = std::nullopt;
};

struct ListedObject {
  std::string name, format;
  Shape shape;
  Value::Map attributes;
  std::vector<ListedComponent> components;

  // What people call its type: "bf16", "q4_0", "sparse_csr".
  std::string type() const;
  // Elements of the tensor as a model counts them; those stored, of a sparse one.
  std::uint64_t parameters() const;
  bool tied() const;             // all its bytes are an earlier one's
  std::uint64_t stored() const;  // what others have as well not counted
  std::uint64_t decoded() const;
};

struct Listing {
  std::string file, format, version;  // version: of .zt files
  Value::Map attributes;
  std::vector<ListedObject> objects;
  std::vector<std::string> warnings;
  std::vector<StoredShard> shards = {};  // of a root or an index
};

// Orders the objects: "name", "size" (the largest first), "offset". Empty: by offset those of a manifest, which has
// an order of its own; others stay as their source has them.
void Sort(Listing& listing, const std::string& order);

// Lines for people. Columns are left out and names cut in the middle to fit `columns`; 0 leaves all whole. Different
// names never look alike.
struct TextOptions {
  bool verbose = false;
  std::size_t columns = 0;
};
// The first line, attributes, and a line for each type where there are several.
std::string HeadingText(const Listing& listing);
std::string TableText(const Listing& listing, const TextOptions& options);
// Names folded by their dots, numbered ones in their order. Those of a layer that are numbered and alike share a line.
std::string TreeText(const Listing& listing, const TextOptions& options);

}  // namespace zt::cli::internal
