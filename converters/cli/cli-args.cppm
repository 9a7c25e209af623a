// zt.cli:args — what a command line says, parsed and checked. Internal.
module zt.cli:args;

import zt.std;
import zt;

namespace zt::cli::internal {

// What every command takes.
struct Common {
  std::string command;             // "convert"
  bool product_on_output = false;  // standard output carries a file: results go to standard error
  bool json = false, quiet = false, verbose = false;
  std::string progress = "auto";
  unsigned threads = 0;
  std::uint64_t memory = 0;  // see MemoryFor
  bool no_sign_request = false;
  std::uint64_t part_bytes = 0;  // of an upload; 0: chosen
};

// A file of a checkpoint's folder that does not go with its tensors, and why.
struct LeftOut {
  std::string path, why;
};

// How inputs are opened.
struct InputArgs : InputOptions {
  std::string from;  // a format's name, or empty: by content
  // Which files go with the tensors: "all", "none", "dense", or patterns of paths; empty: as the inputs are.
  std::vector<std::string> files;
  // Filled as inputs are opened, where there is one.
  std::shared_ptr<std::vector<LeftOut>> left_out = nullptr;
};

// What --zstd asks for.
struct ZstdChoice {
  int level = 1;
  bool huffman = false;  // no matches, literals Huffman-coded
  bool planes = false;   // floats as byte planes
};

// The arguments of every command; each reads its own. The table in options.cc says which those are.
struct Args : Common, InputArgs {
  std::vector<std::string> inputs;  // the files and folders that are read
  std::string output;
  bool force = false, no_sync = false;
  bool help = false, version = false;

  // convert
  std::string spec;                // "1.2"
  std::uint64_t alignment = 0;     // 0: what the version's writers take
  bool canonical = false;          // of verify, too
  std::optional<ZstdChoice> zstd;  // nothing: raw, or as a .zt file has it
  bool raw = false;                // what a .zt file has compressed, too
  double min_gain_percent = 2.0;
  std::uint64_t chunk = 4 << 20;
  std::string digest;  // of id, too; empty: the version's
  std::vector<std::string> dtype, include, exclude, rename;
  std::string on_overflow = "error";
  std::string dequantize;
  std::string quant = "keep", sparse = "auto";
  bool no_metadata = false, dry_run = false;
  unsigned shards = 0;           // 0: not given
  std::uint64_t shard_size = 0;  // of extract, too; 0: not given
  std::string shard;             // "3/8", or empty

  bool no_sign_request = false;
  std::uint64_t part_bytes = 0;  // of an upload; 0: chosen

  bool missing = false;              // join
  std::string sort;                  // inspect: "name", "size", "offset"; empty: as in the file
  bool tree = false;                 // inspect
  std::vector<std::string> against;  // verify
  std::vector<std::string> names;    // extract; empty: all tensors
  std::string to;                    // extract: a format's name; empty: by the output's suffix
  std::string folder;                // bench: to write in; empty: the first input's
  std::uint64_t limit = 1 << 30;     // bench
  unsigned runs = 3;                 // bench

  // Of a command that reads one file.
  const std::string& file() const { return inputs.front(); }
};

// ---- numbers: each is nullopt where `text` is anything else: no sign but "-", no blanks, no octal or hexadecimal digits

// "12".
std::optional<std::uint64_t> ParseNumber(std::string_view text);
// "2.5", "-3".
std::optional<double> ParseDecimal(std::string_view text);
// The bytes that "1000", "64MiB", "64M" (the same), "64MB" (powers of 1000) or "1.5G" say.
std::optional<std::uint64_t> ParseSize(std::string_view text);
// The value of --zstd: "3", "-5", "huffman" or "planes".
std::optional<ZstdChoice> ParseZstd(std::string_view text);

}  // namespace zt::cli::internal
