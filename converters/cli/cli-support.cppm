// zt.cli:support — what the commands share: inputs, messages, progress, JSON. Internal.
module;

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

module zt.cli:support;

import :args;
import zt;

namespace zt::cli::internal {

using Json = nlohmann::ordered_json;

// Any input of any format: one file, "-", a folder, or several of them as one source. Errors name the file.
StatusOr<std::unique_ptr<TensorSource>> OpenInputs(const std::vector<std::string>& paths,
                                                   const InputOptions& options);
// The same with quantized modules grouped, those of each folder by the configuration that lies in it.
StatusOr<std::unique_ptr<TensorSource>> OpenGrouped(const std::vector<std::string>& paths,
                                                    const InputOptions& options);
// The same with grouped quantized modules as the tensors they were: what came in, for commands that give it back.
StatusOr<std::unique_ptr<TensorSource>> OpenUngrouped(const std::vector<std::string>& paths,
                                                      const InputOptions& options);
// True where the file begins like a .zt file.
StatusOr<bool> IsZt(const std::string& path);

// The file at `output`, or standard output for "-", which must not be a terminal. Errors name it.
StatusOr<std::unique_ptr<Sink>> OpenSink(const std::string& output, const FileSinkOptions& options);
// kAlreadyExists where `output` is a file that may not be replaced: found before any work is done.
Status CheckOutput(const std::string& output, bool force);

// "ztstream: message" on standard error; the exit status of `status`.
int Fail(const Status& status);
void Warn(std::string_view message);

// "1.50 GiB", "12.3 MB/s": for people.
std::string HumanBytes(std::uint64_t bytes);
std::string HumanRate(double bytes_per_second);

Json ToJson(const Value& value);
Json ToJson(const Value::Map& map);

// Prints and flushes standard output; an error where it cannot take it all.
Status Print(std::string_view text);

// A progress display on standard error: a bar that rewrites its line on a terminal, else a line every ten seconds.
class ProgressBar {
 public:
  ProgressBar(const Common& common, std::string_view verb);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  // Cheap; draws at most ten times a second. One caller at a time.
  void Update(std::uint64_t bytes, std::uint64_t bytes_total, std::uint64_t tensors,
              std::uint64_t tensors_total);
  // Clears the bar.
  void End();
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  std::string verb_;
  bool shown_ = false, terminal_ = false, drawn_ = false;
  Clock::time_point start_, last_;
};

// While it lives, a signal calls `cancel` (from a thread of its own), and ends the program two seconds later if it is
// still running.
class OnSignal {
 public:
  explicit OnSignal(std::function<void()> cancel);
  ~OnSignal();
  OnSignal(const OnSignal&) = delete;
  OnSignal& operator=(const OnSignal&) = delete;
};

}  // namespace zt::cli::internal
