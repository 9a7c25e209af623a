// zt.cli — the program's commands and its command line.
export module zt.cli;

import zt.std;

export namespace zt::cli {

// Makes SIGINT, SIGTERM and SIGHUP end the program cleanly, and SIGPIPE a write error. Call it
// before any thread starts.
void InstallSignals();

// After SIGINT and with status 130, ends the process by that signal, so that the loop of a shell
// that runs it ends, too; else returns `status`.
int EndBySignal(int status);

// Runs the command of a command line, given as words, prints results and errors, and returns the
// exit status of the program.
int Run(const std::vector<std::string>& words);

}  // namespace zt::cli
