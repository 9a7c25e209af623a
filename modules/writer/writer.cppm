// zt.writer — the one place where source -> transform -> compress -> digest -> sink is written down.
export module zt.writer;

import zt.std;
export import :chunk;
export import :object;
export import :options;
export import :plan;
import zt.core;
import zt.format;
import zt.sink;
import zt.source;
import zt.transform;

export namespace zt {

// Writes one .zt file (zTensor 1.2 §4): header, blobs in the order they are added, manifest, footer. It alone decides
// offsets, never seeks back and writes no byte twice. The same inputs and options give the same bytes for any number
// of threads.
//
// Not thread-safe: one thread adds. After an error every call returns it and the sink is aborted; so does the
// destructor of a writer that was not finished. Errors name the tensor, and the file they concern:
// the source's or the sink's. What a caller gets wrong is kInvalidArgument or kFailedPrecondition; what a caller's source,
// stage, sink or callback throws is kInternal.
class Writer {
 public:
  // A writer that owns `sink`. Nothing is written yet. kInvalidArgument where the options are out of range.
  static StatusOr<std::unique_ptr<Writer>> Create(std::unique_ptr<Sink> sink,
                                                  WriterOptions options = {});
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // An attribute of the file; the last one set wins.
  void SetAttribute(std::string_view key, Value value);
  // Many of them, at no more than a look at each.
  void SetAttributes(const Value::Map& attributes);

  // Streams everything a plan lists. Source and plan must stay until Flush or Finish returns, which also calls the
  // source's Finish: what only the end of the input tells is an error of this writer. kInvalidArgument where the plan
  // was made for another version or for another source, and where the source does not know the size of a component.
  Status AddSource(TensorSource& source, const Plan& plan);

  // One dense tensor: little-endian, in C order, DenseBytes(shape, element) of them. The bytes must stay until Flush
  // or Finish returns. Components with the same bytes (the same span) share a blob within one object; for a second
  // name see AddAlias.
  Status Add(const std::string& name, Shape shape, ElementType element,
             std::span<const std::byte> bytes);
  // The same with bytes that are moved in, which the writer keeps. Where those it keeps exceed
  // WriterOptions::memory_bytes, it waits until they are written, as in Flush.
  template <std::same_as<std::vector<std::byte>> V>
  Status Add(const std::string& name, Shape shape, ElementType element, V&& bytes) {
    const auto kept = std::make_shared<const V>(std::forward<V>(bytes));
    return AddKept(name, std::move(shape), std::move(element), *kept, kept);
  }
  // One dense tensor of numbers, whose type is the dtype: Add("bias", {3}, values). A vector that is moved in is kept as
  // above; values that are not must stay until Flush or Finish returns.
  template <Numbers R>
  Status Add(const std::string& name, Shape shape, R&& values) {
    using Range = std::remove_cvref_t<R>;
    constexpr DType kDType = *kDTypeOf<std::ranges::range_value_t<Range>>;
    const auto bytes_of = [](const Range& range) {
      return std::as_bytes(std::span(std::ranges::data(range), std::ranges::size(range)));
    };
    if constexpr (std::endian::native == std::endian::big) {
      const std::span bytes = bytes_of(values);
      std::vector<std::byte> swapped(bytes.begin(), bytes.end());
      LittleEndian(swapped, sizeof(std::ranges::range_value_t<Range>));
      return Add(name, std::move(shape), {kDType}, std::move(swapped));
    } else if constexpr (std::is_lvalue_reference_v<R> || std::ranges::borrowed_range<Range>) {
      return Add(name, std::move(shape), {kDType}, bytes_of(values));
    } else {
      const auto kept = std::make_shared<const Range>(std::forward<R>(values));
      return AddKept(name, std::move(shape), {kDType}, bytes_of(*kept), kept);
    }
  }
  // An object of any format with the bytes of its components in order; their sizes need not be declared. `storage` has
  // one entry for each component, or is empty for the default. The bytes must stay until Flush or Finish returns. A
  // format of one's own has a name with a version behind a slash; a quantized_group says its `bits` and `group_size`.
  Status Add(Object object, std::vector<std::span<const std::byte>> components,
             std::vector<Storage> storage = {});

  // A file that travels with the model: config.json, a tokenizer. `path` is relative, in segments between '/', and
  // kInvalidArgument where CheckFilePath refuses it, or another file has it. The bytes must stay until Flush or Finish returns.
  Status AddFile(const std::string& path, std::span<const std::byte> bytes,
                 bool executable = false);

  // A second name for an object added before: tied weights, one blob.
  Status AddAlias(std::string name, std::string_view of);

  // Objects whose blobs lie in another file, as the manifest of that file has them. The output names the file by its
  // size and digest and holds none of its bytes; `shard.name` is what readers find it by: "00001-of-00008" of "model.zt"
  // is "model-00001-of-00008.zt". kInvalidArgument where the version has no shards (2.0 has).
  Status AddShard(const StoredShard& shard, std::vector<StoredObject> objects);

  // Begins an object whose bytes come piece by piece. Component sizes may be kUnknownSize. `storage` has one entry
  // for each component, or is empty for the default. Finish it before anything else is added.
  StatusOr<std::unique_ptr<ObjectWriter>> Begin(Object object, std::vector<Storage> storage = {});

  // Waits until everything added so far has been written to the sink, so that its memory may be reused.
  Status Flush();

  // Writes the manifest and publishes the file. The writer is used up, whatever comes back.
  Status Finish();

  // Stops the workers as soon as possible; every call then returns `status`. Thread-safe.
  void Cancel(const Status& status);

  // After Flush or Finish: tensors with values that did not fit, in order.
  const std::vector<NumericFinding>& numeric_findings() const;
  // After Finish: what was stored, read back from the manifest's bytes.
  StatusOr<Manifest> manifest() const;
  // After Finish: those bytes.
  std::vector<std::byte> manifest_bytes() const;
  // After Finish: the file's size in bytes.
  std::uint64_t file_bytes() const;

 private:
  struct State;
  // `kept` holds the bytes.
  Status AddKept(const std::string& name, Shape shape, ElementType element,
                 std::span<const std::byte> bytes, std::shared_ptr<const void> kept);
  explicit Writer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace zt
