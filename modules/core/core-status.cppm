// zt.core:status — errors as values, based on Abseil's Status.
export module zt.core:status;

import zt.std;

// How the codes are used throughout, and the program's exit status for each:
//
//   code                 meaning                                                    exit
//   kInvalidArgument     the caller asked for something that cannot be              2
//   kAlreadyExists       the output exists and may not be replaced                  3
//   kDataLoss            an input is malformed, truncated or contradicts itself     4
//   kUnimplemented       an input is well formed but of a kind we do not support    5
//   kUnavailable         the operating system refused: read, write, space, memory   6
//   kOutOfRange          a number does not fit its target (--on-overflow error)     7
//   kCancelled           interrupted                                              130
//   kFailedPrecondition  the library was called out of order (a bug in the caller)
//   kInternal            code that the library was given (a source, a stage, a callback) threw
//
// `std::cout << status` prints "DATA_LOSS: the fact [ztstream.tensor='NAME']" or "OK", with
// each part of the place in brackets; it needs only <ostream> and this import. Show
// Message(status) to people.
export namespace absl {
// Argument-dependent lookup finds it only if it is visible where Status is declared.
using absl::operator<<;
}  // namespace absl

export namespace zt {

// Abseil's types: an error with a code and a message; the code; a value or an error. Errors are
// returned, never thrown.
using absl::Status;
using absl::StatusCode;
using absl::StatusOr;

// The status of success.
inline Status OkStatus() { return Status(); }

// Makes a status of the given kind. `message` says what is wrong and, if that is known, what to
// do; it is copied. Use these: absl's own factories take absl::string_view.
Status InvalidArgument(std::string_view message);     // kInvalidArgument
Status AlreadyExists(std::string_view message);       // kAlreadyExists
Status InvalidData(std::string_view message);         // kDataLoss
Status Unsupported(std::string_view message);         // kUnimplemented
Status NumericError(std::string_view message);        // kOutOfRange
Status Cancelled(std::string_view message);           // kCancelled
Status FailedPrecondition(std::string_view message);  // kFailedPrecondition
// Makes a status of any kind, for errors of other libraries.
Status MakeStatus(StatusCode code, std::string_view message);

// kUnavailable with the system's text for `error_number`: "what: No space left on device".
Status IoError(int error_number, std::string_view what);
// kUnavailable without an error number.
Status IoError(std::string_view message);

// kUnavailable, "out of memory": made at program start, so that returning it allocates nothing.
const Status& OutOfMemory();

// The place of an error (file, tensor, component) is a payload beside its message. The first value
// set is kept, because the innermost caller knows best; so each caller may add what it knows. OK
// stays OK; an empty file name is ignored.
Status WithFile(const Status& status, std::string_view file);
Status WithTensor(const Status& status, std::string_view name);
Status WithComponent(const Status& status, std::string_view role);
// The same for the error in a StatusOr.
template <typename T>
StatusOr<T> WithFile(StatusOr<T> value, std::string_view file) {
  if (!value.ok()) return WithFile(value.status(), file);
  return value;
}
template <typename T>
StatusOr<T> WithTensor(StatusOr<T> value, std::string_view name) {
  if (!value.ok()) return WithTensor(value.status(), name);
  return value;
}
// Adds the broken rule, "zTensor 2.0 §5.2", shown in brackets after the message; the first one set
// is kept.
Status WithRule(const Status& status, std::string_view rule);
// The values set above, neither quoted nor cut.
std::optional<std::string> FileOf(const Status& status);
std::optional<std::string> TensorOf(const Status& status);
std::optional<std::string> ComponentOf(const Status& status);

// What a caller can do about an error, apart from what is wrong. A library says it as data; the
// program, the C interface and Python word it, each in a table of its own.
enum class Advice : std::uint8_t {
  kExclude,      // leave this tensor out
  kRename,       // give it another name
  kDtype,        // store it as another element type
  kDequantize,   // make numbers of quantized blocks
  kAllowLoss,    // let integers drop fractions
  kOnOverflow,   // say what numbers that do not fit become
  kVoidDtype,    // say what npy's arrays of opaque elements are
  kReplace,      // let the output replace what is there
  kMetadata,     // leave out the attributes of the whole file
  kFrames,       // choose another frame size
  kMemory,       // raise the memory limit
  kFormat,       // say which format the input has
  kFiles,        // say which files go along with a model
  kFollowLinks,  // allow links out of the folder
  kUnsigned,     // read a bucket without credentials
  kPartSize,     // choose another size of the parts of an upload
  kShards,       // write several smaller files
  kCanonical,    // write the canonical form of 2.0
  kVariant,      // say which of a model's variants is meant
  kBase,         // say which model a delta stands on
};
// Its stable name: "exclude", "void_dtype".
std::string_view AdviceName(Advice advice);
// Adds advice to an error, after what was added before; the same again, or for OK, adds nothing.
Status WithAdvice(const Status& status, Advice advice);
// Adds the advice of another error, whose message this one repeats.
Status WithAdvice(const Status& status, const Status& of);
// What was added, in that order.
std::vector<Advice> AdviceOf(const Status& status);

// Puts "context: " before the message, or before the tensor or component if one is set.
Status Annotate(const Status& status, std::string_view context);

// Replaces the message or the code; keeps the place.
Status WithFact(const Status& status, std::string_view fact);
Status WithCode(const Status& status, StatusCode code);

// The message without the place: "the fact (rule)". status.message() is the fact alone.
std::string Fact(const Status& status);
// Everything but the code and the advice: "FILE: tensor 'NAME': component 'ROLE': the fact (rule)".
std::string Message(const Status& status);

// Puts `name` in single quotes and escapes control characters and quotes, so that any name fits on
// one line.
std::string Quote(std::string_view name);

// A name where it is repeated, for each component of a tensor or each tensor that shares bytes with
// it: as much of it, in whole characters, as takes at most 256 bytes in JSON (768 in characters that
// are not seen, which the program escapes), and "..." if that is not all. So what is listed of a
// file stays in proportion to it.
std::string Repeated(std::string_view name);

// Collects names for one line of a message: lists the first twenty and counts the rest.
class NameList {
 public:
  // Adds `text` unchanged; see Quote.
  void Add(std::string_view text);
  bool empty() const { return count_ == 0; }
  // True if more are only counted.
  bool is_full() const;
  // "A, B and 3 more".
  std::string ToString() const;

 private:
  std::string first_;
  std::uint64_t count_ = 0;
};

// "tensor 'NAME'", for messages about several tensors.
std::string TensorContext(std::string_view name);

// For checks of a caller's declarations: turns kDataLoss into kInvalidArgument; other codes stay.
Status AsInvalidArgument(const Status& status);

// Call in a `catch`: turns the exception into a kInternal error. Rethrows std::bad_alloc.
Status ExceptionAsStatus();
// Calls code that may throw, as a caller's, and turns an exception into an error as above, to which
// `name` adds names.
template <class Call, class Name>
auto CatchAsStatus(const Call& call, const Name& name) -> decltype(call()) {
  try {
    return call();
  } catch (...) {
    return name(ExceptionAsStatus());
  }
}
// The same without names.
template <class Call>
auto CatchAsStatus(const Call& call) -> decltype(call()) {
  return CatchAsStatus(call, [](const Status& status) { return status; });
}

// The program's exit status for `status`, by the table above; 70 for a code not in it.
int ExitStatus(const Status& status);

}  // namespace zt
