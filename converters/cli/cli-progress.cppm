// zt.cli:progress — how far a run has come, on standard error. Internal.
module zt.cli:progress;

import zt.std;
import :args;

namespace zt::cli::internal {

// What a progress line says.
struct ProgressState {
  std::string_view verb;                         // "convert"
  std::uint64_t bytes = 0, bytes_total = 0;      // of data
  std::uint64_t tensors = 0, tensors_total = 0;  // total 0: they are not counted
  double seconds = 0;                            // since the start
};
// The line for a terminal of `columns`, which it never fills to its last: the bar goes first where there is no room
// for all, then the count, then the rate.
std::string BarLine(const ProgressState& state, std::size_t columns);
// The same as text, for a file.
std::string PlainLine(const ProgressState& state);

// A bar that rewrites its line on a terminal, or anywhere with --progress always; else a line every ten seconds.
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
  bool shown_ = false, bar_ = false, drawn_ = false;
  Clock::time_point start_, last_;
};

// The columns of the terminal at `descriptor`; where it is none, of COLUMNS, else `otherwise`.
std::size_t TerminalColumns(int descriptor, std::size_t otherwise);

}  // namespace zt::cli::internal
