// zt.cli — the program's commands, apart from the parsing of its command line (main.cc).
export module zt.cli;

import zt.std;
export import :args;
export import :numbers;
import zt;

export namespace zt::cli {

// Each returns the program's exit status and has printed its error.
int RunConvert(const ConvertArgs& args);
int RunJoin(const JoinArgs& args);
int RunInspect(const InspectArgs& args);
int RunVerify(const VerifyArgs& args);
int RunExtract(const ExtractArgs& args);
int RunDiff(const DiffArgs& args);
int RunId(const IdArgs& args);
int RunBench(const BenchArgs& args);

// SIGINT, SIGTERM and SIGHUP end the run cleanly; SIGPIPE becomes a write error. Call before any thread starts.
void InstallSignals();

// Has every command take URLs where it takes paths, as the options say.
void UseUrls(const Common& common);

// Prints the error of a command line that could not be understood; the exit status.
int RefuseUsage(const Common& common, const std::string& message);

// The formats that are read, and those that extract writes, as --from and --to spell them.
std::vector<std::string> InputFormats();
std::vector<std::string> OutputFormats();
// The formats that are read, for a sentence: "safetensors, npy and .zt".
std::string FormatNames();
// What --version says of the formats that are read: names with versions.
std::string FormatTitles();

}  // namespace zt::cli
