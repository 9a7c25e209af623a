// zt.cli — the program's commands, apart from the parsing of its command line (main.cc).
module;

#include <cstdint>
#include <string>

export module zt.cli;

export import :args;
import zt;

export namespace zt::cli {

// Each returns the program's exit status and has printed its error.
int RunConvert(const ConvertArgs& args);
int RunInspect(const InspectArgs& args);
int RunVerify(const VerifyArgs& args);
int RunExtract(const ExtractArgs& args);
int RunDiff(const DiffArgs& args);
int RunBench(const BenchArgs& args);

// SIGINT, SIGTERM and SIGHUP end the run cleanly; SIGPIPE becomes a write error. Call before any thread starts.
void InstallSignals();

// "4MiB", "64M", "1G", "1000": bytes. K, M, G, T are powers of 1024, as zstd has them; KB, MB, ... of 1000.
StatusOr<std::uint64_t> ParseSize(const std::string& text);

}  // namespace zt::cli
