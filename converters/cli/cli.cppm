// zt.cli — the program's commands and its command line.
export module zt.cli;

import zt.std;
export import :library;

export namespace zt::cli {

// SIGINT, SIGTERM and SIGHUP end the run cleanly; SIGPIPE becomes a write error. Call before any thread starts.
void InstallSignals();

// Runs the command that the words of a command line name; the program's exit status. Results and errors are printed.
int Run(std::vector<std::string> words);

}  // namespace zt::cli
