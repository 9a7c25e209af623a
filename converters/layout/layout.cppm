// zt.convert.layout — a file of another format, planned front to back, and its one-pass writing into a sink.
export module zt.convert.layout;

import zt.std;
import zt.core;
import zt.sink;
import zt.source;

export namespace zt {

// Bytes of one component, and what the file has before them.
struct LayoutPiece {
  std::vector<std::byte> before = {};  // written first
  std::uint64_t zeros = 0;             // then so many zeros
  ComponentId source = {};             // then these bytes of the component
  std::uint64_t offset = 0;            // the first of them, in the component
  std::uint64_t bytes = 0;             // how many
  // What changes the bytes in place before they are written, or null. It is given whole units.
  std::function<void(std::span<std::byte>)> change = {};
  std::uint64_t unit = 1;  // bytes; `bytes` is a multiple of it
};

// What depends on the data of the pieces. AfterPiece and End are called in the order of the file, one call at a time.
class LayoutTrailer {
 public:
  virtual ~LayoutTrailer() = default;
  // How many bytes follow those of piece `index`; known before its data.
  virtual std::uint64_t BytesAfter(std::size_t index) const = 0;
  // What follows the bytes of piece `index`, whose CRC-32 (zip's) is `crc`.
  virtual std::vector<std::byte> AfterPiece(std::size_t index, std::uint32_t crc) = 0;
  // What ends the file.
  virtual std::vector<std::byte> End() = 0;
};

// A file of another format: its pieces, one after another, and its end. It is planned from declarations, so what the
// format cannot express is found before anything is written.
struct FileLayout {
  std::vector<LayoutPiece> pieces;         // in the order of the file
  std::vector<std::byte> end;              // after the last piece
  std::uint64_t end_zeros = 0;             // then so many zeros
  std::shared_ptr<LayoutTrailer> trailer;  // or null; CRCs are computed only for it
  std::uint64_t bytes = 0;                 // of the file
  std::vector<std::string> warnings;       // what the format does not keep; one line each
};

// How WriteLayout works.
struct LayoutOptions {
  unsigned threads = 0;                          // 0 means UsableThreads()
  std::uint64_t memory_bytes = 0;                // for bytes under way, see MemoryFor
  const std::atomic<bool>* cancelled = nullptr;  // or set by another thread to stop: kCancelled
  // Called in order, by one thread at a time, with the bytes of components written so far.
  std::function<void(std::uint64_t bytes)> progress = {};
};

// Streams the layout into `sink`, reading ahead on several threads; calls neither sink.Finish nor source.Finish.
// Into a sink that can place bytes they go from several threads at once. Fails with kUnimplemented if the source is not
// seekable and the layout has another order than it. Errors name file and tensor.
Status WriteLayout(TensorSource& source, const FileLayout& layout, Sink& sink,
                   const LayoutOptions& options = {});

}  // namespace zt
