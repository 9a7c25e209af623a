// zt.cli:args — the arguments of a command line, parsed and checked. Internal.
module zt.cli:args;

import zt.std;
import zt;
import zt.open;

namespace zt::cli::internal {

// The options of every command.
struct Common {
  std::string command;  // "convert"
  // Standard output carries the output file, so results go to standard error.
  bool product_on_output = false;
  bool json = false, quiet = false, verbose = false;
  std::string progress = "auto";
  unsigned threads = 0;
  std::uint64_t memory = 0;  // see MemoryFor
  std::shared_ptr<Store> store = LocalStore();
};

// What the values of --to begin with that write what differs from --base, as others do.
inline constexpr std::string_view kToDiskDelta = "disk-delta";

// A level of --zstd.
struct ZstdChoice {
  int level = 1;
  bool huffman = false;  // no matches, literals Huffman-coded
  bool planes = false;   // floats as byte planes
};

// The arguments of all commands. The table in options.cc says which command reads which.
struct Args : Common {
  std::vector<std::string> inputs;  // files and folders to read
  std::string output;
  bool force = false, no_sync = false;
  bool help = false, version = false;

  // convert
  std::string spec;               // "1.2"
  std::uint64_t alignment = 0;    // 0: the default of the version
  bool canonical = false;         // convert, verify
  std::vector<std::string> zstd;  // LEVEL or WHICH=LEVEL; none: raw, or as a .zt input has it
  bool raw = false;               // decompress .zt inputs
  double min_gain_percent = 2.0;
  std::uint64_t chunk = 4 << 20;
  std::string digest;  // convert, id; empty: the default of the version
  std::vector<std::string> dtype, include, exclude, rename, set, unset;
  std::string include_from;  // a file of words for `include`
  std::string on_overflow = "error";
  bool allow_loss = false;
  std::string dequantize;
  std::string quant = "keep";
  bool no_metadata = false, dry_run = false, each = false;
  unsigned shards = 0;           // 0: not given
  std::uint64_t shard_size = 0;  // convert, extract; 0: not given
  std::string shard;             // "3/8", or empty

  std::string from;               // name of a format; empty: detected
  std::vector<std::string> base;  // of deltas; convert: what one is made from
  std::string variant;
  bool follow_links = false;
  std::vector<std::string> files;  // the words of --files
  std::optional<ElementType> void_type;
  bool no_sign_request = false;
  std::string profile, region, endpoint_url;
  std::vector<std::string> s3_headers;
  bool resume = false;                         // an upload
  std::uint64_t part_bytes = 0;                // of each part of an upload; 0: chosen by size
  std::map<std::string, std::string> queries;  // of the URLs among the paths, for the store

  bool missing = false;  // join
  std::string sort;      // inspect: "name", "size", "offset"; empty: file order
  bool tree = false, stats = false, names_alone = false, null = false;  // inspect
  std::vector<std::string> against;                                     // verify
  double atol = -1, rtol = -1;                                          // diff; negative: not given
  std::string attributes;          // diff: "tensors", "all" or "none"; empty: of tensors
  std::vector<std::string> names;  // extract: empty: all; show: one
  std::string to;                  // extract: name of a format; empty: by the output's suffix

  // The files that opening the inputs leaves out.
  std::shared_ptr<std::vector<LeftOut>> left_out = nullptr;

  // The bases that opening the inputs used.
  std::shared_ptr<std::vector<std::string>> used_bases = nullptr;

  // How the inputs are opened.
  SourceOptions source_options() const;
  // The input of a command that takes a single file.
  const std::string& file() const { return inputs.front(); }
};

// ---- numbers ------------------------------------------------------------------------------------
//
// Each function returns nullopt for text of another form, such as "+1", " 1" or "0x1".

// "12", all of it; of a double "2.5", "-3e5".
template <typename T = std::uint64_t>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return value;
}
// "2.5", "-3".
std::optional<double> ParseDecimal(std::string_view text);
// Bytes: "1000", "64MiB", "64M" (the same), "64MB" (powers of 1000) or "1.5G".
std::optional<std::uint64_t> ParseSize(std::string_view text);
// A level of --zstd: "3", "-5", "huffman" or "planes".
std::optional<ZstdChoice> ParseZstd(std::string_view text);

}  // namespace zt::cli::internal
