// zt.core:status — makes errors, and adds files, tensors and components to them.
module;

#include "absl/status/status.h"
#include "absl/strings/cord.h"

module zt.core;

import zt.std;

namespace zt {
namespace {

constexpr std::uint64_t kMostNamed = 20;

}  // namespace

Status MakeStatus(StatusCode code, std::string_view message) {
  return Status(code, {message.data(), message.size()});
}

Status InvalidArgument(std::string_view message) {
  return MakeStatus(StatusCode::kInvalidArgument, message);
}
Status AlreadyExists(std::string_view message) {
  return MakeStatus(StatusCode::kAlreadyExists, message);
}
Status InvalidData(std::string_view message) { return MakeStatus(StatusCode::kDataLoss, message); }
Status Unsupported(std::string_view message) {
  return MakeStatus(StatusCode::kUnimplemented, message);
}
Status NumericError(std::string_view message) {
  return MakeStatus(StatusCode::kOutOfRange, message);
}
Status Cancelled(std::string_view message) { return MakeStatus(StatusCode::kCancelled, message); }
Status FailedPrecondition(std::string_view message) {
  return MakeStatus(StatusCode::kFailedPrecondition, message);
}

Status IoError(std::string_view message) { return MakeStatus(StatusCode::kUnavailable, message); }

namespace {
const Status kOutOfMemory = IoError("out of memory");

// What strerror_r says: GNU's returns the text, which may be static; POSIX's, as musl has it, fills
// the buffer.
[[maybe_unused]] const char* TextOf(const char* text, const char*) { return text; }
[[maybe_unused]] const char* TextOf(int, const char* buffer) { return buffer; }
}  // namespace

const Status& OutOfMemory() { return kOutOfMemory; }

Status IoError(int error_number, std::string_view what) {
  char buffer[128] = "unknown error";
  std::string message(what);
  message += ": ";
  message += TextOf(strerror_r(error_number, buffer, sizeof buffer), buffer);
  return IoError(message);
}

namespace {

// The keys of payloads.
constexpr absl::string_view kFile = "ztstream.file", kContext = "ztstream.context",
                            kTensor = "ztstream.tensor", kComponent = "ztstream.component",
                            kRule = "ztstream.rule", kAdvice = "ztstream.advice";

// By the values of Advice.
constexpr std::string_view kAdviceNames[] = {
    "exclude",  "rename",    "dtype",  "dequantize", "allow_loss", "on_overflow", "void_dtype",
    "replace",  "metadata",  "frames", "memory",     "format",     "files",       "follow_links",
    "unsigned", "part_size", "shards", "canonical",  "variant",    "base"};
static_assert(std::size(kAdviceNames) == static_cast<std::size_t>(Advice::kBase) + 1);

std::optional<std::string> Get(const Status& status, absl::string_view kind) {
  const auto held = status.GetPayload(kind);
  return held ? std::optional(std::string(*held)) : std::nullopt;
}

void Set(Status& status, absl::string_view kind, std::string_view text) {
  status.SetPayload(kind, absl::Cord(absl::string_view(text.data(), text.size())));
}

std::string_view Plain(const Status& status) {
  return {status.message().data(), status.message().size()};
}

Status With(const Status& status, absl::string_view kind, std::string_view text) {
  if (status.ok() || status.GetPayload(kind)) return status;
  Status out = status;
  Set(out, kind, text);
  return out;
}

Status Reworded(const Status& status, StatusCode code, std::string_view fact) {
  Status out = MakeStatus(code, fact);
  status.ForEachPayload(
      [&](absl::string_view kind, const absl::Cord& text) { out.SetPayload(kind, text); });
  return out;
}

}  // namespace

Status WithFile(const Status& status, std::string_view file) {
  return file.empty() ? status : With(status, kFile, file);
}
Status WithTensor(const Status& status, std::string_view name) {
  return With(status, kTensor, name);
}
Status WithComponent(const Status& status, std::string_view role) {
  return With(status, kComponent, role);
}
Status WithRule(const Status& status, std::string_view rule) { return With(status, kRule, rule); }

std::string_view AdviceName(Advice advice) {
  return kAdviceNames[static_cast<std::size_t>(advice)];
}

Status WithAdvice(const Status& status, Advice advice) {
  const std::vector<Advice> held = AdviceOf(status);
  if (status.ok() || std::ranges::find(held, advice) != held.end()) return status;
  std::string names;
  for (const Advice each : held) names += std::string(AdviceName(each)) + " ";
  Status out = status;
  Set(out, kAdvice, names += AdviceName(advice));
  return out;
}

Status WithAdvice(const Status& status, const Status& of) {
  Status out = status;
  for (const Advice advice : AdviceOf(of)) out = WithAdvice(out, advice);
  return out;
}

std::vector<Advice> AdviceOf(const Status& status) {
  std::vector<Advice> out;
  const std::string names = Get(status, kAdvice).value_or("");
  for (std::size_t begin = 0; begin < names.size();) {
    const std::size_t end = std::min(names.find(' ', begin), names.size());
    const auto* const found = std::ranges::find(kAdviceNames, names.substr(begin, end - begin));
    out.push_back(static_cast<Advice>(found - kAdviceNames));
    begin = end + 1;
  }
  return out;
}

std::optional<std::string> FileOf(const Status& status) { return Get(status, kFile); }
std::optional<std::string> TensorOf(const Status& status) { return Get(status, kTensor); }
std::optional<std::string> ComponentOf(const Status& status) { return Get(status, kComponent); }

Status WithFact(const Status& status, std::string_view fact) {
  return Reworded(status, status.code(), fact);
}
Status WithCode(const Status& status, StatusCode code) {
  return Reworded(status, code, Plain(status));
}

Status Annotate(const Status& status, std::string_view context) {
  if (status.ok()) return status;
  std::string text(context);
  text += ": ";
  if (!status.GetPayload(kTensor) && !status.GetPayload(kComponent)) {
    text += Plain(status);
    return WithFact(status, text);
  }
  Status out = status;
  Set(out, kContext, text + Get(status, kContext).value_or(""));
  return out;
}

std::string Fact(const Status& status) {
  std::string out(status.message());
  if (const auto rule = Get(status, kRule)) out += " (" + *rule + ")";
  return out;
}

std::string Message(const Status& status) {
  std::string out;
  if (const auto file = FileOf(status)) out += *file + ": ";
  if (const auto context = Get(status, kContext)) out += *context;
  if (const auto tensor = TensorOf(status)) out += TensorContext(*tensor) + ": ";
  if (const auto component = ComponentOf(status)) out += "component " + Quote(*component) + ": ";
  return out + Fact(status);
}

std::string Quote(std::string_view name) {
  static constexpr char kHex[] = "0123456789abcdef";
  constexpr std::size_t kMost = 300;  // a hostile name must not hide the message
  std::string out = "'";
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    // a UTF-8 continuation byte; a character has at most four bytes
    const bool within = (byte & 0xc0) == 0x80;
    if (out.size() > kMost && !(within && out.size() < kMost + 4)) {
      out += "...";
      break;
    }
    if (c == '\'' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '\'';
  return out;
}

std::string Repeated(std::string_view name) {
  constexpr std::size_t kMost = 256;
  std::size_t end = 0, written = 0;
  for (std::size_t next; end < name.size(); end = next) {
    const auto byte = static_cast<unsigned char>(name[end]);
    next = end + 1;
    while (next < name.size() && next < end + 4 &&
           (static_cast<unsigned char>(name[next]) & 0xc0) == 0x80) {
      ++next;
    }
    const bool control = byte < 0x20 || byte == 0x7f;
    written += control ? 6 : byte == '"' || byte == '\\' ? 2 : next - end;
    if (written > kMost) return std::string(name.substr(0, end)) + "...";
  }
  return std::string(name);
}

void NameList::Add(std::string_view text) {
  if (count_++ >= kMostNamed) return;
  if (!first_.empty()) first_ += ", ";
  first_ += text;
}

bool NameList::is_full() const { return count_ >= kMostNamed; }

std::string NameList::ToString() const {
  if (count_ <= kMostNamed) return first_;
  return first_ + " and " + std::to_string(count_ - kMostNamed) + " more";
}

std::string TensorContext(std::string_view name) { return "tensor " + Quote(name); }

Status AsInvalidArgument(const Status& status) {
  return status.code() == StatusCode::kDataLoss ? WithCode(status, StatusCode::kInvalidArgument)
                                                : status;
}

Status ExceptionAsStatus() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return MakeStatus(StatusCode::kInternal, error.what());
  } catch (...) {
    return MakeStatus(StatusCode::kInternal, "the exception is not a std::exception");
  }
}

int ExitStatus(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return 0;
    case StatusCode::kInvalidArgument:
      return 2;
    case StatusCode::kAlreadyExists:
      return 3;
    case StatusCode::kDataLoss:
      return 4;
    case StatusCode::kUnimplemented:
      return 5;
    case StatusCode::kUnavailable:
      return 6;
    case StatusCode::kOutOfRange:
      return 7;
    case StatusCode::kCancelled:
      return 130;
    default:
      return 70;
  }
}

}  // namespace zt
