// cli/help.h — how --help looks: one screen for each command.
#ifndef ZTSTREAM_CONVERTERS_CLI_HELP_H_
#define ZTSTREAM_CONVERTERS_CLI_HELP_H_

#include <CLI/App.hpp>

namespace zt::cli {

// Groups the options of every command and names their values. Call when all commands are declared.
void ArrangeHelp(CLI::App& app);

}  // namespace zt::cli

#endif  // ZTSTREAM_CONVERTERS_CLI_HELP_H_
