// zt.cli:output — what the program prints: messages, JSON, sizes, summaries, progress. Internal.
module zt.cli:output;

import zt.std;
import :args;

namespace zt::cli::internal {

using Json = nlohmann::ordered_json;

// `text` so that a terminal shows it and does nothing else: control characters, line breaks, marks that turn the
// direction of text, and bytes that are not UTF-8 are escaped (\n, \x1b, \u202e). Everything that comes from a file
// or from the command line passes here on its way to a person.
std::string Printable(std::string_view text);
// The columns that printable text takes on a terminal, roughly: its characters.
std::size_t Columns(std::string_view printable);

// "ztstream: message" on standard error and, with --json, the envelope with the error in it. Returns the exit status
// of `status`.
int Fail(const Common& common, const Status& status);
// 0 where `status` is OK, else Fail.
int Done(const Common& common, const Status& status);
// "ztstream: line" and "ztstream: warning: message" on standard error. `text` is made printable.
void Note(std::string_view text);
void Warn(std::string_view message);
// Each of them, unless --quiet was given.
void WarnAll(const Common& common, std::span<const std::string> messages);
// Holds back other lines on standard error.
std::mutex& Lines();

// Prints and flushes standard output; an error where it cannot take it all. A reader that has gone away is not one:
// the rest of the output is dropped.
Status Print(std::string_view text);

// What every result under --json begins with: {"schema": "ztstream/1", "cmd": ..., "ok": ...}. `ok` is true where
// the exit status is 0.
Json Envelope(const Common& common, bool ok);
// One line of JSON. Names that are not UTF-8 are shown with replacement characters; what Printable escapes, JSON escapes.
std::string Dump(const Json& json);
// The result: on standard output, or on standard error where standard output carries the product.
Status PrintJson(const Common& common, const Json& json);
// Appends what a value is in JSON, byte strings as {"$bytes": hexadecimal}, NaN as {"$double": "nan"}: text at once, because a tree of values takes ten
// times the memory of their text, and aborts the program where memory runs out. Ends early, within a value, once `out` has
// more than `most` bytes.
void AppendJson(const Value& value, std::string& out, std::size_t most = std::string::npos);
void AppendJson(const Value::Map& map, std::string& out, std::size_t most = std::string::npos);

// A value as JSON, printable, cut after 200 bytes.
std::string ValueText(const Value& value);

// "1.50 GiB", "12.30 MiB/s": for people.
std::string HumanBytes(std::uint64_t bytes);
std::string HumanRate(double bytes_per_second);
// "12.34 s".
std::string HumanSeconds(double seconds);
// "1 tensor", "2 tensors".
std::string Counted(std::uint64_t count, std::string_view noun);

// "1,234,567".
std::string Grouped(std::uint64_t number);

// "a, b and c", with `last` for "and".
template <typename Words>
std::string Joined(const Words& words, std::string_view last) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " " + std::string(last) + " " : ", ";
    out += words[i];
  }
  return out;
}

// The line that ends a command that wrote something: "OUT: 3 tensors, 1.00 MiB in, 1.00 MiB out, 0.10 s, 10 MiB/s". Of files
// of the model it tells where there are some.
std::string SummaryText(const std::string& output, std::uint64_t tensors, std::uint64_t bytes_in,
                        std::uint64_t bytes_out, double seconds, std::uint64_t files = 0);

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
