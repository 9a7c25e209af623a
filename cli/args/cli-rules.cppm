// zt.cli:rules — which tensors the words of a command line select, and what --include, --exclude,
// --rename, --dtype, --dequantize, --zstd, --set and --unset make of a plan. Internal.
module zt.cli:rules;

import zt.std;
import :args;
import zt.convert.composite;

namespace zt::cli::internal {

// The names of the source's tensors, sorted. The source must outlive them.
std::vector<std::string_view> NamesOf(const TensorSource& source);

// The end of an error about a word that means no tensor: "; did you mean 'NAME'?" with a similar
// one of `names`, else where they are listed.
std::string MeantOrListed(std::string_view word, std::span<const std::string_view> names);

// Appends to `words` each line of a file or of standard input; what ends in NUL, if one is there.
Status ReadLines(const std::string& path, std::vector<std::string>& words);

// A word that selects tensors, in every command as the first of these kinds that applies:
//   - the name of a tensor: that tensor
//   - "glob:" and a shell pattern: tensors whose whole name matches
//   - a regular expression (RE2): tensors with a match anywhere in the name
// Call Resolve before Matches. Copies share their state.
class Pattern {
 public:
  // `option` is the option of the word, "--include"; empty for an operand.
  Pattern(std::string option, std::string word);
  // `names` are those of all tensors, sorted. kInvalidArgument if the word is none of the three, or
  // a shell pattern that matches every name as a regular expression.
  Status Resolve(std::span<const std::string_view> names);
  bool Matches(std::string_view name) const;

  // "--include 'norm'", as it was typed.
  const std::string& text() const { return text_; }
  // "; did you mean 'NAME'?" if it is like a name and matches none; else empty.
  const std::string& meant() const;
  // A warning if the word may be meant as a shell pattern, which would match fewer tensors; else
  // empty.
  std::string warning() const;
  // The exact name, or empty if the word is a pattern.
  std::string_view name() const;

 private:
  struct State;
  std::string text_;
  std::shared_ptr<State> state_;
};

// The words of one option, or operands. Counts what each has matched.
class Patterns {
 public:
  explicit Patterns(const std::string& option, std::span<const std::string> words);
  bool empty() const { return uses_.empty(); }
  // See Pattern.
  Status Resolve(std::span<const std::string_view> names);
  bool Match(std::string_view name);

  struct Use {
    Pattern pattern;
    std::uint64_t tensors = 0;
    std::string first = "";  // of them
  };
  // In the order of the words.
  const std::vector<Use>& uses() const { return uses_; }

 private:
  std::vector<Use> uses_;
  std::map<std::string, std::size_t, std::less<>> named_;  // of uses_, those that are names
  std::vector<std::size_t> others_;
};

// --include and --exclude: the tensors selected by an included word, or all, without those selected
// by an excluded word. Does not apply to files of the model.
class Selector {
 public:
  explicit Selector(const Args& args);
  // True if it may leave out tensors.
  bool active() const { return !include_.empty() || !exclude_.empty(); }
  // See Pattern.
  Status Resolve(std::span<const std::string_view> names);
  // Counts the tensor for each word that means it.
  bool Selects(std::string_view name);
  // True if it was asked for tensors and selected none of them.
  bool left_none() const { return asked_ > 0 && selected_ == 0; }
  // kInvalidArgument of the file if left_none(). A model without tensors has none to leave.
  Status CheckAnyLeft(const std::string& file) const;

  // A line for each word that may be wrong: it matched no tensor, or more than a shell pattern
  // would.
  std::vector<std::string> Warnings() const;
  // "--include 'norm': 12 tensors", a line for each word.
  std::vector<std::string> Uses() const;

 private:
  Patterns include_, exclude_;
  std::uint64_t asked_ = 0, selected_ = 0;  // tensors
};

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
// themselves or come through a pipe, and with a warning if their configuration is wrong. kUnavailable
// if that cannot be read.
StatusOr<std::vector<QuantizedTensor>> QuantizedIn(const Args& args, TensorSource& opened);

// True if --dtype without a pattern applies to the object: to floating point numbers, not to
// integers, scales, packed or complex types.
bool IsPlainFloat(const Object& object);

// Finds an element type, also by the names of torch and numpy: float16, half, bfloat16.
// kInvalidArgument lists the types.
StatusOr<ElementType> ParseTypeName(const std::string& text);

}  // namespace zt::cli::internal
