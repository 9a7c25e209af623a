// zt.core:status — errors as values, over Abseil's.
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
// `std::cout << status` prints "DATA_LOSS: the fact [ztstream.tensor='NAME']" or "OK", each part of the place in brackets;
// <ostream> and this import are all it takes. Message(status) is what to show to people.
export namespace absl {
using absl::
operator<<;  // found by the argument, so it has to be visible where the argument's type was declared
}

export namespace zt {

// Abseil's: a code with a message, a code, and a value or else a Status. All is returned, nothing thrown.
using absl::Status;
using absl::StatusCode;
using absl::StatusOr;

// Success.
inline Status OkStatus() { return Status(); }

// A status of the given kind; `message` says what is wrong and, where one can know, what to do. It is copied. These are
// how statuses are made: absl's own factories take another string_view.
Status InvalidArgument(std::string_view message);     // kInvalidArgument
Status AlreadyExists(std::string_view message);       // kAlreadyExists
Status InvalidData(std::string_view message);         // kDataLoss
Status Unsupported(std::string_view message);         // kUnimplemented
Status NumericError(std::string_view message);        // kOutOfRange
Status Cancelled(std::string_view message);           // kCancelled
Status FailedPrecondition(std::string_view message);  // kFailedPrecondition
// A status of any kind; for errors of other libraries.
Status MakeStatus(StatusCode code, std::string_view message);

// kUnavailable with the system's words for `error_number`: "what: No space left on device".
Status IoError(int error_number, std::string_view what);
// kUnavailable, where there is no number.
Status IoError(std::string_view message);

// kUnavailable, "out of memory": made when the program starts, so that returning it takes no memory.
const Status& OutOfMemory();

// An error's place is data beside its fact: the file, the tensor and the component. The innermost knows best: one that is
// set stays, so that each caller may add what it knows. OK stays OK, and an empty file is none.
Status WithFile(const Status& status, std::string_view file);
Status WithTensor(const Status& status, std::string_view name);
Status WithComponent(const Status& status, std::string_view role);
// The same of the error that is there in a value's place.
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
// The rule that is broken, "zTensor 2.0 §5.2", which goes in brackets after the fact; the innermost, too.
Status WithRule(const Status& status, std::string_view rule);
// What was set, as it was given: neither quoted nor cut.
std::optional<std::string> FileOf(const Status& status);
std::optional<std::string> TensorOf(const Status& status);
std::optional<std::string> ComponentOf(const Status& status);

// "context: " before the fact or, where the tensor or the component is known already, before these.
Status Annotate(const Status& status, std::string_view context);

// Another fact, or another code, of the same place.
Status WithFact(const Status& status, std::string_view fact);
Status WithCode(const Status& status, StatusCode code);

// What is wrong, without the place: "the fact (rule)"; status.message() is the fact alone.
std::string Fact(const Status& status);
// All but the code, as it is printed: "FILE: tensor 'NAME': component 'ROLE': the fact (rule)".
std::string Message(const Status& status);

// 'name' in single quotes, control characters and quotes escaped, so that any name fits one line of an error.
std::string Quote(std::string_view name);

// Names for one line of a message: the first twenty, and how many more there are.
class NameList {
 public:
  // Takes `text` as it stands; see Quote.
  void Add(std::string_view text);
  bool empty() const { return count_ == 0; }
  // "A, B and 3 more".
  std::string Text() const;

 private:
  std::string first_;
  std::uint64_t count_ = 0;
};

// "tensor 'NAME'", for a fact that is about several.
std::string TensorContext(std::string_view name);

// What a check of data found in what a caller declared: kDataLoss becomes kInvalidArgument, all else stays as it is.
Status OfCaller(const Status& status);

// In a `catch`: what was caught, as an error (kInternal). Memory that ran out is thrown on.
Status OfException();

// The program's exit status for `status`, by the table above. 0 for OK; 70 for a code the table lacks.
int ExitStatus(const Status& status);

}  // namespace zt
