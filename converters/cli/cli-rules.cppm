// zt.cli:rules — --include, --exclude, --rename, --dtype and --dequantize as functions of a plan.
// Internal.
module zt.cli:rules;

import zt.std;
import :args;

namespace zt::cli::internal {

struct RuleSet;

// The rules of a command line. MakePlan counts their uses.
struct Rules {
  PlanOptions plan;
  ZstdOptions zstd;  // `frame_bytes` keeps its default: --chunk sets it
  std::shared_ptr<RuleSet> set = nullptr;

  // A warning for each rule that applied to no tensor: it may be misspelled.
  std::vector<std::string> Warnings() const;
  // "--dtype bf16: 12 tensors", for each rule.
  std::vector<std::string> Uses() const;
};

// Sets the options of the plan and of the writer for --zstd.
void ApplyZstd(const std::optional<ZstdChoice>& choice, Storage& storage, ZstdOptions& options);

// kInvalidArgument names the option that is wrong.
StatusOr<Rules> MakeRules(const Args& args);
// True if rules change tensors or leave some out.
bool HasRules(const Args& args);

// Finds an element type, also by the names of torch and numpy: float16, half, bfloat16.
// kInvalidArgument lists the types.
StatusOr<ElementType> ParseTypeName(const std::string& text);

}  // namespace zt::cli::internal
