// zt.cli:progress — the line, fitted to the terminal, and when it is drawn.
module;

#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

module zt.cli;

import zt.std;
import :args;
import :numbers;
import :output;
import :progress;

namespace zt::cli::internal {
namespace {

struct Parts {
  std::string verb, percent, amount, rate, left, count;
  double share = 0;
};

Parts PartsOf(const ProgressState& state) {
  Parts parts;
  parts.verb = state.verb;
  if (state.bytes_total > 0)
    parts.share = static_cast<double>(state.bytes) / static_cast<double>(state.bytes_total);
  parts.share = std::clamp(parts.share, 0.0, 1.0);
  char text[48];
  std::snprintf(text, sizeof text, "%3.0f%%", 100 * parts.share);
  parts.percent = text;
  parts.amount = "  " + HumanBytes(state.bytes) + " of " + HumanBytes(state.bytes_total);
  const double rate = static_cast<double>(state.bytes) / std::max(state.seconds, 1e-3);
  parts.rate = "  " + HumanRate(rate);
  const double seconds =
      rate <= 0 ? 0 : static_cast<double>(state.bytes_total - state.bytes) / rate;
  const auto left = static_cast<unsigned long long>(std::min(seconds, 3.6e6));
  std::snprintf(text, sizeof text, "  %llu:%02llu:%02llu left", left / 3600, left / 60 % 60,
                left % 60);
  parts.left = text;
  if (state.tensors_total > 0) {
    parts.count =
        "  " + std::to_string(state.tensors) + "/" + Counted(state.tensors_total, "tensor");
  }
  return parts;
}

}  // namespace

std::string BarLine(const ProgressState& state, std::size_t columns) {
  const Parts parts = PartsOf(state);
  const std::size_t room = columns > 1 ? columns - 1 : 1;  // the last column would wrap
  const std::string core = parts.verb + " " + parts.percent;
  const auto fits = [&](const std::string& text) { return core.size() + text.size() <= room; };
  std::string tail = parts.amount + parts.rate + parts.left + parts.count;
  if (!fits(tail)) tail = parts.amount + parts.rate + parts.left;
  if (!fits(tail)) tail = parts.amount + parts.left;
  if (!fits(tail)) tail = parts.left;
  if (!fits(tail)) return core.substr(0, room);
  const bool all = tail.size() == (parts.amount + parts.rate + parts.left + parts.count).size();
  const std::size_t spare = room - core.size() - tail.size();
  if (!all || spare < 11) return core + tail;
  const std::size_t width = std::min<std::size_t>(spare - 3, 24);
  const auto full = static_cast<std::size_t>(parts.share * static_cast<double>(width));
  return parts.verb + " [" + std::string(full, '#') + std::string(width - full, ' ') + "] " +
         parts.percent + tail;
}

std::string PlainLine(const ProgressState& state) {
  const Parts parts = PartsOf(state);
  return parts.verb + " " + parts.percent + parts.amount + parts.rate + parts.left + parts.count;
}

std::size_t TerminalColumns(int descriptor, std::size_t otherwise) {
  struct winsize size = {};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const std::uint64_t value = ParseNumber(columns == nullptr ? "" : columns).value_or(0);
  return value > 0 && value < 10'000 ? static_cast<std::size_t>(value) : otherwise;
}

ProgressBar::ProgressBar(const Common& common, std::string_view verb)
    : verb_(verb),
      shown_(!common.quiet && common.progress != ProgressMode::kNever),
      bar_(common.progress == ProgressMode::kAlways || ::isatty(STDERR_FILENO) != 0),
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
  const ProgressState state = {.verb = verb_,
                               .bytes = bytes,
                               .bytes_total = bytes_total,
                               .tensors = tensors,
                               .tensors_total = tensors_total,
                               .seconds = seconds()};
  if (!bar_) return Note(PlainLine(state));
  const std::string line = "\r" + BarLine(state, TerminalColumns(STDERR_FILENO, 80)) + "\x1b[K";
  const std::lock_guard lock(Lines());
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressBar::End() {
  if (!drawn_) return;
  const std::lock_guard lock(Lines());
  std::fputs("\r\x1b[K", stderr);
  drawn_ = false;
}

}  // namespace zt::cli::internal
