// zt.cli:listing — what a file holds, gathered from any format, as a table or a tree. Internal.
module zt.cli:listing;

import zt.std;
import :numbers;
import :output;

namespace zt::cli::internal {

struct ListedComponent : StoredComponent {
  // False where it does not lie in the file as it is: it has no offset.
  bool located = true;
  // False where the format has no encodings.
  bool encoded = true;
  // The name of the shard that it lies in, where there are shards.
  std::string file = {};
  // The tensor whose bytes these are as well, where an earlier one has them.
  std::optional<std::string> shares = std::nullopt;
};

struct ListedObject {
  std::string name, format;
  Shape shape;
  Value::Map attributes;
  std::vector<ListedComponent> components;
  std::string path = {};  // of a file that goes with the model; empty of tensors
  std::shared_ptr<const TensorStats> stats = {};  // where they were asked for

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
  std::vector<ListedObject> objects;  // Sort puts the files behind the tensors
  std::size_t files = 0;              // of the objects; Sort counts them
  std::vector<std::string> warnings;
  std::vector<StoredShard> shards = {};  // of a root or an index
};

std::span<const ListedObject> TensorsOf(const Listing& listing);
std::span<const ListedObject> FilesOf(const Listing& listing);

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
// The figures of each tensor in place of how it is stored, under a line that names them.
std::string StatsTableText(const Listing& listing, const TextOptions& options);
// A line for each file; empty where there is none.
std::string FilesText(const Listing& listing);
// Names folded by their dots, numbered ones in their order. Those of a layer that are numbered and alike share a line.
std::string TreeText(const Listing& listing, const TextOptions& options);
// Returns a self-contained HTML page that shows a listing, given as JSON (converters/cli/page).
std::string PageText(std::string_view json);

}  // namespace zt::cli::internal
