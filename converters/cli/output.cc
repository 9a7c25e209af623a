// zt.cli:output — escaping, messages, JSON, sizes.
module;

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utf8proc.h>

#include "core/retry.h"
#include "sink/write_all.h"

module zt.cli;

import zt.std;
import :library;
import :output;
import :support;

namespace zt::cli::internal {
namespace {

constexpr char kHex[] = "0123456789abcdef";

// The length and code point of the UTF-8 sequence at the start of a text. The length is 0 if it is
// not UTF-8.
struct Decoded {
  std::size_t length = 0;
  std::uint32_t point = 0;
};

Decoded Decode(std::string_view text) {
  utf8proc_int32_t point = 0;
  const auto length = ::utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                         static_cast<utf8proc_ssize_t>(text.size()), &point);
  if (length <= 0) return {};
  return {static_cast<std::size_t>(length), static_cast<std::uint32_t>(point)};
}

// False for control characters, line breaks, and what formats text or is not seen itself: marks of
// direction, joiners, the byte order mark, tags, variation selectors, fillers, spaces but one.
bool IsHarmless(std::uint32_t point) {
  constexpr std::uint32_t kBlankBraille = 0x2800;
  if (point == ' ') return true;
  // What Unicode keeps for more of the kind has no property yet.
  if (point == 0x2065 || (point >= 0xfff0 && point <= 0xfff8) || point >> 12 == 0xe0) return false;
  const auto* const property = ::utf8proc_get_property(static_cast<utf8proc_int32_t>(point));
  const int category = property->category;
  return category != UTF8PROC_CATEGORY_CC && category != UTF8PROC_CATEGORY_CF &&
         category != UTF8PROC_CATEGORY_ZS && category != UTF8PROC_CATEGORY_ZL &&
         category != UTF8PROC_CATEGORY_ZP && property->ignorable == 0 && point != kBlankBraille;
}

void AppendHex(std::string& out, std::uint32_t value, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kHex[value >> shift & 15];
}

// Dumps JSON in one line and escapes the characters that are not harmless. They occur only within
// strings, in which JSON allows an escape; from U+10000 on, a pair of surrogates.
std::string OneLine(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size());
  std::size_t copied = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x7f) {
      ++at;
      continue;
    }
    // dump() has replaced bytes that are not UTF-8.
    const Decoded next = Decode(std::string_view(text).substr(at));
    if (!IsHarmless(next.point)) {
      out.append(text, copied, at - copied);
      const bool halves = next.point > 0xffff;
      if (halves) {
        out += "\\u";
        AppendHex(out, 0xd7c0 + (next.point >> 10), 4);
      }
      out += "\\u";
      AppendHex(out, halves ? 0xdc00 + (next.point & 0x3ff) : next.point, 4);
      copied = at + next.length;
    }
    at += std::max<std::size_t>(next.length, 1);
  }
  out.append(text, copied);
  return out;
}

// Returns 0 or errno.
int WriteTo(int fd, std::string_view text) {
  const std::span<const std::byte> piece = std::as_bytes(std::span(text));
  return sink_io::WriteAll(std::span(&piece, 1), 0, [&](const iovec* v, int n, std::uint64_t) {
    return zt::internal::RetryWaiting(fd, POLLOUT, [&] { return ::writev(fd, v, n); });
  });
}

void WriteLine(const std::string& line) {
  const std::lock_guard lock(Lines());
  (void)WriteTo(STDERR_FILENO, line);
}

// Guarded by Lines().
bool g_printed = false;                 // something is on standard output
std::atomic<bool> g_line_open = false;  // its last line has no end yet
std::size_t g_open_lists = 0;           // in an object of which a part is printed

Status WriteOutput(std::string_view text) {
  if (text.empty()) return OkStatus();
  const std::lock_guard lock(Lines());
  g_printed = true;
  g_line_open = !text.ends_with('\n');
  const int error = WriteTo(STDOUT_FILENO, text);
  // EPIPE: `| head`, a pager that was quit.
  if (error == 0 || error == EPIPE) return OkStatus();
  return WithFile(IoError(error, "cannot write"), "standard output");
}

Json ErrorJson(const Common& common, const Status& status) {
  Json error = {{"exit_status", ExitStatus(status)}};
  if (const auto file = FileOf(status)) error["file"] = *file;
  if (const auto tensor = TensorOf(status)) error["tensor"] = *tensor;
  error["message"] = Message(status);
  Json json = Envelope(common, false);
  json["error"] = std::move(error);
  return json;
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Decoded next = Decode(text);
    const auto byte = static_cast<unsigned char>(text.front());
    if (next.length == 0) {
      out += "\\x";
      AppendHex(out, byte, 2);
    } else if (IsHarmless(next.point)) {
      out += text.substr(0, next.length);
    } else if (byte == '\n') {
      out += "\\n";
    } else {
      out += next.length == 1 ? "\\x" : next.length < 4 ? "\\u" : "\\U";
      AppendHex(out, next.point, next.length == 1 ? 2 : next.length < 4 ? 4 : 8);
    }
    text.remove_prefix(std::max<std::size_t>(next.length, 1));
  }
  return out;
}

std::size_t Columns(std::string_view printable) {
  return static_cast<std::size_t>(std::count_if(printable.begin(), printable.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::mutex& Lines() {
  static std::mutex mutex;
  return mutex;
}

void Note(std::string_view text) { WriteLine("ztstream: " + Printable(text) + "\n"); }

void Warn(std::string_view message) {
  WriteLine("ztstream: warning: " + Printable(message) + "\n");
}

void WarnAll(const Common& common, std::span<const std::string> messages) {
  if (common.quiet) return;
  for (const std::string& message : messages) Warn(message);
}

int Fail(const Common& common, const Status& status) {
  // A signal to a whole pipeline ends the program that writes the input, too, so that it is cut.
  const bool of_input =
      status.code() == StatusCode::kDataLoss || status.code() == StatusCode::kUnimplemented;
  if (of_input && Ended()) return Fail(common, Cancelled("interrupted"));
  Note(Message(status));
  if (common.json) {
    const Json json = ErrorJson(common, status);
    if (common.product_on_output) {
      WriteLine(Dump(json));
    } else if (!g_line_open) {
      (void)WriteOutput(Dump(json));
    } else {
      (void)WriteOutput(std::string(g_open_lists, ']') +
                        ",\"ok\":false,\"error\":" + OneLine(json["error"]) + "}\n");
    }
  }
  return ExitStatus(status);
}

void SayInterrupted(const Common& common, std::string_view lines) {
  const Status status = Cancelled("interrupted");
  (void)WriteTo(STDERR_FILENO, std::string(lines) + "ztstream: " + Message(status) + "\n");
  if (!common.json || g_printed) return;
  const int fd = common.product_on_output ? STDERR_FILENO : STDOUT_FILENO;
  pollfd ready = {fd, POLLOUT, 0};
  if (::poll(&ready, 1, 0) > 0) (void)WriteTo(fd, Dump(ErrorJson(common, status)));
}

int Done(const Common& common, const Status& status) {
  return status.ok() ? 0 : Fail(common, status);
}

Status Print(std::string_view text, std::size_t open_lists) {
  // A line that was begun is finished.
  if (Ended() && !g_line_open) return Cancelled("interrupted");
  g_open_lists = open_lists;
  return WriteOutput(text);
}

Json Envelope(const Common& common, bool ok) {
  return {{"schema", "ztstream/1"}, {"cmd", common.command}, {"ok", ok}};
}

std::string Dump(const Json& json) { return OneLine(json) + "\n"; }

Status PrintJson(const Common& common, const Json& json) {
  if (!common.product_on_output) return Print(Dump(json));
  WriteLine(Dump(json));
  return OkStatus();
}

std::string ValueText(const Value& value, std::size_t most) {
  std::string text;
  AppendJson(value, text, most);
  if (text.size() > most) {
    std::size_t end = most - 3;  // the end of a character
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
    text = text.substr(0, end) + "...";
  }
  return Printable(text);
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

std::string HumanSeconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f s", seconds);
  return text;
}

std::string Counted(std::uint64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string Grouped(std::uint64_t number) {
  std::string out = std::to_string(number);
  for (std::size_t at = out.size(); at > 3; at -= 3) out.insert(at - 3, ",");
  return out;
}

std::string SummaryText(const std::string& output, std::uint64_t tensors, std::uint64_t bytes_in,
                        std::uint64_t bytes_out, double seconds, std::uint64_t files) {
  return output + ": " + Counted(tensors, "tensor") + ", " +
         (files > 0 ? Counted(files, "file") + ", " : "") + HumanBytes(bytes_in) + " in, " +
         HumanBytes(bytes_out) + " out, " + HumanSeconds(seconds) + ", " +
         HumanRate(static_cast<double>(bytes_in) / std::max(seconds, 1e-6));
}

namespace {

// Appends an object for a value that JSON has no number for.
void AppendNonFinite(double value, std::string& out) {
  const char* const text = std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
  out += std::string("{\"$double\":\"") + text + "\"}";
}

}  // namespace

void AppendJson(const Value& value, std::string& out, std::size_t most) {
  switch (value.kind()) {
    case Value::Kind::kNull:
      out += "null";
      return;
    case Value::Kind::kBool:
      out += *value.AsBool() ? "true" : "false";
      return;
    case Value::Kind::kUint:
      out += std::to_string(*value.AsUint());
      return;
    case Value::Kind::kInt:
      out += std::to_string(*value.AsInt());
      return;
    case Value::Kind::kDouble:
      if (!std::isfinite(*value.AsDouble())) return AppendNonFinite(*value.AsDouble(), out);
      out += Json(*value.AsDouble()).dump();
      return;
    case Value::Kind::kString:
      out += OneLine(std::string_view(*value.AsString()).substr(0, most));
      return;
    case Value::Kind::kBytes: {
      out += "{\"$bytes\":\"";
      for (const std::byte byte : *value.AsBytes()) {
        if (out.size() > most) return;
        AppendHex(out, static_cast<std::uint32_t>(byte), 2);
      }
      out += "\"}";
      return;
    }
    case Value::Kind::kArray: {
      out += '[';
      std::string_view between;
      for (const Value& each : *value.AsArray()) {
        if (out.size() > most) return;
        out += between;
        AppendJson(each, out, most);
        between = ",";
      }
      out += ']';
      return;
    }
    case Value::Kind::kMap:
      return AppendJson(*value.AsMap(), out, most);
  }
}

void AppendJson(const Value::Map& map, std::string& out, std::size_t most) {
  out += '{';
  std::string_view between;
  for (const auto& [key, value] : map) {
    if (out.size() > most) return;
    out += between;
    out += OneLine(key) + ":";
    AppendJson(value, out, most);
    between = ",";
  }
  out += '}';
}

}  // namespace zt::cli::internal

namespace zt::cli {

void AppendAttributes(const Value::Map& attributes, std::string& out) {
  internal::AppendJson(attributes, out);
}

}  // namespace zt::cli
