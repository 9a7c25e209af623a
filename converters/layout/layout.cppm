// zt.convert.layout — plans a file of another format as a list of pieces, and writes it to a sink
// in one pass.
export module zt.convert.layout;

import zt.std;
import zt.core;
import zt.pipeline;
import zt.sink;
import zt.source;

export namespace zt {

// A range of one component, and the bytes that precede it in the file.
struct LayoutPiece {
  std::vector<std::byte> before = {};  // written first
  std::uint64_t zeros = 0;             // number of zeros after `before`
  ComponentId source = {};             // the component
  std::uint64_t offset = 0;            // of the range in the component
  std::uint64_t bytes = 0;             // size of the range
  // Changes the bytes in place before they are written; may be null. Called with whole units.
  std::function<void(std::span<std::byte>)> change = {};
  std::uint64_t unit = 1;  // unit size in bytes; `bytes` is a multiple of it
};

// Builds the parts of the file that depend on the data of the pieces. AfterPiece and End are called
// in file order, one call at a time.
class LayoutTrailer {
 public:
  virtual ~LayoutTrailer() = default;
  // The size of what AfterPiece(index) will return; known before the data.
  virtual std::uint64_t BytesAfter(std::size_t index) const = 0;
  // The bytes that follow piece `index`; `crc` is the CRC-32 (of zip) of the piece.
  virtual std::vector<std::byte> AfterPiece(std::size_t index, std::uint32_t crc) = 0;
  // The last bytes of the file.
  virtual std::vector<std::byte> End() = 0;
};

// A file of another format: its pieces, one after another, and its end. It is planned from the
// declarations, so anything the format cannot express is found before a byte is written.
struct FileLayout {
  std::vector<LayoutPiece> pieces;         // in the order of the file
  std::vector<std::byte> end;              // after the last piece
  std::uint64_t end_zeros = 0;             // number of zeros after `end`
  std::shared_ptr<LayoutTrailer> trailer;  // may be null; CRCs are computed only if it is set
  std::uint64_t bytes = 0;                 // size of the file
  std::vector<std::string> warnings;       // losses in this format, one line each
};

// Options of WriteLayout.
struct LayoutOptions {
  unsigned threads = 0;            // 0 means UsableThreads()
  std::uint64_t memory_bytes = 0;  // limit on data in flight, see MemoryFor
  const Share* share = nullptr;    // if set, decides both; see RunNumbered
  // Set by another thread to stop: kCancelled. May be null.
  const std::atomic<bool>* cancelled = nullptr;
  // Called with the component bytes written so far, in order, by one thread at a time.
  std::function<void(std::uint64_t bytes)> progress = {};
};

// Streams the layout into `sink`, and reads ahead on several threads; calls neither sink.Finish nor
// source.Finish. If the sink can place bytes, several threads write. kUnimplemented if the source
// is not seekable and the layout has another order. Errors name file and tensor.
Status WriteLayout(TensorSource& source, const FileLayout& layout, Sink& sink,
                   const LayoutOptions& options = {});

}  // namespace zt
