// zt.convert.onnx:wire — protobuf's wire format, the subset that onnx.proto needs, in files of any
// size. Internal.
module zt.convert.onnx:wire;

import zt.std;
import zt.core;
import zt.source;

namespace zt::onnx::internal {

// A byte range of the model file.
struct FileRange {
  std::uint64_t offset = 0, length = 0;
  inline std::uint64_t end() const { return offset + length; }
};

// kDataLoss: "the model is damaged at byte `at`: `what`".
Status Damaged(std::uint64_t at, std::string_view what);

struct Field {
  std::uint64_t number = 0;
  int wire = 0;             // 0: a varint, 1: 8 bytes, 2: length-delimited, 5: 4 bytes
  std::uint64_t value = 0;  // value of a varint
  FileRange range;          // the content, without tag and length
};

// Reads messages field by field through a buffer; skipped bytes are not read.
class Cursor {
 public:
  // `bytes` must not be sequential and must outlive the cursor.
  explicit Cursor(ByteSource& bytes) : bytes_(bytes), size_(*bytes.size()) {}

  static constexpr std::uint64_t kNoEnd = ~std::uint64_t{0};

  inline std::uint64_t at() const { return at_; }
  inline std::uint64_t size() const { return size_; }
  inline void SkipTo(std::uint64_t at) { at_ = at; }

  // A number that ends before `end`.
  StatusOr<std::uint64_t> Varint(std::uint64_t end);
  // Fills `out`.
  Status Bytes(std::span<std::byte> out);
  // Reads the next field of a message that ends at `end`, and skips its content. `end` may be
  // kNoEnd for the message that is the file: what reaches beyond that has been truncated.
  StatusOr<Field> Next(std::uint64_t end);
  // Reads a name; kUnimplemented if it is longer than 1 MiB. Does not restore the position.
  StatusOr<std::string> Name(const FileRange& range);
  // The number of varints in `range`. Does not restore the position.
  StatusOr<std::uint64_t> CountVarints(const FileRange& range);

 private:
  // Makes the buffer hold the byte at the position; the buffered bytes from there on.
  StatusOr<std::span<const std::byte>> Buffered();

  ByteSource& bytes_;
  const std::uint64_t size_;
  std::uint64_t at_ = 0, begin_ = 0;
  std::vector<std::byte> buffer_;
};

// Calls f(field) for each field of the message in `range`.
template <typename Function>
Status ForEachField(Cursor& cursor, const FileRange& range, Function f) {
  cursor.SkipTo(range.offset);
  // No other message begins where the file does.
  const std::uint64_t end = range.offset == 0 ? Cursor::kNoEnd : range.end();
  while (cursor.at() < range.end()) {
    auto field = cursor.Next(end);
    if (!field.ok()) return field.status();
    const std::uint64_t after = cursor.at();
    if (Status status = f(*field); !status.ok()) return status;
    cursor.SkipTo(after);
  }
  return OkStatus();
}

}  // namespace zt::onnx::internal
