// zt.cli:rules — what --include, --exclude, --rename, --dtype, --dequantize, --zstd, --set and
// --unset make of a plan. Internal.
module zt.cli:rules;

import zt.std;
import :args;
import :select;
import zt.convert.composite;

namespace zt::cli::internal {

struct RuleSet;

// The rules of a command line. MakePlan counts their uses.
struct Rules {
  PlanOptions plan;
  ZstdOptions zstd;  // `frame_bytes` keeps its default: --chunk sets it
  std::shared_ptr<RuleSet> set = nullptr;

  // The plan of the source by all rules.
  StatusOr<Plan> PlanOf(TensorSource& source) const;
  // Tells the patterns the names of the tensors, sorted. See Pattern. MakePlan needs it.
  Status Resolve(const TensorSource& source) const;
  Status Resolve(std::span<const std::string_view> names) const;
  // Opens inputs as the rules need them: with numbers of f32 in place of quantized tensors for
  // --dequantize, grouped for `quant` "group", else split if `split`. `rounded`: the numbers have the
  // type that --dequantize names, where no plan converts them.
  StatusOr<std::unique_ptr<TensorSource>> Open(const Args& args,
                                               const std::vector<std::string>& inputs,
                                               const SourceOptions& options, bool split,
                                               bool rounded = false) const;
  // --include and --exclude, which the plan's `keep` asks.
  Selector& selector() const;

  // A warning for each rule that applied to no tensor, or may mean another pattern: it may be
  // misspelled.
  std::vector<std::string> Warnings() const;
  // "--dtype bf16: 12 tensors", for each rule.
  std::vector<std::string> Uses() const;
};

// Sets the options of the plan and of the writer for a level of --zstd.
void ApplyZstd(const std::optional<ZstdChoice>& choice, Storage& storage, ZstdOptions& options);

// kInvalidArgument names the option that is wrong.
StatusOr<Rules> MakeRules(const Args& args);
// True if rules change tensors or leave some out.
bool HasRules(const Args& args);

// The quantized tensors of the operand, which was opened in any way; none if they contradict
// themselves or their configuration, or come through a pipe.
std::vector<QuantizedTensor> QuantizedIn(const Args& args, TensorSource& opened);

// True if --dtype without a pattern applies to the object: to floating point numbers, not to
// integers, scales, packed or complex types.
bool IsPlainFloat(const Object& object);

// Finds an element type, also by the names of torch and numpy: float16, half, bfloat16.
// kInvalidArgument lists the types.
StatusOr<ElementType> ParseTypeName(const std::string& text);

}  // namespace zt::cli::internal
