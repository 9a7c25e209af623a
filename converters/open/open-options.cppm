// zt.open:options — how to open an input.
export module zt.open:options;

import zt.std;
import zt.core;
import zt.source;

export namespace zt {

// A file of a checkpoint's folder that is left out, the reason, and what would help.
struct LeftOut {
  std::string path, why;
  std::optional<Advice> advice = {};  // what would take it along
};

// How to open inputs.
struct SourceOptions : InputOptions {
  std::string format = {};  // its name (kReadFormats); empty: detected
  // Which files of a model accompany its tensors: "all", "none" or patterns of paths.
  // Empty: the files of a single input, and no files of several inputs.
  std::vector<std::string> files = {};
  // Files are taken whatever their size: for a comparison, which names what one side lacks.
  bool any_size = false;
  // If not empty, all files are left out, for this reason: the output cannot hold them.
  std::string no_files = {};
  // The bases of deltas; others are looked for beside the delta, by the name it says.
  std::vector<std::string> base = {};
  // The base of a delta is in memory (UpdateFromDelta): it is not opened, and what is made of it cannot
  // be read.
  bool base_in_memory = false;
  // Deltas are listed as they are stored, without their bases.
  bool deltas_as_stored = false;
  // If set, opening a delta appends the paths of the bases on which it stands.
  std::shared_ptr<std::vector<std::string>> used_bases = nullptr;
  // If set, opening an input appends the files that it leaves out.
  std::shared_ptr<std::vector<LeftOut>> left_out = nullptr;
};

}  // namespace zt
