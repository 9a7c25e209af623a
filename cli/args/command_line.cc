// zt.cli:options — the command line: split into options and operands, checked against the table,
// stored in Args.
module;

#include <sys/stat.h>
#include <unistd.h>

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :options;
import :signals;
import :output;
import :rules;
import zt.remote;

namespace zt::cli {
namespace internal {
namespace {

// Commands and options of other programs, and their equivalents here.
struct Habit {
  std::string_view word, here;
};
constexpr Habit kCommandHabits[] = {
    {"ls", "inspect"},     {"list", "inspect"},      {"print", "show"},       {"info", "inspect"},
    {"test", "verify"},    {"check", "verify"},      {"compress", "convert"}, {"compare", "diff"},
    {"unpack", "extract"}, {"decompress", "extract"}};
constexpr Habit kOptionHabits[] = {{"-d", "'ztstream extract' writes tensors back"},
                                   {"-t", "'ztstream verify' checks a file"},
                                   {"-l", "'ztstream inspect' lists a file"},
                                   {"-c", "-o - is standard output"},
                                   {"-k", "inputs are always kept"},
                                   {"--keep", "inputs are always kept"},
                                   {"-V", "--version tells the versions"}};

const Command* FindCommand(std::string_view name) {
  const auto found = std::ranges::find(Commands(), name, &Command::name);
  return found == Commands().end() ? nullptr : &*found;
}

// The length of what is between the beginning and the end that two words share.
std::size_t Distance(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty() && a.front() == b.front()) {
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  while (!a.empty() && !b.empty() && a.back() == b.back()) {
    a.remove_suffix(1);
    b.remove_suffix(1);
  }
  return std::max(a.size(), b.size());
}

}  // namespace

std::string_view Nearest(std::string_view word, std::span<const std::string_view> known) {
  std::string_view best;
  std::size_t least = std::clamp<std::size_t>(word.size() / 3, 1, 3) + 1;
  for (const std::string_view each : known) {
    const bool begins = word.size() > 1 && each.starts_with(word);
    const std::size_t distance = begins ? 1 : Distance(word, each);
    if (distance < least) {
      least = distance;
      best = each;
    }
  }
  return best;
}

namespace {

// Text for a message: of a URL without its user name and its query, which may be secret.
std::string Shown(std::string_view text) {
  if (!IsUrl(text)) return std::string(text);
  text = text.substr(0, text.find('?'));
  const std::size_t host = text.find("://") + 3;
  const std::size_t at = text.substr(0, text.find('/', host)).rfind('@');
  const std::size_t shown = at == text.npos || at < host ? host : at + 1;
  return std::string(text.substr(0, host)) + std::string(text.substr(shown));
}

// An error that ends in a reference to --help. `command` may be null.
Status Refuse(const std::string& what, const Command* command) {
  return InvalidArgument(what + (what.ends_with('?') ? " See ztstream " : "; see ztstream ") +
                         (command == nullptr ? "" : std::string(command->name) + " ") + "--help");
}

Status RefuseCommand(std::string_view word) {
  std::vector<std::string_view> names;
  for (const Command& each : Commands()) names.push_back(each.name);
  if (word.empty()) return Refuse("a command is missing: " + Joined(names, "and"), nullptr);
  const auto habit = std::ranges::find(kCommandHabits, word, &Habit::word);
  const std::string_view meant =
      habit == std::end(kCommandHabits) ? Nearest(word, names) : habit->here;
  return Refuse("'" + Shown(word) + "' is not a command; " +
                    (meant.empty() ? "commands are " + Joined(names, "and")
                                   : "did you mean '" + std::string(meant) + "'?"),
                nullptr);
}

// The error for an option that `command` does not have; `command` is null if there is none yet.
Status RefuseOption(std::string_view word, const Command* command) {
  const std::string name(word.substr(0, word.find_first_of("=?:/")));
  std::string what = "'" + name + "' is not an option";
  if (command != nullptr) what += " of " + std::string(command->name);
  const bool level = word.size() < 4 && ParseNumber(word.substr(1));  // "-19", as gzip takes it
  if (level) return Refuse(what + "; levels are --zstd=" + name.substr(1), command);
  if (const auto habit = std::ranges::find(kOptionHabits, name, &Habit::word);
      habit != std::end(kOptionHabits)) {
    return Refuse(what + "; " + std::string(habit->here), command);
  }
  std::vector<std::string> spelt;
  std::vector<std::string_view> others;  // commands that have it
  for (const Option& option : Options()) {
    if (option.is_operand()) continue;
    if (command == nullptr || option.of(command->bit)) {
      spelt.push_back("--" + std::string(option.name));
    } else if (name == "--" + std::string(option.name) ||
               (option.letter != 0 && name == std::string{'-', option.letter})) {
      for (const Command& each : Commands()) {
        if (option.of(each.bit)) others.push_back(each.name);
      }
    }
  }
  if (command != nullptr && !others.empty())
    return Refuse(
        what + "; " + Joined(others, "and") + (others.size() == 1 ? " has it" : " have it"),
        command);
  return Refuse(what + DidYouMean(name, std::vector<std::string_view>(spelt.begin(), spelt.end())),
                command);
}

// ---- values -------------------------------------------------------------------------------------

// Parses the text of a value by the type of its member of Args, and stores it. Returns the problem,
// or an empty string.
struct StoreValue {
  const Option& option;
  const std::string& text;
  Args& args;

  std::string operator()(bool Args::* field) const { return Set<bool>(field, true, ""); }
  std::string operator()(std::string Args::* field) const {
    std::string word = text;
    if (option.words == "@files") return HideInto(word, args.*field);
    const std::vector<std::string_view> known = Words(option.words);
    if (!known.empty() && known[0][0] != '@') word = Lower(word);  // "PyTorch", "BF16"
    for (const std::string_view alias : Words(option.aliases)) {
      const std::size_t equals = alias.find('=');
      if (word == alias.substr(0, equals)) word = alias.substr(equals + 1);
    }
    args.*field = word;
    if (known.empty() || known[0][0] == '@' || std::ranges::find(known, word) != known.end())
      return "";
    return Quoted() + " is not " + Joined(known, "or") + DidYouMean(text, known);
  }
  std::string operator()(std::vector<std::string> Args::* field) const {
    std::string& word = (args.*field).emplace_back(text);
    return option.words == "@files" ? HideInto(text, word) : "";
  }
  std::string operator()(unsigned Args::* field) const {
    const std::uint64_t number = ParseNumber(text).value_or(~std::uint64_t{0});
    const bool fits = number >= option.least && number <= option.most;
    return Set(
        field, fits ? std::optional(static_cast<unsigned>(number)) : std::nullopt,
        "a number from " + std::to_string(option.least) + " to " + std::to_string(option.most));
  }
  std::string operator()(std::uint64_t Args::* field) const {
    const std::uint64_t bytes = ParseSize(text).value_or(0);
    if (bytes > 0 && bytes < option.least)
      return Quoted() + " is too small; the least is " + HumanBytes(option.least);
    return Set(field, bytes == 0 ? std::nullopt : std::optional(bytes),
               "a size, such as 4096, 64MiB or 1.5GB");
  }
  std::string operator()(double Args::* field) const {
    if (option.most == 0) {
      const auto number = ParseNumber<double>(text);
      const bool fits = number && *number >= 0 && std::isfinite(*number);
      return Set(field, fits ? number : std::nullopt, "a number of at least 0, such as 1e-5");
    }
    const auto number = ParseDecimal(text);
    const bool fits = number && *number >= -1e6 && *number <= static_cast<double>(option.most);
    return Set(field, fits ? number : std::nullopt,
               "a percentage up to " + std::to_string(option.most));
  }
  std::string operator()(std::optional<ElementType> Args::* field) const {
    const auto type = ParseTypeName(text);
    if (!type.ok()) return std::string(Message(type.status()));
    args.*field = *type;
    return "";
  }

 private:
  std::string Quoted() const { return "'" + Shown(text) + "'"; }
  // Stores a path. The query of a URL is kept apart, and sent.
  std::string HideInto(const std::string& word, std::string& path) const {
    auto shown = HideQuery(word, args.queries);
    if (!shown.ok()) return Message(shown.status());
    path = *std::move(shown);
    return "";
  }
  template <typename T>
  std::string Set(T Args::* field, std::optional<T> value, const std::string& what) const {
    if (value) args.*field = *value;
    return value ? "" : Quoted() + " is not " + what;
  }
};

// Parses and stores a value. Returns the problem, or an empty string.
std::string StoreWord(const Option& option, const std::string& text, Args& args) {
  // Such as "$UNSET": as a pattern it would mean all. `show` takes the name of one tensor.
  if (text.empty() && option.commands != kShow) return "the word is empty";
  return std::visit(StoreValue{option, text, args}, option.field);
}

std::string Spelt(const Option& option) {
  return option.is_operand() ? std::string(option.name) : "--" + std::string(option.name);
}

// ---- words --------------------------------------------------------------------------------------

struct Given {
  // A row of the table with that name, of any command.
  const Option* option;
  std::string word, value;
};

// The words of a command line, split into options and operands.
struct Line {
  std::vector<Given> options;
  std::vector<std::string> operands;  // the first is the command
  const Command* command() const {
    return operands.empty() ? nullptr : FindCommand(operands.front());
  }
};

// The row of an option by its name or letter, of any command: all rows with the same name take a
// value, or none of them does. Null if there is none.
const Option* FindOption(std::string_view name, char letter) {
  const auto found = std::ranges::find_if(Options(), [&](const Option& each) {
    return !each.is_operand() && (letter == 0 ? each.name == name : each.letter == letter);
  });
  return found == Options().end() ? nullptr : &*found;
}

StatusOr<Line> Scan(const std::vector<std::string>& words) {
  Line line;
  const Option* many = nullptr;  // the option that takes the following words
  bool only_operands = false;    // after "--"
  for (std::size_t at = 0; at < words.size(); ++at) {
    const std::string& word = words[at];
    if (word == "--" && !only_operands) {
      only_operands = true;
      many = nullptr;
      continue;
    }
    if (only_operands || word.size() < 2 || word[0] != '-') {
      std::error_code error;
      if (!only_operands && at > 0 && words[at - 1] == "--zstd" && ParseZstd(word) &&
          !std::filesystem::exists(word, error))
        return Refuse("--zstd takes its level after '=': --zstd=" + word, FindCommand("convert"));
      if (many == nullptr) line.operands.push_back(word);
      if (many != nullptr) line.options.push_back({many, word, word});
      continue;
    }
    const bool is_long = word[1] == '-';
    for (std::size_t begin = is_long ? 2 : 1, end; begin < word.size(); begin = end) {
      end = is_long ? std::min(word.find('='), word.size()) : begin + 1;
      const Option* const option =
          FindOption(word.substr(begin, end - begin), is_long ? '\0' : word[begin]);
      if (option == nullptr) {
        const bool unknown =
            !line.operands.empty() && line.operands.front() != "help" && line.command() == nullptr;
        return unknown ? RefuseCommand(line.operands.front()) : RefuseOption(word, line.command());
      }
      std::string value = "1";  // --zstd is --zstd=1
      if (option->is_flag()) {
        if (is_long && end < word.size())
          return Refuse(Spelt(*option) + " takes no value", line.command());
      } else if (end < word.size()) {
        value = word.substr(is_long ? end + 1 : end);
        end = word.size();
      } else if (!option->value.starts_with("[=")) {
        if (at + 1 == words.size())
          return Refuse(word + " needs a value, " + std::string(option->value), line.command());
        value = words[++at];
      }
      line.options.push_back({option, word, value});
      many = option->many() ? option : nullptr;
    }
  }
  return line;
}

// "OUT is missing: the .zt file, or - for standard output".
Status RefuseMissing(std::string_view what, const Option& option, const Command& command) {
  std::string help(option.help);
  help[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(help[0])));
  return Refuse(std::string(what) + " is missing: " + help, &command);
}

// Moves words from an option with several values to the operands if operands are missing: "verify
// --against SOURCE FILE".
void ReturnOperands(Line& line, const Command& command) {
  const auto needed = 1 + std::ranges::count_if(Options(), [&](const Option& each) {
                        return each.is_operand() && each.of(command.bit) && each.name[0] != '[';
                      });
  std::vector<std::string> returned;
  while (std::ssize(line.operands) + std::ssize(returned) < needed && line.options.size() > 1) {
    const Given& last = line.options.back();
    if (!last.option->many() || line.options[line.options.size() - 2].option != last.option) break;
    returned.insert(returned.begin(), last.value);
    line.options.pop_back();
  }
  line.operands.insert(line.operands.end(), returned.begin(), returned.end());
}

// Stores the operands by the rows of the command, in turn.
Status StoreOperands(const Line& line, const Command& command, Args& args) {
  auto next = line.operands.begin() + 1;
  std::vector<std::string_view> rows;
  for (const Option& option : Options()) {
    if (!option.is_operand() || !option.of(command.bit)) continue;
    const std::string_view name = option.name.substr(0, option.name.find('.'));
    rows.push_back(name);
    if (next == line.operands.end() && !name.starts_with('['))
      return RefuseMissing(name, option, command);
    for (bool more = true; more && next != line.operands.end(); more = option.many()) {
      const std::string where =
          next->empty() ? std::string(name.substr(name.starts_with('['))) + ": " : "";
      const std::string wrong = StoreWord(option, *next++, args);
      if (!wrong.empty()) return Refuse(where + wrong, &command);
    }
  }
  if (next == line.operands.end()) return OkStatus();
  return Refuse("unexpected argument '" + Shown(*next) + "': " + std::string(command.name) +
                    " takes " + (rows.size() == 1 ? "one " : "") + Joined(rows, "and"),
                &command);
}

Status StoreOptions(const Line& line, const Command& command, Args& args) {
  std::set<const Option*> given;
  for (const auto& [named, word, value] : line.options) {
    const auto option = std::ranges::find_if(Options(), [&](const Option& each) {
      return each.name == named->name && (each.of(command.bit) || each.commands == kProgram);
    });
    if (option == Options().end()) return RefuseOption(word, &command);
    if (!given.insert(&*option).second && !option->is_flag() && !option->is_list())
      return Refuse(Spelt(*option) + " is given twice", &command);
    const std::string wrong = StoreWord(*option, value, args);
    if (!wrong.empty()) return Refuse(Spelt(*option) + ": " + wrong, &command);
  }
  const auto is_given = [&](std::string_view name) {
    const auto begins = [&](const std::string& word) { return word.starts_with(name); };
    if (name.ends_with('/'))
      return std::ranges::any_of(line.operands, begins) ||
             std::ranges::any_of(line.options, begins, &Given::value);
    return std::ranges::any_of(given, [&](const Option* each) { return each->name == name; });
  };
  for (const auto& [commands, options, others] : Needs()) {
    const std::vector<std::string_view> needed = Words(others), needing = Words(options);
    const auto option = std::ranges::find_if(needing, is_given);
    if ((commands & command.bit) == 0 || option == needing.end() ||
        std::ranges::any_of(needed, is_given))
      continue;
    std::vector<std::string> spelt;
    for (const std::string_view each : needed)
      spelt.push_back((each.ends_with('/') ? "a path on " : "--") + std::string(each));
    return Refuse("--" + std::string(*option) + " does nothing without " +
                      Joined(std::vector<std::string_view>(spelt.begin(), spelt.end()), "or"),
                  &command);
  }
  for (const auto& [commands, option, others, why] : Conflicts()) {
    const std::vector<std::string_view> excluded = Words(others);
    const auto other = std::ranges::find_if(excluded, is_given);
    if ((commands & command.bit) == 0 || !is_given(option) || other == excluded.end()) continue;
    return Refuse("--" + std::string(option) + " " + std::string(why) + "; leave it or --" +
                      std::string(*other) + " out",
                  &command);
  }
  if ((args.part_bytes != 0 || args.resume) && !args.output.starts_with("s3://")) {
    return Refuse(std::string(args.resume ? "--resume" : "--part-size") +
                      " does nothing: the output is not on s3://",
                  &command);
  }
  for (const Option& option : Options()) {
    if (option.name == "output" && option.of(command.bit) && args.output.empty() &&
        !(args.dry_run && command.bit == kConvert) && !args.missing)
      return RefuseMissing("-o OUT", option, command);
  }
  return OkStatus();
}

}  // namespace

std::optional<double> ParseDecimal(std::string_view text) {
  const auto value = ParseNumber<double>(text);
  const bool plain = text.find_first_of("eE") == text.npos && value && std::isfinite(*value);
  return plain ? value : std::nullopt;
}

std::optional<std::uint64_t> ParseSize(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, digits);
  const std::string unit =
      Lower(text.substr(std::min(text.find_first_not_of(' ', digits), text.size())));
  std::uint64_t factor = 1;
  if (!unit.empty() && unit != "b") {
    const std::size_t power = std::string_view("kmgt").find(unit[0]);
    if (power == std::string_view::npos) return std::nullopt;
    const std::string_view rest = std::string_view(unit).substr(1);
    if (!rest.empty() && rest != "ib" && rest != "b") return std::nullopt;
    for (std::size_t i = 0; i <= power; ++i) factor *= rest == "b" ? 1000 : 1024;
  }
  if (const auto whole = ParseNumber(number)) return CheckedMul(*whole, factor);
  const auto fraction = ParseDecimal(number);
  if (!fraction || *fraction * static_cast<double>(factor) >= 0x1p64) return std::nullopt;
  return static_cast<std::uint64_t>(*fraction * static_cast<double>(factor));
}

std::optional<ZstdChoice> ParseZstd(std::string_view text) {
  if (text == "huffman") return ZstdChoice{.huffman = true};
  // `huffman` is for the components that planes do not suit: integers and bools.
  if (text == "planes") return ZstdChoice{.huffman = true, .planes = true};
  const auto level = ParseNumber<int>(text);
  return level ? std::optional(ZstdChoice{.level = *level}) : std::nullopt;
}

std::string DidYouMean(std::string_view word, std::span<const std::string_view> known) {
  const std::string_view nearest = Nearest(word, known);
  return nearest.empty() ? "" : "; did you mean " + std::string(nearest) + "?";
}

// True for "-", for the names that systems give standard output, and for other paths that lead to
// the pipe, socket or terminal that it is.
bool IsStandardOutput(const std::string& path) {
  for (const std::string_view name : {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
    if (path == name) return true;
  }
  struct stat named, standard;
  if (::stat(path.c_str(), &named) != 0 || ::fstat(STDOUT_FILENO, &standard) != 0) return false;
  const bool shared =
      S_ISFIFO(standard.st_mode) || S_ISSOCK(standard.st_mode) || ::isatty(STDOUT_FILENO) != 0;
  return shared && named.st_dev == standard.st_dev && named.st_ino == standard.st_ino;
}

// True if -o names standard output, whatever else is wrong with the words.
bool OutputIsStandard(std::span<const std::string> words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const bool apart = word == "-o" || word == "--output";
    const std::string_view value = apart && i + 1 < words.size()   ? std::string_view(words[i + 1])
                                   : word.starts_with("--output=") ? word.substr(9)
                                   : word.starts_with("-o")        ? word.substr(2)
                                                                   : "";
    if (IsStandardOutput(std::string(value))) return true;
  }
  return false;
}

Status Parse(const std::vector<std::string>& words, Args& args) {
  args.json = std::ranges::find(words, "--json") != words.end();
  args.product_on_output = OutputIsStandard(words);
  if (!words.empty() && !words.front().starts_with('-')) args.command = Shown(words.front());
  ZT_ASSIGN_OR_RETURN(Line line, Scan(words));
  for (const Given& each : line.options) {
    args.version = args.version || each.option->name == "version";
    args.help = args.help || each.option->name == "help";
  }
  if (!line.operands.empty() && line.operands.front() == "help") {
    args.help = true;
    line.operands.erase(line.operands.begin());
  }
  args.command = line.operands.empty() ? "" : Shown(line.operands.front());
  if (args.version || (args.help && line.operands.empty())) return OkStatus();
  const Command* const command = line.command();
  if (command == nullptr) return RefuseCommand(args.command);
  if (args.help) return OkStatus();
  ReturnOperands(line, *command);
  const bool json = std::exchange(args.json, false);
  Status stored = StoreOptions(line, *command, args);
  if (stored.ok()) stored = StoreOperands(line, *command, args);
  if (!stored.ok()) {
    args.json = json;
    return stored;
  }
  if (!args.include_from.empty()) ZT_RETURN_IF_ERROR(ReadLines(args.include_from, args.include));
  if (args.spec.empty()) args.spec = args.canonical ? "2.0" : "1.2";
  if (args.digest.empty() && command->bit == kId) args.digest = "sha256";
  args.left_out = std::make_shared<std::vector<LeftOut>>();
  args.used_bases = std::make_shared<std::vector<std::string>>();
  args.product_on_output = IsStandardOutput(args.output);
  if (args.product_on_output) args.output = "-";
  return OkStatus();
}

}  // namespace internal

using namespace internal;

namespace {

// The files of this run, by path or URL.
std::shared_ptr<Store> StoreOf(const Args& args) {
  RemoteOptions options;
  options.no_sign_request = args.no_sign_request;
  options.part_bytes = args.part_bytes;
  options.resume = args.resume;
  options.s3_headers = args.s3_headers;
  options.profile = args.profile;
  options.region = args.region;
  options.endpoint_url = args.endpoint_url;
  if (args.memory != 0) options.read_ahead = args.memory;
  if (!args.quiet) options.warn = [](const std::string& line) { Warn(line); };
  options.queries = args.queries;
  return MakeRemoteStore(std::move(options));
}

int RunParsed(const Args& args) {
  WriteNoCore(args);
  if (args.version) return Done(args, Print(VersionText(args)));
  const Command* const command = FindCommand(args.command);
  if (args.help) return Done(args, Print(args.json ? HelpJson(args) : HelpText(command)));
  const int status = command->run(args);
  std::vector<std::string> unused;
  const bool makes_delta = command->bit == kConvert && args.to != "safetensors";
  if (!makes_delta && !args.base.empty() && args.used_bases->empty())
    unused.emplace_back("--base: no input is a delta");
  const auto has_variants = [&](const std::string& input) {
    std::error_code error;
    return IsUrl(input) || std::filesystem::is_directory(input, error);
  };
  if (!args.variant.empty() && std::ranges::none_of(args.inputs, has_variants) &&
      std::ranges::none_of(args.against, has_variants))
    unused.emplace_back("--variant: no input is a folder");
  if (status <= 1) WarnAll(args, unused);
  return status;
}

}  // namespace

int Run(const std::vector<std::string>& words) {
  Args args;
  if (const Status parsed = Parse(words, args); !parsed.ok()) return Fail(args, parsed);
  args.store = StoreOf(args);
  SetCommon(args);
  try {
    return RunParsed(args);
  } catch (const std::bad_alloc&) {
    return Fail(args, IoError("out of memory"));
  }
}

}  // namespace zt::cli
