// zt.cli:rules — --include, --exclude, --rename, --dtype and --dequantize as functions of a plan. Internal.
module zt.cli:rules;

import zt.std;
import :args;

namespace zt::cli::internal {

struct RuleSet;

// The rules of a command line. MakePlan counts their uses.
struct Rules {
  PlanOptions plan;
  ZstdOptions zstd;  // `frame_bytes` is left at its default: --chunk sets it
  std::shared_ptr<RuleSet> set = nullptr;

  // A line for each rule that applied to no tensor: it may be misspelt.
  std::vector<std::string> Warnings() const;
  // "--dtype bf16: 12 tensors", a line for each rule.
  std::vector<std::string> Uses() const;
};

// What --zstd asks of the plan and of the writer.
void ApplyZstd(const std::optional<ZstdChoice>& choice, Storage& storage, ZstdOptions& options);

// kInvalidArgument names the option that is wrong.
StatusOr<Rules> MakeRules(const Args& args);
// Whether there are any that change tensors or leave some out.
bool HasRules(const Args& args);

// An element type, also by the names that torch and numpy have for it: float16, half, bfloat16. kInvalidArgument
// lists the types.
StatusOr<ElementType> ParseTypeName(const std::string& text);

}  // namespace zt::cli::internal
