// zt.cli:rules — --include, --exclude, --rename, --dtype and --dequantize as functions of a plan. Internal.
module zt.cli:rules;

import zt.std;
import :args;
import zt;

namespace zt::cli::internal {

// One rule of the command line, and how many tensors it has applied to.
struct RuleUse {
  std::string rule;         // "--include 'norm'"
  std::string when_unused;  // what is said where it applied to none
  std::uint64_t tensors = 0;
};

// The rules of a command line. MakePlan counts their uses.
struct Rules {
  PlanOptions plan;
  ZstdOptions zstd;  // `frame_bytes` is left at its default: --chunk sets it
  std::shared_ptr<std::vector<RuleUse>> uses;

  // A line for each rule that applied to no tensor: it may be misspelt.
  std::vector<std::string> Warnings() const;
  // "--dtype bf16: 12 tensors", a line for each rule.
  std::vector<std::string> Uses() const;
};

// What --zstd asks of the plan and of the writer.
void ApplyZstd(const std::optional<ZstdChoice>& choice, Storage& storage, ZstdOptions& options);

// kInvalidArgument names the option that is wrong.
StatusOr<Rules> MakeRules(const ConvertArgs& args);

// An element type, also by the names that torch and numpy have for it: float16, half, bfloat16. kInvalidArgument
// names `option` and lists the types.
StatusOr<ElementType> ParseTypeName(const std::string& text, std::string_view option);

}  // namespace zt::cli::internal
