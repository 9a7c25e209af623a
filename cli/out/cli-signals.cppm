// zt.cli:signals — what ends a run before its end. Internal.
module zt.cli:signals;

import zt.std;
import :args;

namespace zt::cli::internal {

// True once a signal has asked the program to end. Everything that can be cancelled reads it.
const std::atomic<bool>& Interrupted();

// Marks the command's output as published: from now on a signal does not end the run, which reports
// its result and ends by itself.
void Completed();
// What follows is another output: a signal ends the run again.
void Begun();
// True if a signal arrived before Completed. The program then prints only that it was interrupted.
bool Ended();
// A run that is given URLs leaves no core, which would hold what it signs with.
void WriteNoCore(const Args& args);
// Sets the options for what the program prints after a signal.
void SetCommon(const Common& common);

}  // namespace zt::cli::internal
