// zt.cli:args — what each command is told, parsed but not yet checked.
export module zt.cli:args;

import zt.std;
import zt;

export namespace zt::cli {

enum class ProgressMode { kAuto, kAlways, kNever };

// What every command takes.
struct Common {
  std::string command;             // "convert"
  bool product_on_output = false;  // standard output carries a file: results go to standard error
  bool json = false, quiet = false, verbose = false;
  ProgressMode progress = ProgressMode::kAuto;
  unsigned threads = 0;
  std::uint64_t memory = 0;  // see MemoryFor
  bool no_sign_request = false;
  std::uint64_t part_bytes = 0;  // of an upload; 0: chosen
};

// How inputs are opened, as the command line says it.
struct InputArgs : InputOptions {
  std::string from;      // a format's name, or empty: by content
  std::string npy_void;  // InputOptions::void_type by its name, or empty
};

// What --zstd asks for.
struct ZstdChoice {
  int level = 1;
  bool huffman = false;  // no matches, literals Huffman-coded
  bool planes = false;   // floats as byte planes
};

struct ConvertArgs {
  Common common;
  InputArgs input;
  std::vector<std::string> inputs;
  std::string output;
  std::string spec;             // "1.2"
  std::uint64_t alignment = 0;  // 0: what the version's writers take
  bool canonical = false;
  std::optional<ZstdChoice> zstd;  // nothing: raw
  double min_gain_percent = 2.0;
  std::uint64_t chunk = 4 << 20;
  std::string digest;  // empty: the version's
  std::vector<std::string> dtype;
  std::string on_overflow = "error";
  std::string dequantize;
  bool group_quantized = false;
  bool no_metadata = false;
  std::vector<std::string> include, exclude, rename;
  std::uint64_t shard_size = 0, shards = 0;  // 0: not given
  std::string shard;                         // "3/8", or empty
  bool dry_run = false, force = false, no_sync = false;
};

struct JoinArgs {
  Common common;
  std::vector<std::string> shards;
  std::string output;
  bool missing = false, force = false, no_sync = false;
};

struct InspectArgs {
  Common common;
  InputArgs input;
  std::string file;
  std::string sort;  // "name", "size" or "offset"; empty: in the order of the bytes
  bool tree = false;
};

struct VerifyArgs {
  Common common;
  InputArgs input;  // `from`, `npy_void` and `keep_sparse` of `against` alone
  std::string file;
  std::vector<std::string> against;
  bool canonical = false;
};

struct ExtractArgs {
  Common common;
  InputArgs input;
  std::string file;
  std::vector<std::string> names;  // empty: all
  std::string output;
  std::string to;  // a format's name, or empty: by the output's suffix
  bool force = false, no_sync = false;
};

struct DiffArgs {
  Common common;
  InputArgs input;
  std::string first, second;
};

struct IdArgs {
  Common common;
  InputArgs input;
  std::vector<std::string> inputs;
  std::string digest = "sha256";
};

struct BenchArgs {
  Common common;
  InputArgs input;
  std::vector<std::string> inputs;
  std::string folder;  // to write in; empty: the first input's
  std::uint64_t limit = 1 << 30;
  unsigned runs = 3;
};

}  // namespace zt::cli
