// zt.open — opens inputs of any format: files and bytes by their content, folders by their files.
export module zt.open;

import zt.std;
import zt.core;
import zt.source;
import zt.convert.composite;
export import :formats;
export import :options;
export import :types;

export namespace zt {

// Opens an input of any format: a file, a folder with a checkpoint, a URL (if options.store serves it),
// a pipe, or "-" for standard input. Errors name the file.
StatusOr<std::unique_ptr<TensorSource>> Open(const std::string& path,
                                             const SourceOptions& options = {});
// Opens several inputs as one source.
StatusOr<std::unique_ptr<TensorSource>> OpenInputs(const std::vector<std::string>& paths,
                                                   const SourceOptions& options = {});
// Opens the model from which a delta is to be made (DeltaMaker).
StatusOr<std::unique_ptr<TensorSource>> OpenBase(const std::string& path,
                                                 const SourceOptions& options = {});
// Opens the bytes of a file. Errors name them.
StatusOr<std::unique_ptr<TensorSource>> OpenBytes(std::shared_ptr<ByteSource> bytes,
                                                  const SourceOptions& options = {});

// OpenInputs, with quantized modules grouped by the configuration in their folder.
StatusOr<std::unique_ptr<TensorSource>> OpenGrouped(const std::vector<std::string>& paths,
                                                    const SourceOptions& options = {});
// The same, with grouped quantized modules split into the original tensors, for those who return
// them.
StatusOr<std::unique_ptr<TensorSource>> OpenUngrouped(const std::vector<std::string>& paths,
                                                      const SourceOptions& options = {});

// OpenInputs, with numbers of f32 in place of quantized tensors (Dequantize), by the configuration in
// their folder. Their memory is that of `options`. GGUF blocks stay.
StatusOr<Dequantized> OpenDequantized(const std::vector<std::string>& paths,
                                      const SourceOptions& options, DequantizeOptions numbers);
// OpenBytes, likewise, by the configuration within them.
StatusOr<Dequantized> OpenDequantizedBytes(std::shared_ptr<ByteSource> bytes,
                                           const SourceOptions& options, DequantizeOptions numbers);

// The arguments of MergeInputs.
struct Inputs {
  std::vector<std::unique_ptr<TensorSource>> sources;
  std::vector<std::string> names;
};
// The inputs of OpenInputs, each as a source.
StatusOr<Inputs> OpenEach(const std::vector<std::string>& paths, const SourceOptions& options = {});

// MergeSources for inputs: parts of tensors are put together, and those of one input are refused
// (see zt.convert.parts).
StatusOr<std::unique_ptr<TensorSource>> MergeInputs(Inputs inputs);

// True for a path that is not one of several files: of an index, which may state their digests, or
// of a folder.
StatusOr<bool> IsOneFile(const std::string& path, Store& store);
// store.Open. If there is no such .zt file but an index of its shards, the error names the index.
StatusOr<std::shared_ptr<ByteSource>> OpenNamed(const std::string& path, Store& store);
// The index or root of the .zt shards in a folder; nullopt if it holds no .zt files or files of
// other formats. An error if there are several indexes, or if the shards have not been joined.
StatusOr<std::optional<std::string>> FindZtIn(const std::string& folder,
                                              const SourceOptions& options);
// The file that the input is: itself, or the index or root in a folder (FindZtIn), empty if it holds
// none.
StatusOr<std::string> FileOfInput(const std::string& input, const SourceOptions& options);

}  // namespace zt
