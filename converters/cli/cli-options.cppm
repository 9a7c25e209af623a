// zt.cli:options — the shape of the one table of commands and options: parsing, --help, the man page and the
// completions come from it. Internal.
module zt.cli:options;

import zt.std;
import :args;

namespace zt::cli::internal {

// The commands. Each returns the program's exit status and has printed its error.
int RunConvert(const Args& args);
int RunJoin(const Args& args);
int RunInspect(const Args& args);
int RunVerify(const Args& args);
int RunExtract(const Args& args);
int RunDiff(const Args& args);
int RunId(const Args& args);
int RunBench(const Args& args);

// A command, as a bit: a row of the table names all commands that have its option.
enum CommandBit : unsigned {
  kConvert = 1,
  kJoin = 2,
  kInspect = 4,
  kVerify = 8,
  kExtract = 16,
  kDiff = 32,
  kId = 64,
  kBench = 128,
  kEvery = 255,
  kProgram = 0,  // the program's own, and taken with any command
};

struct Command {
  CommandBit bit;
  std::string_view name, does;
  int (*run)(const Args&);
};

// Where the value is kept. The type says how its text is checked: bool is a flag, a vector may be given several times.
using Field = std::variant<bool Args::*, std::string Args::*, std::vector<std::string> Args::*,
                           unsigned Args::*, std::uint64_t Args::*, double Args::*,
                           std::optional<ZstdChoice> Args::*, std::optional<ElementType> Args::*>;

// An option, or an operand of a command: then it has neither letter nor group, and a name such as "INPUT...", or
// "[NAME...]" where it may be left out.
struct Option {
  // CommandBits.
  unsigned commands;
  // Of "-o", or 0.
  char letter;
  std::string_view name;
  // What stands for the value in --help: "OUT"; "[=LEVEL]" where it may be left out.
  std::string_view value;
  // The heading in --help.
  std::string_view group;
  Field field;
  std::string_view help;
  // What holds where the option is not given, in words.
  std::string_view initial = "";
  // All values of a text; of other types examples; or "@files", "@folders", "@tensors".
  std::string_view words = "";
  // Other words that are understood: "pt=torch pth=torch".
  std::string_view aliases = "";
  // The limits of a number; of a size the least alone.
  std::uint64_t least = 0, most = 0;

  bool is_operand() const { return letter == 0 && group.empty(); }
  bool is_flag() const { return std::holds_alternative<bool Args::*>(field); }
  bool is_list() const { return std::holds_alternative<std::vector<std::string> Args::*>(field); }
  bool many() const { return value.ends_with("...") || name.find("...") != name.npos; }
  bool of(CommandBit command) const { return (commands & command) != 0; }
};

std::span<const Command> Commands();
// In the order of --help.
std::span<const Option> Options();
// "a", "b" for "a b".
std::vector<std::string_view> Words(std::string_view text);

// "; did you mean WORD?", of the nearest of the words that are known; empty where none is near.
std::string DidYouMean(std::string_view word, std::span<const std::string_view> known);

// What --help prints of one command, or null for the program, as wide as the terminal.
std::string HelpText(const Command* command);
// The table as JSON.
std::string HelpJson(const Args& args);
// What --version prints.
std::string VersionText();

}  // namespace zt::cli::internal
