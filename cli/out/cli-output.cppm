// zt.cli:output — all printing of the program: messages, JSON, sizes, summaries, progress.
// Internal.
module zt.cli:output;

import zt.std;
import :args;
import zt.text;

namespace zt::cli::internal {

using Json = nlohmann::ordered_json;

// The files of this run, by path or URL.
Store& TheStore();

// The width of printable text on a terminal.
std::size_t Columns(std::string_view printable);

// The component with the numbers of a tensor, an Object or the like; null if it has none.
template <class T>
const auto* ElementsOf(const T& object) {
  const auto found = std::ranges::find_if(object.components, [](const auto& each) {
    return each.role == "data" || each.role == "values";
  });
  return found == object.components.end() ? nullptr : &*found;
}

// The shape in elements of an object whose own shape counts bytes of packed ones, by its attribute;
// nullopt if it has none.
std::optional<Shape> LogicalShape(const Value::Map& attributes);

// What decides the numbers of a component, and whether they are valid: of equal ones, as tied weights
// have, one is read. nullopt if it is not known.
using Content = std::tuple<Identity, std::string_view, std::string_view, DType,
                           std::optional<DataRule>, std::string_view, Shape, std::uint64_t>;
std::optional<Content> ContentOf(const TensorSource& source, ComponentId id);

// Prints "ztstream: message" on standard error and, with --json, the envelope with the error.
// Returns the exit status for `status`.
int Fail(const Common& common, const Status& status);
// 0 if `status` is OK, else Fail.
int Done(const Common& common, const Status& status);
// Print "ztstream: line" and "ztstream: warning: message" on standard error, both escaped by
// Printable.
void Note(std::string_view text);
void Warn(std::string_view message);
// Warn of each message, unless --quiet was given.
void WarnAll(const Common& common, std::span<const std::string> messages);
// What would help, in terms of the command's options: "; --exclude leaves it out". Empty if it has
// no option for it.
std::string AdviceText(const Common& common, std::optional<Advice> advice);
// Message(status) and the text of its advice.
std::string Worded(const Common& common, const Status& status);
// The same as {"exclude": "--exclude leaves it out"}.
Json AdviceJson(const Common& common, const Status& status);
// The warnings of a source with their advice, without the first `told`.
std::vector<std::string> WordedWarnings(const Common& common, const TensorSource& source,
                                        std::size_t told = 0);
// While it is locked, no line is printed on standard error.
std::mutex& Lines();

// Prints on standard output. A closed pipe is not an error: the rest of the output is dropped.
// kCancelled, and nothing is printed, after a signal. If the text is a part of an object of JSON
// without "ok", `open_lists` says how many lists are open after it: Fail completes the object.
Status Print(std::string_view text, std::size_t open_lists = 0);
// Writes `lines` and that the program was interrupted on standard error, and with --json the
// envelope with that error, unless something else is there already or nobody reads it. For the
// thread that ends the program; Lines() is locked.
void SayInterrupted(const Common& common, std::string_view lines);

// The first members of every result under --json: {"schema": "ztstream/2", "cmd": ..., "ok": ...}.
// `ok` is true if the exit status is 0.
Json Envelope(const Common& common, bool ok);
// One line of JSON. Bytes that are not UTF-8 become replacement characters; JSON escapes all that
// Printable escapes.
std::string Dump(const Json& json);
// A double in JSON, which has no NaN and no infinity: "nan", "inf", "-inf".
Json NumberJson(double value);
// Prints the result on standard output, or on standard error if standard output carries the output
// file.
Status PrintJson(const Common& common, const Json& json);
// A value as JSON, printable, cut after 200 bytes.
std::string ValueText(const Value& value, std::size_t most = 200);

// For people: "12.30 MiB/s".
std::string HumanRate(double bytes_per_second);
// "12.34 s".
std::string HumanSeconds(double seconds);
// "1,234,567".
std::string Grouped(std::uint64_t number);
// "00001".
std::string PartText(std::uint64_t number, int digits = 5);
// "2, 5-7": ascending numbers; of more than `most` ranges the first, and the last number.
std::string RangesText(std::span<const std::uint64_t> numbers, std::string_view between = ", ",
                       std::size_t most = std::string::npos);
// The text of an index.json of shards, as transformers writes it.
std::string IndexText(const nlohmann::json& metadata, const nlohmann::json& weight_map);

// The last line of a command that wrote something: "OUT: 3 tensors, 1.00 MiB in, 1.00 MiB out, 0.10
// s, 10 MiB/s". It mentions files of the model if there are any.
std::string SummaryText(const std::string& output, std::uint64_t tensors, std::uint64_t bytes_in,
                        std::uint64_t bytes_out, double seconds, std::uint64_t files = 0);

// A line of progress that is drawn again on a terminal, or anywhere with --progress always; elsewhere
// one every ten seconds.
class ProgressBar {
 public:
  ProgressBar(const Common& common, std::string_view verb);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  // Cheap: draws at most ten times a second. Not thread-safe.
  void Update(std::uint64_t bytes, std::uint64_t bytes_total, std::uint64_t tensors,
              std::uint64_t tensors_total);
  // The same for what was done since the last call, by one of several threads.
  void Add(std::uint64_t bytes, std::uint64_t bytes_total, std::uint64_t tensors,
           std::uint64_t tensors_total);
  // Clears the bar.
  void End();
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  std::string verb_;
  bool shown_ = false, bar_ = false, drawn_ = false;
  Clock::time_point start_, last_;
  std::mutex mutex_;                             // of Add
  std::uint64_t added_ = 0, added_tensors_ = 0;  // by it
};

// The width of the terminal at `descriptor`; if it is not a terminal, the value of COLUMNS, else
// `otherwise`.
std::size_t TerminalColumns(int descriptor, std::size_t otherwise);

}  // namespace zt::cli::internal
