// zt.cli:output — progress: a line that fits the terminal.
module;

#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

module zt.cli;

import zt.std;
import :output;

namespace zt::cli::internal {
namespace {

// The progress line: as many of `parts` as fit into `columns` but the last, which stays empty.
std::string Line(const std::string& verb, double share, std::span<const std::string> parts,
                 std::size_t columns) {
  char percent[16];
  std::snprintf(percent, sizeof percent, " %3.0f%%", 100 * share);
  std::string line = verb + percent;
  for (const std::string& part : parts) {
    if (line.size() + part.size() < columns) line += part;
  }
  return line.substr(0, columns - 1);
}

// True for a terminal without escape sequences, such as a shell in an editor.
bool IsDumb() {
  const char* terminal = std::getenv("TERM");
  return terminal != nullptr && std::string_view(terminal) == "dumb";
}

}  // namespace

std::size_t TerminalColumns(int descriptor, std::size_t otherwise) {
  struct winsize size = {};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const std::uint64_t value = ParseNumber(columns == nullptr ? "" : columns).value_or(0);
  return value > 0 && value < 10'000 ? static_cast<std::size_t>(value) : otherwise;
}

ProgressBar::ProgressBar(const Common& common, std::string_view verb)
    : verb_(verb),
      shown_(!common.quiet && common.progress != "never"),
      bar_(common.progress == "always" || (::isatty(STDERR_FILENO) != 0 && !IsDumb())),
      start_(Clock::now()),
      last_(start_) {}

ProgressBar::~ProgressBar() { End(); }

double ProgressBar::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void ProgressBar::Update(std::uint64_t bytes, std::uint64_t bytes_total, std::uint64_t tensors,
                         std::uint64_t tensors_total) {
  if (!shown_) return;
  const Clock::time_point now = Clock::now();
  const auto pause = bar_ ? std::chrono::milliseconds(100) : std::chrono::seconds(10);
  if (now - last_ < pause) return;
  last_ = now;
  const double rate = static_cast<double>(bytes) / std::max(seconds(), 1e-3);
  const double left = rate <= 0 ? 0 : static_cast<double>(bytes_total - bytes) / rate;
  const auto s = static_cast<unsigned long long>(std::min(left, 3.6e6));
  char time[48];
  std::snprintf(time, sizeof time, "  %llu:%02llu:%02llu left", s / 3600, s / 60 % 60, s % 60);
  const std::string parts[] = {
      time, "  " + HumanBytes(bytes) + " of " + HumanBytes(bytes_total), "  " + HumanRate(rate),
      tensors_total == 0 ? ""
                         : "  " + std::to_string(tensors) + "/" + Counted(tensors_total, "tensor")};
  const double share =
      bytes_total == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(bytes_total);
  const std::size_t columns = bar_ ? TerminalColumns(STDERR_FILENO, 80) : std::string::npos;
  const std::string text = Line(verb_, std::clamp(share, 0.0, 1.0), parts, columns);
  if (!bar_) return Note(text);
  const std::string line = "\r" + text + "\x1b[K";
  const std::lock_guard lock(Lines());
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressBar::Add(std::uint64_t bytes, std::uint64_t bytes_total, std::uint64_t tensors,
                      std::uint64_t tensors_total) {
  const std::lock_guard lock(mutex_);
  added_ = std::min(added_ + bytes, bytes_total);
  added_tensors_ += tensors;
  Update(added_, bytes_total, added_tensors_, tensors_total);
}

void ProgressBar::End() {
  if (!drawn_) return;
  const std::lock_guard lock(Lines());
  std::fputs("\r\x1b[K", stderr);
  drawn_ = false;
}

}  // namespace zt::cli::internal
