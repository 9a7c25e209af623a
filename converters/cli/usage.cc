// ztstream — arranging the words of a command line, and explaining those that are not understood.
#include "cli/usage.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

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

bool IsLevel(const std::string& word) {
  const std::size_t sign = word.starts_with('-') ? 1 : 0;
  return word == "huffman" || word == "planes" ||
         (word.size() > sign &&
          std::all_of(word.begin() + static_cast<std::ptrdiff_t>(sign), word.end(),
                      [](char c) { return c >= '0' && c <= '9'; }));
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
    const std::string meant = Nearest(words[first], Commands(app));
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
    if (words[i] != "--zstd") continue;
    // Its level comes after '=' only, so that a bare --zstd never swallows an input.
    if (i + 1 < words.size() && IsLevel(words[i + 1]) &&
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
    const std::string meant = Nearest(name, LongOptions(command));
    return "'" + name + "' is not an option" + (parsed.empty() ? "" : " of " + command.get_name()) +
           (meant.empty() ? "; see " + help : "; did you mean " + meant + "? See " + help);
  }
  if (parsed.empty()) return "a command is missing: " + JoinedCommands(app) + "; see " + help;
  std::string what = error.what();
  std::ranges::replace(what, '\n', ' ');
  return what + "; see " + help;
}

}  // namespace zt::cli
