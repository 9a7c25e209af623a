// zt.cli:support — messages, sizes, JSON, progress, signals.
module;

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

module zt.cli;

import :support;
import zt;

namespace zt::cli {

using namespace internal;

StatusOr<std::uint64_t> ParseSize(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  static constexpr std::string_view kPrefixes = "kmgt";
  double factor = 1;
  bool known = unit.empty() || unit == "b";
  if (!known) {
    const auto power = kPrefixes.find(unit[0]);
    const std::string rest = unit.substr(1);
    known = power != std::string_view::npos && (rest.empty() || rest == "b" || rest == "ib");
    if (known) {
      for (std::size_t i = 0; i <= power; ++i) factor *= rest == "b" ? 1000 : 1024;
    }
  }
  const double bytes = number * factor;
  if (error != std::errc() || !known || !(bytes >= 0) || bytes > 9e18) {
    return InvalidArgument(Quote(text) + " is no size; write 4MiB, 64M or 1000000");
  }
  return static_cast<std::uint64_t>(bytes);
}

namespace {

// The run that a signal ends.
std::mutex g_mutex;
std::function<void()>* g_cancel = nullptr;
// Held while a line is written to standard error, and from an interruption's own line on for good: what fails because
// the temporary files are gone says no more.
std::mutex g_lines;

void Catch(const sigset_t& set) {
  int signal = 0;
  ::sigwait(&set, &signal);
  {
    const std::lock_guard lock(g_mutex);
    if (g_cancel != nullptr) (*g_cancel)();
  }
  // A worker may sit in a read or write that never returns.
  std::this_thread::sleep_for(std::chrono::seconds(2));
  g_lines.lock();
  AbandonTemporaryFiles();
  constexpr std::string_view kMessage = "ztstream: interrupted\n";
  [[maybe_unused]] const auto wrote = ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
  ::_exit(130);
}

}  // namespace

void InstallSignals() {
  ::signal(SIGPIPE, SIG_IGN);  // both are errors of write(2)
  ::signal(SIGXFSZ, SIG_IGN);
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction current;
    // What was ignored stays ignored: nohup, a shell's background job.
    if (::sigaction(signal, nullptr, &current) == 0 && current.sa_handler == SIG_IGN) continue;
    ::sigaddset(&set, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  try {
    std::thread([set] { Catch(set); }).detach();
  } catch (const std::system_error&) {  // no thread to be had: signals end the program at once
    ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  }
}

namespace internal {

OnSignal::OnSignal(std::function<void()> cancel) {
  const std::lock_guard lock(g_mutex);
  delete std::exchange(g_cancel, new std::function<void()>(std::move(cancel)));
}

OnSignal::~OnSignal() {
  const std::lock_guard lock(g_mutex);
  delete std::exchange(g_cancel, nullptr);
}

StatusOr<std::unique_ptr<Sink>> OpenSink(const std::string& output,
                                         const FileSinkOptions& options) {
  if (output == "-") {
    if (::isatty(STDOUT_FILENO) != 0) {
      return InvalidArgument("standard output is a terminal; redirect it or name a file with -o");
    }
    return DescriptorSink(STDOUT_FILENO, "standard output");
  }
  auto sink = CreateFileSink(output, options);
  if (!sink.ok()) return Annotate(sink.status(), output);
  return sink;
}

Status CheckOutput(const std::string& output, bool force) {
  std::error_code error;
  if (output == "-" || force || !std::filesystem::is_regular_file(output, error)) return OkStatus();
  return Annotate(AlreadyExists("the output exists already; use -f to replace it"), output);
}

int Fail(const Status& status) {
  const std::string line = "ztstream: " + std::string(Message(status)) + "\n";
  const std::lock_guard lock(g_lines);
  std::fwrite(line.data(), 1, line.size(), stderr);
  return ExitStatus(status);
}

void Warn(std::string_view message) {
  const std::string line = "ztstream: warning: " + std::string(message) + "\n";
  const std::lock_guard lock(g_lines);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

Status Print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    return Annotate(IoError(errno, "cannot write"), "standard output");
  }
  return OkStatus();
}

std::string HumanBytes(std::uint64_t bytes) {
  static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) value /= 1024, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return text;
}

std::string HumanRate(double rate) {
  return HumanBytes(static_cast<std::uint64_t>(std::max(0.0, rate))) + "/s";
}

Json ToJson(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kNull:
      return nullptr;
    case Value::Kind::kBool:
      return *value.AsBool();
    case Value::Kind::kUint:
      return *value.AsUint();
    case Value::Kind::kInt:
      return *value.AsInt();
    case Value::Kind::kDouble:
      return *value.AsDouble();
    case Value::Kind::kString:
      return *value.AsString();
    case Value::Kind::kBytes: {
      // JSON has no bytes: hexadecimal, marked.
      std::string hex;
      for (const std::byte byte : *value.AsBytes()) {
        hex += "0123456789abcdef"[static_cast<unsigned>(byte) >> 4];
        hex += "0123456789abcdef"[static_cast<unsigned>(byte) & 15];
      }
      return Json{{"$bytes", hex}};
    }
    case Value::Kind::kArray: {
      Json out = Json::array();
      for (const Value& each : *value.AsArray()) out.push_back(ToJson(each));
      return out;
    }
    case Value::Kind::kMap:
      return ToJson(*value.AsMap());
  }
  return nullptr;
}

Json ToJson(const Value::Map& map) {
  Json out = Json::object();
  // Keys of a map are unique; operator[] would look each of them up among those before it.
  auto& members = out.get_ref<Json::object_t&>();
  for (const auto& [key, value] : map) members.emplace_back(key, ToJson(value));
  return out;
}

ProgressBar::ProgressBar(const Common& common, std::string_view verb)
    : verb_(verb), start_(Clock::now()), last_(start_) {
  terminal_ = ::isatty(STDERR_FILENO) != 0;
  shown_ = !common.quiet && common.progress != ProgressMode::kNever &&
           (terminal_ || common.progress == ProgressMode::kAlways ||
            common.progress == ProgressMode::kAuto);
}

ProgressBar::~ProgressBar() { End(); }

double ProgressBar::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void ProgressBar::Update(std::uint64_t bytes, std::uint64_t bytes_total, std::uint64_t tensors,
                         std::uint64_t tensors_total) {
  if (!shown_) return;
  const Clock::time_point now = Clock::now();
  const auto pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(10);
  if (now - last_ < pause) return;
  last_ = now;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double rate = static_cast<double>(bytes) / std::max(elapsed, 1e-3);
  const double share =
      bytes_total == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(bytes_total);
  const auto left =
      rate <= 0 ? 0 : static_cast<std::uint64_t>(static_cast<double>(bytes_total - bytes) / rate);
  char eta[32];
  std::snprintf(eta, sizeof eta, "%llu:%02llu:%02llu", static_cast<unsigned long long>(left / 3600),
                static_cast<unsigned long long>(left / 60 % 60),
                static_cast<unsigned long long>(left % 60));
  std::string counts = std::to_string(tensors) + "/" + std::to_string(tensors_total) + " tensors";
  std::string line;
  if (terminal_) {
    static constexpr int kWidth = 24;
    const int full = static_cast<int>(share * kWidth);
    line = "\r" + verb_ + " [" + std::string(static_cast<std::size_t>(full), '#') +
           std::string(static_cast<std::size_t>(kWidth - full), ' ') + "] ";
  } else {
    line = "ztstream: " + verb_ + " ";
  }
  char percent[16];
  std::snprintf(percent, sizeof percent, "%3.0f%%", share * 100);
  line += std::string(percent) + "  " + HumanBytes(bytes) + " of " + HumanBytes(bytes_total) +
          "  " + HumanRate(rate) + "  " + eta + " left  " + counts + (terminal_ ? "\x1b[K" : "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  drawn_ = terminal_;
}

void ProgressBar::End() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
  drawn_ = false;
}

}  // namespace internal
}  // namespace zt::cli
