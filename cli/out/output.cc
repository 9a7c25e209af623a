// zt.cli:output — escaping, messages, JSON, sizes.
module;

#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>
#include <wchar.h>

#include "core/retry.h"
#include "sink/write_all.h"

module zt.cli;

import zt.std;
import :output;
import :signals;

namespace zt::cli::internal {
namespace {

// JSON in one line. Bytes that are not UTF-8 become replacement characters.
std::string OneLine(const Json& json) {
  return EscapeUnseen(json.dump(-1, ' ', false, Json::error_handler_t::replace));
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

Status WriteOutput(std::string_view text, std::size_t open_lists = 0) {
  if (text.empty()) return OkStatus();
  const std::lock_guard lock(Lines());
  g_printed = true;
  g_open_lists = open_lists;
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
  error["message"] = Worded(common, status);
  if (Json advice = AdviceJson(common, status); !advice.empty())
    error["advice"] = std::move(advice);
  Json json = Envelope(common, false);
  json["error"] = std::move(error);
  return json;
}

// The columns of a character: 2 of Chinese and Japanese ones, 0 of what is put over another.
std::size_t WidthOf(std::string_view character) {
  static const locale_t utf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (character.size() == 1 || utf8 == nullptr) return 1;
  const locale_t before = ::uselocale(utf8);
  wchar_t code = 0;
  mbstate_t state = {};
  const bool known =
      ::mbrtowc(&code, character.data(), character.size(), &state) == character.size();
  const int width = known ? ::wcwidth(code) : 1;
  ::uselocale(before);
  return width < 0 ? 1 : static_cast<std::size_t>(width);
}

// The error as an object, or as the rest of the one that is printed in part.
std::string EndOfOutput(const Json& error) {
  if (!g_line_open) return Dump(error);
  return std::string(g_open_lists, ']') + ",\"ok\":false,\"error\":" + OneLine(error["error"]) +
         "}\n";
}

}  // namespace

std::size_t Columns(std::string_view printable) {
  std::size_t columns = 0;
  for (std::size_t at = 0, next; at < printable.size(); at = next) {
    next = at + 1;
    while (next < printable.size() && (static_cast<unsigned char>(printable[next]) & 0xc0) == 0x80)
      ++next;
    columns += WidthOf(printable.substr(at, next - at));
  }
  return columns;
}

std::optional<Shape> LogicalShape(const Value::Map& attributes) {
  const Value* const logical = FindMember(attributes, kLogicalShape);
  return logical == nullptr ? std::nullopt : ToShape(*logical);
}

std::optional<Content> ContentOf(const TensorSource& source, ComponentId id) {
  const auto identity = source.identity(id);
  if (!identity) return std::nullopt;
  const Object& object = source.objects()[id.object];
  const Component& component = object.components[id.component];
  const ElementType& element = component.element;
  const auto rule = RuleOf(object, id.component, component.bytes);
  // Aliases of other shapes are the same numbers, unless a rule is about the shape.
  return Content(*identity, object.format, element.type, element.dtype, rule, component.role,
                 rule ? object.shape : Shape{ElementCount(object.shape).value_or(0)},
                 rule ? CountIndices(object).value_or(0) : 0);
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
  const StatusCode code = status.code();
  const bool of_input = code == StatusCode::kDataLoss || code == StatusCode::kUnimplemented ||
                        (code == StatusCode::kCancelled && FileOf(status));
  if (of_input && Ended()) return Fail(common, Cancelled("interrupted"));
  Note(Worded(common, status));
  if (common.json) {
    const Json json = ErrorJson(common, status);
    if (common.product_on_output) {
      WriteLine(Dump(json));
    } else {
      (void)WriteOutput(EndOfOutput(json));
    }
  }
  return ExitStatus(status);
}

void SayInterrupted(const Common& common, std::string_view lines) {
  const Status status = Cancelled("interrupted");
  (void)WriteTo(STDERR_FILENO, std::string(lines) + "ztstream: " + Message(status) + "\n");
  if (!common.json || (g_printed && !g_line_open)) return;
  const int fd = common.product_on_output ? STDERR_FILENO : STDOUT_FILENO;
  pollfd ready = {fd, POLLOUT, 0};
  if (::poll(&ready, 1, 0) > 0) (void)WriteTo(fd, EndOfOutput(ErrorJson(common, status)));
}

int Done(const Common& common, const Status& status) {
  return status.ok() ? 0 : Fail(common, status);
}

Status Print(std::string_view text, std::size_t open_lists) {
  if (Ended()) return Cancelled("interrupted");
  return WriteOutput(text, open_lists);
}

Json Envelope(const Common& common, bool ok) {
  return {{"schema", "ztstream/2"}, {"cmd", common.command}, {"ok", ok}};
}

Json NumberJson(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
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

std::string HumanRate(double rate) {
  return HumanBytes(static_cast<std::uint64_t>(std::max(0.0, rate))) + "/s";
}

std::string HumanSeconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f s", seconds);
  return text;
}

std::string Grouped(std::uint64_t number) {
  std::string out = std::to_string(number);
  for (std::size_t at = out.size(); at > 3; at -= 3) out.insert(at - 3, ",");
  return out;
}

std::string PartText(std::uint64_t number, int digits) {
  char text[24];
  std::snprintf(text, sizeof text, "%0*llu", digits, static_cast<unsigned long long>(number));
  return text;
}

std::string RangesText(std::span<const std::uint64_t> numbers, std::string_view between,
                       std::size_t most) {
  std::string out;
  for (std::size_t begin = 0, end, ranges = 0; begin < numbers.size(); begin = end, ++ranges) {
    if (ranges == most) return out + ", ... " + std::to_string(numbers.back());
    for (end = begin + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) ++end;
    out += (ranges == 0 ? "" : std::string(between)) + std::to_string(numbers[begin]);
    if (end - begin > 1) out += "-" + std::to_string(numbers[end - 1]);
  }
  return out;
}

std::string IndexText(const nlohmann::json& metadata, const nlohmann::json& weight_map) {
  return nlohmann::json{{"metadata", metadata}, {"weight_map", weight_map}}.dump(2) + "\n";
}

std::string SummaryText(const std::string& output, std::uint64_t tensors, std::uint64_t bytes_in,
                        std::uint64_t bytes_out, double seconds, std::uint64_t files) {
  return output + ": " + Counted(tensors, "tensor") + ", " +
         (files > 0 ? Counted(files, "file") + ", " : "") + HumanBytes(bytes_in) + " in, " +
         HumanBytes(bytes_out) + " out, " + HumanSeconds(seconds) + ", " +
         HumanRate(static_cast<double>(bytes_in) / std::max(seconds, 1e-6));
}

}  // namespace zt::cli::internal
