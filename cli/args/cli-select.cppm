// zt.cli:select — selects tensors by the words of a command line. Internal.
module zt.cli:select;

import zt.std;
import :args;

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

}  // namespace zt::cli::internal
