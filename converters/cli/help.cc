// ztstream — the layout of --help: groups without blank lines, options common to all commands told once.
#include "cli/help.h"

#include <memory>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

namespace zt::cli {
namespace {

constexpr std::string_view kCommon = "Every command";

struct Row {
  std::string_view option, group, value;
};

// What the declarations in options.cc leave open. An option that is missing here shows up under "Options".
constexpr Row kRows[] = {
    {"--output", "Output", "OUT"},
    {"--spec", "Output", "VERSION"},
    {"--to", "Output", "FORMAT"},
    {"--canonical", "Output", ""},
    {"--align", "Output", "SIZE"},
    {"--zstd", "Output", "[=LEVEL]"},
    {"--min-gain", "Output", "PCT"},
    {"--chunk", "Output", "SIZE"},
    {"--digest", "Output", "KIND"},
    {"--dry-run", "Output", ""},
    {"--shards", "Shards", "N"},
    {"--shard-size", "Shards", "SIZE"},
    {"--shard", "Shards", "I/N"},
    {"--missing", "Output", ""},
    {"--force", "Output", ""},
    {"--no-sync", "Output", ""},
    {"--part-size", "Output", "SIZE"},
    {"--include", "Tensors", "REGEX"},
    {"--exclude", "Tensors", "REGEX"},
    {"--rename", "Tensors", "s/RE/TEXT/"},
    {"--dtype", "Tensors", "[RE=]TYPE"},
    {"--on-overflow", "Tensors", "WHAT"},
    {"--dequantize", "Tensors", "TYPE"},
    {"--quant", "Tensors", "HOW"},
    {"--no-metadata", "Tensors", ""},
    {"--against", "Input", "SOURCE..."},
    {"--from", "Input", "FORMAT"},
    {"--follow-links", "Input", ""},
    {"--no-sign-request", "Input", ""},
    {"--npy-void", "Input", "TYPE"},
    {"--sparse", "Input", "HOW"},
    {"--sort", "Output", "ORDER"},
    {"--tree", "Output", ""},
    {"--folder", "Measurements", "DIR"},
    {"--limit", "Measurements", "SIZE"},
    {"--runs", "Measurements", "N"},
    {"--threads", kCommon, "N"},
    {"--memory", kCommon, "SIZE"},
    {"--progress", kCommon, "WHEN"},
    {"--json", kCommon, ""},
    {"--quiet", kCommon, ""},
    {"--verbose", kCommon, ""},
    {"--help", kCommon, ""},
    {"--version", kCommon, ""},
};

std::string Line(std::string left, const std::string& right) {
  left = "  " + left;
  left.resize(left.size() < 24 ? 24 : left.size() + 2, ' ');
  return left + right + "\n";
}

// What stands for an option's value. CLI11 adds what its checks say; the description has that.
std::string ValueName(const CLI::Option& option) {
  const std::string name = option.get_type_name();
  return name.substr(0, name.find(':'));
}

std::string OptionLine(const CLI::Option& option) {
  std::string left = option.get_name(false, true);
  if (const std::string value = ValueName(option); !value.empty()) {
    left += (value.front() == '[' && value[1] == '=' ? "" : " ") + value;
  }
  std::string right = option.get_description();
  if (!option.get_default_str().empty()) right += " [" + option.get_default_str() + "]";
  return Line(left, right);
}

class Layout final : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    return app->get_parent() == nullptr ? Program(*app) : Command(*app);
  }

 private:
  static std::string Group(const CLI::App& app, const std::string& group) {
    std::string lines;
    for (const CLI::Option* option :
         app.get_options([&](const CLI::Option* each) { return each->get_group() == group; })) {
      if (!option->get_positional()) lines += OptionLine(*option);
    }
    return lines.empty() ? "" : group + ":\n" + lines;
  }

  static std::string Program(const CLI::App& app) {
    std::string out = "Usage: ztstream COMMAND ...; ztstream COMMAND --help lists its options\n" +
                      app.get_description() + "\n\nCommands:\n";
    const auto commands = app.get_subcommands({});
    for (const CLI::App* command : commands)
      out += Line(command->get_name(), command->get_description());
    out += "\n" + Group(*commands.front(), std::string(kCommon));
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_name() == "--version") out += OptionLine(*option);
    }
    return out +
           "Exit status: 0 done, 1 differs, 2 usage, 3 output exists, 4 input invalid,\n"
           "5 unsupported, 6 I/O, 7 number does not fit, 130 interrupted. More: man ztstream\n";
  }

  static std::string Command(const CLI::App& app) {
    std::string usage = "Usage: ztstream " + app.get_name() + " [OPTION]...", positionals;
    for (const CLI::Option* option : app.get_options()) {
      if (!option->get_positional()) continue;
      const bool many = option->get_items_expected_max() > 1;
      const std::string name = option->get_name() + (many ? "..." : "");
      usage += option->get_required() ? " " + name : " [" + name + "]";
      positionals += Line(name, option->get_description());
    }
    if (const CLI::Option* output = app.get_option_no_throw("--output"); output != nullptr)
      usage += " -o " + ValueName(*output);
    std::string out = usage + "\n" + app.get_description() + ".\n\n" + positionals;
    for (const std::string& group : app.get_groups()) {
      if (group != kCommon) out += Group(app, group);
    }
    return out +
           "\nAlso -T N, --memory SIZE, --progress WHEN, --json, -q, -v: see ztstream --help.\n";
  }
};

void Arrange(CLI::App& app) {
  for (const Row& row : kRows) {
    CLI::Option* option = app.get_option_no_throw(std::string(row.option));
    if (option == nullptr) continue;
    option->group(std::string(row.group));
    option->type_name(std::string(row.value));
  }
}

}  // namespace

void ArrangeHelp(CLI::App& app) {
  const auto layout = std::make_shared<Layout>();
  app.formatter(layout);
  Arrange(app);
  for (CLI::App* command : app.get_subcommands({})) {
    command->formatter(layout);
    Arrange(*command);
  }
}

}  // namespace zt::cli
