// zt.cli:signals — what ends a run, and how.
module;

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

module zt.cli;

import zt.std;
import :output;
import :signals;
import zt.remote;

namespace zt::cli {

using namespace internal;
namespace {

// The state that a signal changes, and that tells it what to do.
std::atomic<bool> g_interrupted = false, g_complete = false;
std::atomic<int> g_signal = 0;
sigset_t g_awaited;  // the signals that Catch waits for, set before it runs
std::mutex g_mutex;

// The options of the command, which outlive the end of main. Guarded by g_mutex.
Common& CommonOptions() {
  static Common* const options = new Common;
  return *options;
}

// Locks Lines(), unless somebody is stuck while writing one.
bool LockLines() {
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (Lines().try_lock()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// Waits for a signal, then ends the program if it is still running two seconds later: a worker may
// block forever in a read or write. A publication is completed first.
void Catch(const sigset_t& set) {
  int signal = 0;
  ::sigwait(&set, &signal);
  g_signal = signal;
  g_interrupted = true;
  for (bool waited = false;;) {
    const std::uint64_t begun = Publication::Begun();
    std::this_thread::sleep_for(std::chrono::seconds(2));
    if (g_complete) break;
    // From here on errors that follow from the removed temporary files are not printed.
    const bool locked = LockLines();
    if (AbandonTemporaryFiles(begun)) {
      const AbandonedUploads uploads = AbandonUploads();
      // What has been published is an output: the run, which has only to say so, ends by itself.
      if (uploads.published && !std::exchange(waited, true)) {
        if (locked) Lines().unlock();
        continue;
      }
      std::string lines;
      for (const std::string& line : uploads.left)
        lines += "ztstream: warning: " + Printable(line) + "\n";
      if (locked) {
        const std::lock_guard lock(g_mutex);
        SayInterrupted(CommonOptions(), lines);
      }
      ::_exit(EndBySignal(130));
    }
    if (locked) Lines().unlock();
  }
  // The output is complete, but its result cannot be printed: the reader is gone. The next signal
  // ends the program at once.
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace

int EndBySignal(int status) {
  if (status != 130 || g_signal != SIGINT) return status;
  ::signal(SIGINT, SIG_DFL);
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::raise(SIGINT);
  return status;
}

void InstallSignals() {
  // Both become errors of write(2).
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction current;
    // An ignored signal stays ignored: nohup, background jobs of a shell.
    if (::sigaction(signal, nullptr, &current) == 0 && current.sa_handler == SIG_IGN) continue;
    ::sigaddset(&set, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  g_awaited = set;
  try {
    std::thread([set] { Catch(set); }).detach();
  } catch (const std::system_error&) {
    // There is no thread for them: signals end the program at once.
    ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    ::sigemptyset(&g_awaited);
  }
}

namespace internal {

const std::atomic<bool>& Interrupted() { return g_interrupted; }

bool Ended() {
  // One that has arrived and that Catch has not seen yet counts.
  for (sigset_t set; !g_interrupted && ::sigpending(&set) == 0;) {
    const auto coming = [&](int signal) {
      return ::sigismember(&set, signal) == 1 && ::sigismember(&g_awaited, signal) == 1;
    };
    if (!coming(SIGINT) && !coming(SIGTERM) && !coming(SIGHUP)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return g_interrupted && !g_complete;
}

void Completed() { g_complete = true; }
void Begun() { g_complete = false; }

void SetCommon(const Common& common) {
  const std::lock_guard lock(g_mutex);
  CommonOptions() = common;
}

void WriteNoCore(const Args& args) {
  const auto remote = [](const std::vector<std::string>& names) {
    return std::ranges::any_of(names, IsUrl);
  };
  const rlimit none = {0, 0};
  if (remote(args.inputs) || remote(args.against) || remote(args.base) || IsUrl(args.output))
    ::setrlimit(RLIMIT_CORE, &none);
}

Store& TheStore() { return *CommonOptions().store; }

}  // namespace internal
}  // namespace zt::cli
