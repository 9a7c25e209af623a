// ztstream — the program: parses the command line and hands it to a command.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/help.h"
#include "cli/options.h"
#include "cli/usage.h"
#include "cli/versions.h"

import zt;
import zt.cli;
import zt.remote;

namespace {

// A descriptor 0, 1 or 2 that is closed would be given to the next file that is opened, and messages would be written
// into it. Each gets /dev/null instead, opened so that its use is still an error.
void SecureDescriptors() {
  constexpr int kModes[] = {O_WRONLY, O_RDONLY, O_RDONLY};
  for (int fd = 0; fd < 3; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", kModes[fd]) != fd) ::_exit(6);
  }
}

// A checkpoint of a thousand shards is a thousand open files, the usual limit; the system lets a program raise its own.
void RaiseFileLimit() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

std::string Version() {
  std::string targets;
  for (const std::string& target : zt::SimdTargets())
    targets += (targets.empty() ? "" : " ") + target;
  return "ztstream " ZT_VERSION "\nwrites   zTensor 2.0, 1.2.0, 1.1.0, 0.1.0\nreads    " +
         zt::cli::FormatTitles() + "\npackages zstd " + std::string(zt::ZstdVersion()) +
         ", Highway " + std::string(zt::HighwayVersion()) +
         "\nbuilt on " ZT_PACKAGES "\nSIMD     " + targets;
}

int Run(std::vector<std::string> arguments) {
  for (std::string& argument : arguments) {
    auto shown = zt::HideQuery(argument);
    if (!shown.ok())
      return zt::cli::RefuseUsage(zt::cli::CommonOf(arguments),
                                  std::string(zt::Message(shown.status())));
    argument = *std::move(shown);
  }
  CLI::App app("Streams " + zt::cli::FormatNames() + " to .zt.", "ztstream");
  app.set_version_flag(
      "--version", [] { return Version(); }, "Versions of the program, the formats, the packages");
  app.require_subcommand(1);
  zt::cli::AddCommands(app);
  zt::cli::ArrangeHelp(app);
  const zt::cli::Words arranged = zt::cli::Arrange(app, arguments);
  if (!arranged.problem.empty())
    return zt::cli::RefuseUsage(zt::cli::CommonOf(arguments), arranged.problem);
  std::vector<std::string> words = arranged.words;
  std::ranges::reverse(words);  // as CLI11 takes them
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return zt::cli::RefuseUsage(zt::cli::CommonOf(arranged.words), zt::cli::Explain(app, error));
  }
  return zt::cli::RunCommand(app);
}

}  // namespace

int main(int argc, char** argv) {
  SecureDescriptors();
  RaiseFileLimit();
  zt::cli::InstallSignals();
  try {
    return Run({argv + 1, argv + std::max(argc, 1)});
  } catch (const std::bad_alloc&) {
    std::fputs("ztstream: out of memory\n", stderr);
    return 6;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ztstream: internal error: %s\n", error.what());
    return 70;
  }
}
