// zt.cli:listing — what a file holds, gathered from any format, as a table or a tree. Internal.
module zt.cli:listing;

import zt.std;
import :numbers;
import :output;

namespace zt::cli::internal {

struct ListedComponent : StoredComponent {
  // False if the file does not store it unchanged: it has no offset.
  bool located = true;
  // False if the format has no encodings.
  bool encoded = true;
  // The name of its shard, if there are shards.
  std::string file = {};
  // The earlier tensor that has the same bytes.
  std::optional<std::string> shares = std::nullopt;
};

struct ListedObject {
  std::string name, format;
  Shape shape;
  Value::Map attributes;
  std::vector<ListedComponent> components;
  std::string path = {};       // of a file that goes with the model; empty for tensors
  std::string quantized = {};  // how it holds codes: "gptq, 4 bits, groups of 128"; else empty
  std::shared_ptr<const TensorStats> stats = {};  // null unless requested

  // The usual name of its type: "bf16", "q4_0", "sparse_csr".
  std::string type() const;
  // Elements of the tensor as a model counts them; for a sparse tensor, those stored.
  std::uint64_t parameters() const;
  bool tied() const;             // true if all components share earlier blobs
  std::uint64_t stored() const;  // stored bytes, without shared blobs
  std::uint64_t decoded() const;
};

struct Listing {
  std::string file, format, version;  // version: of .zt files
  Value::Map attributes;
  std::vector<ListedObject> objects;  // Sort puts the files behind the tensors
  std::size_t files = 0;              // of the objects; Sort counts them
  std::uint64_t tensors = 0;          // before some were selected; 0: all are listed
  std::vector<std::string> warnings;
  // The tensors of each scheme of quantization: "fp8 blocks, 8 bits, blocks of 128x128".
  std::map<std::string, std::uint64_t> quantized = {};
  std::vector<ShardFile> shards = {};  // of a root or an index
};

std::span<const ListedObject> TensorsOf(const Listing& listing);
std::span<const ListedObject> FilesOf(const Listing& listing);

// Sorts the objects by "name", "size" (the largest first) or "offset". If `order` is empty, objects
// of a manifest are sorted by offset, and others keep the order of their source.
void Sort(Listing& listing, const std::string& order);

// How text is laid out. Columns of less worth are left out to fit `columns`; 0 leaves none out.
struct TextOptions {
  bool verbose = false, null = false;  // null: a NUL ends each name of NamesText
  std::size_t columns = 0;
  bool largest_first = false;  // of each node of TreeText, whose tensors are sorted otherwise
};
// The first line, attributes, and a line for each type if there are several.
std::string HeadingText(const Listing& listing);
std::string TableText(const Listing& listing, const TextOptions& options);
// The table with the figures of each tensor instead of its storage.
std::string StatsTableText(const Listing& listing, const TextOptions& options);
// A line for each file; empty if there is none.
std::string FilesText(const Listing& listing);
// A tree of the parts of names, numbered parts first and in order, or the largest. Equal numbered
// layers share a line.
std::string TreeText(const Listing& listing, const TextOptions& options);

}  // namespace zt::cli::internal
