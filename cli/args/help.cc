// zt.cli:options — the table as text for --help and as JSON; the text of --version.
module;

#include <unistd.h>

#include "cli/args/versions.h"

module zt.cli;

import zt.std;
import :options;
import :output;
import zt.convert.hdf5;

namespace zt::cli::internal {
namespace {

constexpr std::string_view kCommon = "Every command";

// For a sentence: "safetensors, npy and .zt".
std::string FormatNames() {
  std::string out;
  for (const Format& format : Formats()) {
    if (format.name == "zt") continue;
    out += std::string(format.title.substr(0, format.title.find(" 1 to "))) + ", ";
  }
  return out.substr(0, out.size() - 2) + " and .zt";
}

// The formats with their versions, for --version.
std::string FormatTitles() {
  std::string out(FindFormat("zt")->title);
  for (const Format& format : Formats()) {
    if (format.name == "zt") continue;
    out += (out.find(';') == out.npos ? "; " : ", ") + std::string(format.title);
    if (format.name == "hdf5" && !ReadsHdf5()) out += " (not in this build)";
  }
  return out;
}

// Appends the words of `text` in lines of at most `columns`; lines after the first are indented by
// `indent` blanks.
void Fill(std::string& out, std::string_view text, std::size_t indent, std::size_t columns) {
  std::size_t used = out.size() - (out.rfind('\n') + 1);
  for (const std::string_view word : Words(text)) {
    if (used > indent && used + word.size() > columns) {
      out.erase(out.find_last_not_of(' ') + 1);
      out += "\n" + std::string(indent, ' ');
      used = indent;
    }
    out += std::string(word) + " ";
    used += word.size() + 1;
  }
  out.back() = '\n';
}

std::string Row(std::string row, std::string_view text, std::size_t columns) {
  constexpr std::size_t kLeft = 24;
  row.insert(0, "  ");
  row.resize(std::max(row.size() + 2, kLeft), ' ');
  Fill(row, text, kLeft, columns);
  return row;
}

std::string OptionRow(const Option& option, std::size_t columns) {
  std::string left = option.letter == 0 ? "" : std::string{'-', option.letter, ','};
  left += (option.is_operand() ? "" : "--") + std::string(option.name);
  if (!option.value.empty() && !option.value.starts_with("[=")) left += ' ';
  left += option.value;
  std::string right(option.help);
  if (!option.initial.empty()) right += " [" + std::string(option.initial) + "]";
  return Row(left, right, columns);
}

std::string ProgramHelp(std::size_t columns) {
  std::string out;
  Fill(out, "Usage: ztstream COMMAND ...; ztstream COMMAND --help lists its options", 0, columns);
  Fill(out, "Streams " + FormatNames() + " to .zt.", 0, columns);
  out += "Commands:\n";
  for (const Command& command : Commands())
    out += Row(std::string(command.name), command.does, columns);
  out += "\n" + std::string(kCommon) + ":\n";
  for (const Option& option : Options()) {
    if (option.group == kCommon) out += OptionRow(option, columns);
  }
  Fill(out,
       "Exit status: 0 done, 1 differs, 2 usage, 3 output exists, 4 input invalid, 5 unsupported, "
       "6 I/O, 7 number does not fit, 130 interrupted. More: man ztstream",
       0, columns);
  return out;
}

}  // namespace

std::string HelpText(const Command* command) {
  const std::size_t columns = std::clamp<std::size_t>(TerminalColumns(STDOUT_FILENO, 80), 60, 100);
  if (command == nullptr) return ProgramHelp(columns);
  std::string usage = "Usage: ztstream " + std::string(command->name) + " [OPTION]...", rows;
  std::string_view group;
  for (const Option& option : Options()) {
    if (!option.of(command->bit) || option.group == kCommon) continue;
    if (option.is_operand()) usage += " " + std::string(option.name);
    if (option.name == "output") usage += " -o " + std::string(option.value);
    if (option.group != group) rows += std::string(option.group) + ":\n";
    group = option.group;
    rows += OptionRow(option, columns);
  }
  std::string out;
  Fill(out, usage, 4, columns);
  Fill(out, std::string(command->does) + ".", 0, columns);
  out += "\n" + rows + "\n";
  std::string also;
  for (const Option& option : Options()) {
    if (option.group != kCommon || !option.of(command->bit) || option.name == "help") continue;
    also += also.empty() ? "Also " : ", ";
    also += option.letter ? std::string{'-', option.letter} : "--" + std::string(option.name);
    if (!option.value.empty()) also += " " + std::string(option.value);
  }
  Fill(out, also + ": see ztstream --help.", 0, columns);
  return out;
}

std::string HelpJson(const Args& args) {
  Json json = Envelope(args, true);
  for (const Command& command : Commands())
    json["commands"].push_back({{"name", command.name}, {"does", command.does}});
  for (const Option& option : Options()) {
    Json commands = Json::array();
    for (const Command& command : Commands()) {
      if (option.of(command.bit)) commands.push_back(command.name);
    }
    json["options"].push_back(
        {{"commands", std::move(commands)},
         {"letter", option.letter == 0 ? "" : std::string(1, option.letter)},
         {"name", option.name},
         {"operand", option.is_operand()},
         {"value", option.value},
         {"group", option.group},
         {"help", option.help},
         {"default", option.initial},
         {"words", Words(option.words)},
         {"repeatable", option.many() || (option.is_list() && !option.is_operand())}});
  }
  return Dump(json);
}

std::string VersionText(const Args& args) {
  const std::string packages =
      "zstd " + std::string(ZstdVersion()) + ", Highway " + std::string(HighwayVersion());
  Json json = Envelope(args, true);
  json["version"] = ZT_VERSION;
  json["writes"] = "zTensor 2.0, 1.2.0, 1.1.0, 0.1.0";
  json["reads"] = FormatTitles();
  json["packages"] = packages;
  std::string built_on = ZT_PACKAGES;  // in lines of a screen
  if (const std::size_t at = built_on.find('\n'); at != built_on.npos)
    built_on.replace(at, built_on.find_first_not_of("\n ", at) - at, " ");
  json["built_on"] = built_on;
  json["simd"] = SimdTargets();
  if (args.json) return Dump(json);
  std::string targets;
  for (const std::string& target : SimdTargets()) targets += " " + target;
  return "ztstream " ZT_VERSION "\nwrites   zTensor 2.0, 1.2.0, 1.1.0, 0.1.0\nreads    " +
         FormatTitles() + "\npackages " + packages + "\nbuilt on " ZT_PACKAGES "\nSIMD    " +
         targets + "\n";
}

}  // namespace zt::cli::internal
