// zt.cli:options — the structure of the table of commands and options, from which the parser,
// --help, the man page and the completions are made. Internal.
module zt.cli:options;

import zt.std;
import :args;

namespace zt::cli::internal {

// The commands. Each prints its errors and returns the exit status of the program.
int RunConvert(const Args& args);
int RunJoin(const Args& args);
int RunInspect(const Args& args);
int RunVerify(const Args& args);
int RunExtract(const Args& args);
int RunDiff(const Args& args);
int RunId(const Args& args);
int RunApply(const Args& args);
int RunShow(const Args& args);

// A bit for each command: an option names all commands that have it.
enum CommandBit : unsigned {
  kConvert = 1,
  kJoin = 2,
  kInspect = 4,
  kVerify = 8,
  kExtract = 16,
  kDiff = 32,
  kId = 64,
  kShow = 128,
  kApply = 256,
  kEvery = 2 * kApply - 1,  // kApply is the last
  // For options of the program itself, which every command accepts.
  kProgram = 0,
};

struct Command {
  CommandBit bit;
  std::string_view name, does;
  int (*run)(const Args&);
};

// The member of Args that holds the value. Its type decides how the text is checked: a bool is a
// flag, and a vector may be given several times.
using Field = std::variant<bool Args::*, std::string Args::*, std::vector<std::string> Args::*,
                           unsigned Args::*, std::uint64_t Args::*, double Args::*,
                           std::optional<ElementType> Args::*>;

// An option or an operand. An operand has neither letter nor group; its name is such as "INPUT...",
// or "[NAME...]" if it is optional.
struct Option {
  // The CommandBits of the commands that have it.
  unsigned commands;
  // 'o' for "-o", or 0.
  char letter;
  std::string_view name;
  // The placeholder for the value in --help: "OUT", or "[=LEVEL]" if the value is optional.
  std::string_view value;
  // The heading in --help.
  std::string_view group;
  Field field;
  std::string_view help;
  // The default, in words.
  std::string_view initial = "";
  // For a string, all its values; for other types, examples; or "@files", "@tensors".
  std::string_view words = "";
  // Synonyms of values: "pt=torch pth=torch".
  std::string_view aliases = "";
  // The limits of a number; a size has only the lower one, a percentage only the upper one, other
  // fractions have none.
  std::uint64_t least = 0, most = 0;

  bool is_operand() const { return letter == 0 && group.empty(); }
  bool is_flag() const { return std::holds_alternative<bool Args::*>(field); }
  bool is_list() const { return std::holds_alternative<std::vector<std::string> Args::*>(field); }
  bool many() const { return value.ends_with("...") || name.find("...") != name.npos; }
  bool of(CommandBit command) const { return (commands & command) != 0; }
};

// Options that do nothing without one of others, or without a path that begins as "s3://".
struct Need {
  unsigned commands;
  std::string_view options, others;
};

// An option that excludes others, and why: "--names prints nothing else".
struct Conflict {
  unsigned commands;
  std::string_view option, others, why;
};

std::span<const Command> Commands();
// In the order of --help.
std::span<const Option> Options();
std::span<const Need> Needs();
std::span<const Conflict> Conflicts();

// The most similar known word; empty if none is similar.
std::string_view Nearest(std::string_view word, std::span<const std::string_view> known);
// "; did you mean WORD?" with the most similar known word; empty if none is similar.
std::string DidYouMean(std::string_view word, std::span<const std::string_view> known);

// The text of --help for a command, or for the program if null, wrapped at the width of the
// terminal.
std::string HelpText(const Command* command);
// The table as JSON.
std::string HelpJson(const Args& args);
// The result of --version, as text or JSON.
std::string VersionText(const Args& args);

}  // namespace zt::cli::internal
