// zt.cli:support — signals, outputs, and opening .zt files.
module;

#include <signal.h>
#include <unistd.h>

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :output;
import :support;
import zt.remote;

namespace zt::cli {

using namespace internal;
namespace fs = std::filesystem;

namespace {

// The state that a signal changes, and that tells it what to do.
std::atomic<bool> g_interrupted = false, g_complete = false;
std::atomic<int> g_signal = 0;
sigset_t g_awaited;  // the signals that Catch waits for, set before it runs
std::mutex g_mutex;
Writer* g_writer = nullptr;

// The options of the command, which outlive the end of main. Guarded by g_mutex.
Common& CommonOptions() {
  static Common* const options = new Common;
  return *options;
}

void Cancel(Writer* writer) {
  if (writer != nullptr && g_interrupted) writer->Cancel(Cancelled("interrupted"));
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
  {
    const std::lock_guard lock(g_mutex);
    Cancel(g_writer);
  }
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

CancelsWriter::CancelsWriter(Writer& writer) {
  const std::lock_guard lock(g_mutex);
  g_writer = &writer;
  Cancel(g_writer);
}

CancelsWriter::~CancelsWriter() {
  const std::lock_guard lock(g_mutex);
  g_writer = nullptr;
}

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

void SetCommon(const Common& common) {
  const std::lock_guard lock(g_mutex);
  CommonOptions() = common;
}

Store& TheStore() { return *CommonOptions().store; }

StatusOr<std::unique_ptr<Sink>> OpenSink(const std::string& output,
                                         const FileSinkOptions& options) {
  if (output == "-") {
    if (::isatty(STDOUT_FILENO) != 0) {
      return InvalidArgument("standard output is a terminal; redirect it or name a file with -o");
    }
    return DescriptorSink(STDOUT_FILENO, "standard output");
  }
  return CreateFileSink(output, options);
}

Status WriteText(const std::string& path, std::string_view text, const FileSinkOptions& options) {
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Sink> sink, OpenSink(path, options));
  const std::span<const std::byte> piece = std::as_bytes(std::span(text));
  ZT_RETURN_IF_ERROR(WithFile(sink->Append(std::span(&piece, 1)), path));
  return WithFile(sink->Finish(text.size()), path);
}

StatusOr<std::unique_ptr<Reader>> OpenReader(const std::string& path, const InputOptions& options) {
  ZT_ASSIGN_OR_RETURN(auto bytes, OpenNamed(path, TheStore()));
  return Reader::Open(std::move(bytes), {.find_shard = ShardsBeside(path, options)});
}

std::uint64_t Bytes(const Object& object) {
  std::uint64_t bytes = 0;
  for (const Component& component : object.components)
    bytes += component.bytes == kUnknownSize ? 0 : component.bytes;
  return bytes;
}

Status CheckFolderOf(const std::string& output) {
  if (output == "-" || IsUrl(output)) return OkStatus();
  std::error_code error;
  const fs::path folder = fs::path(output).parent_path();
  if (folder.empty() || fs::is_directory(folder, error)) return OkStatus();
  if (fs::exists(folder, error))
    return WithFile(IoError(folder.string() + " is not a folder; name another output"), output);
  if (error) return OkStatus();  // what may not be looked at may be there: opening it tells
  return WithFile(IoError("there is no folder " + folder.string() + "; make the folder first"),
                  output);
}

Status CheckOutput(const std::string& output, bool force) {
  if (output.ends_with('/'))
    return WithFile(InvalidArgument("the output is a folder; name a file"), output);
  ZT_RETURN_IF_ERROR(CheckFolderOf(output));
  std::error_code error;
  if (output == "-" || force || IsUrl(output) || !fs::is_regular_file(output, error))
    return OkStatus();
  return WithFile(WithAdvice(AlreadyExists("the output exists already"), Advice::kReplace), output);
}

}  // namespace internal
}  // namespace zt::cli
