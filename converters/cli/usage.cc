// ztstream — arranging the words of a command line, and explaining those that are not understood.
#include "cli/usage.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

import zt.cli;

namespace zt::cli {
namespace {

// Insertions, deletions and replacements of characters, and swaps of neighbours, that lead from one to the other.
std::size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> rows(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        rows[i][j] = i + j;
        continue;
      }
      const bool same = a[i - 1] == b[j - 1];
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + !same});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
    }
  }
  return rows[a.size()][b.size()];
}

// The nearest of `known`, or empty where none is near.
std::string Nearest(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t least = std::max<std::size_t>(word.size() / 3, 1) + 1;
  if (word.size() > 40) return best;
  for (const std::string& each : known) {
    if (each == "--help" && Distance(word, each) > 1) continue;  // it is near to anything
    const bool begins = word.size() > 2 && each.starts_with(word);
    const std::size_t distance = begins ? 1 : Distance(word, each);
    if (distance < least) {
      least = distance;
      best = each;
    }
  }
  return best;
}

std::vector<std::string> Commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands({})) names.push_back(each->get_name());
  return names;
}

std::vector<std::string> LongOptions(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* each : command.get_options()) {
    for (const std::string& name : each->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// True where some command has an option of this name that takes the next word.
bool TakesValue(const CLI::App& app, const std::string& word) {
  for (const CLI::App* command : app.get_subcommands({})) {
    const CLI::Option* option = command->get_option_no_throw(word);
    if (option != nullptr) return option->get_items_expected_min() > 0;
  }
  return false;
}

bool IsCommand(const CLI::App& app, const std::string& word) {
  const std::vector<std::string> names = Commands(app);
  return std::ranges::find(names, word) != names.end();
}

// What other programs call a thing, and where it is here.
struct Habit {
  std::string_view word, here;
};
constexpr Habit kCommandHabits[] = {
    {"ls", "inspect"},     {"list", "inspect"},      {"show", "inspect"},     {"info", "inspect"},
    {"test", "verify"},    {"check", "verify"},      {"compress", "convert"}, {"compare", "diff"},
    {"unpack", "extract"}, {"decompress", "extract"}};
constexpr Habit kOptionHabits[] = {{"-d", "'ztstream extract' writes tensors back"},
                                   {"-t", "'ztstream verify' checks a file"},
                                   {"-l", "'ztstream inspect' lists a file"},
                                   {"-c", "-o - is standard output"},
                                   {"-k", "inputs are always kept"},
                                   {"--keep", "inputs are always kept"},
                                   {"-V", "--version tells the versions"}};

std::string_view FindHabit(std::span<const Habit> habits, std::string_view word) {
  const auto found = std::ranges::find(habits, word, &Habit::word);
  return found == habits.end() ? "" : found->here;
}

// "-19", as gzip and zstd take a level.
bool IsBareLevel(std::string_view word) {
  return word.size() > 1 && word.size() < 4 && word.front() == '-' &&
         std::all_of(word.begin() + 1, word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// What is said of an option that is meant as in other programs; empty where it is not known.
std::string OptionHabit(std::string_view word) {
  if (IsBareLevel(word)) return "levels are --zstd=" + std::string(word.substr(1));
  return std::string(FindHabit(kOptionHabits, word));
}

// "convert has it", of an option that `command` does not have; empty where none has.
std::string ElsewhereText(const CLI::App& app, const CLI::App& command, const std::string& option) {
  std::string names;
  std::size_t count = 0;
  for (const CLI::App* each : app.get_subcommands({})) {
    if (each == &command || each->get_option_no_throw(option) == nullptr) continue;
    names += (names.empty() ? "" : ", ") + each->get_name();
    ++count;
  }
  return names.empty() ? "" : names + (count == 1 ? " has it" : " have it");
}

// "'b' is one too many: inspect takes one FILE".
std::string TooManyText(const CLI::App& command, const std::string& word) {
  std::string names;
  std::size_t count = 0;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) names += (count++ == 0 ? "" : " and ") + option->get_name();
  }
  return "'" + word + "' is one too many: " + command.get_name() + " takes " +
         (count == 1 ? "one " : "") + names;
}

std::string JoinedCommands(const CLI::App& app) {
  std::string out;
  for (const std::string& name : Commands(app)) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace

Words Arrange(const CLI::App& app, std::vector<std::string> words) {
  std::size_t first = 0;
  while (first < words.size() && words[first].starts_with('-') && words[first] != "--")
    first += TakesValue(app, words[first]) ? 2 : 1;
  if (first < words.size() && words[first] == "help") {
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(first));
    words.push_back("--help");
  }
  if (first < words.size() && words[first].starts_with('-')) first = words.size();
  if (first < words.size() && !IsCommand(app, words[first])) {
    for (std::size_t i = 0; i < first; ++i) {
      if (const std::string habit = OptionHabit(words[i]); !habit.empty())
        return {{}, "'" + words[i] + "' is not an option; " + habit + "; see ztstream --help"};
    }
    std::string meant(FindHabit(kCommandHabits, words[first]));
    if (meant.empty()) meant = Nearest(words[first], Commands(app));
    return {{},
            "'" + words[first] + "' is not a command; " +
                (meant.empty() ? "commands are " + JoinedCommands(app)
                               : "did you mean '" + meant + "'?") +
                (meant.empty() ? "; see ztstream --help" : " See ztstream --help")};
  }
  if (first < words.size()) {
    std::rotate(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(first),
                words.begin() + static_cast<std::ptrdiff_t>(first) + 1);
  }
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (words[i] == "--version") return {{"--version"}, ""};
    // CLI11 takes a negative number for a file.
    if (i > 0 && IsBareLevel(words[i]) && !TakesValue(app, words[i - 1]) &&
        ::access(words[i].c_str(), F_OK) != 0) {
      return {{},
              "'" + words[i] + "' is not an option; " + OptionHabit(words[i]) + "; see ztstream " +
                  words.front() + " --help"};
    }
    if (words[i] != "--zstd") continue;
    // Its level comes after '=' only, so that a bare --zstd never swallows an input.
    if (i + 1 < words.size() && ParseZstd(words[i + 1]) &&
        ::access(words[i + 1].c_str(), F_OK) != 0) {
      return {{},
              "--zstd takes its level after '=': --zstd=" + words[i + 1] +
                  "; see ztstream convert --help"};
    }
    words[i] = "--zstd=1";
  }
  return {std::move(words), ""};
}

std::string Explain(const CLI::App& app, const CLI::ParseError& error) {
  const auto parsed = app.get_subcommands();
  const CLI::App& command = parsed.empty() ? app : *parsed.front();
  const std::string help =
      parsed.empty() ? "ztstream --help" : "ztstream " + command.get_name() + " --help";
  for (const std::string& word : app.remaining(true)) {
    if (!word.starts_with('-') || word == "-") continue;
    const std::string name = word.substr(0, word.find('='));
    const std::string what =
        "'" + name + "' is not an option" + (parsed.empty() ? "" : " of " + command.get_name());
    std::string hint = OptionHabit(name);
    if (hint.empty() && !parsed.empty()) hint = ElsewhereText(app, command, name);
    if (!hint.empty()) return what + "; " + hint + "; see " + help;
    const std::string meant = Nearest(name, LongOptions(command));
    return what + (meant.empty() ? "; see " + help : "; did you mean " + meant + "? See " + help);
  }
  if (parsed.empty()) return "a command is missing: " + JoinedCommands(app) + "; see " + help;
  std::string what = error.what();
  std::ranges::replace(what, '\n', ' ');
  constexpr std::string_view kExtra = "not expected: ";
  if (const auto at = what.find(kExtra); at != what.npos)
    return TooManyText(command, what.substr(at + kExtra.size())) + "; see " + help;
  return what + "; see " + help;
}

}  // namespace zt::cli
