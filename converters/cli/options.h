// ztstream — the options of every command, as CLI11 parses them.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace zt::cli {

struct Common;

// The commands of `app`. Parsing fills arguments that live as long as the program.
void AddCommands(CLI::App& app);
// Runs the command that was parsed; the program's exit status.
int RunCommand(const CLI::App& app);
// What is known of the command line before it is parsed, or where it cannot be: the command, and whether --json is
// among the words.
Common CommonOf(const std::vector<std::string>& words);

}  // namespace zt::cli
