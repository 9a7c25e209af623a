// zt.writer — writes .zt files: sources pass transforms, compression and digests to a sink.
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

// Writes one .zt file (zTensor 1.2 §4): header, blobs in the order in which they are added,
// manifest, footer. Only the writer decides offsets; it never seeks back and writes no byte twice.
// Equal inputs and options give equal bytes for any number of threads.
//
// Not thread-safe: one thread adds. After an error every call returns that error and the sink is
// aborted, as it is if a writer is destroyed before Finish. Errors name the tensor and the source's
// or sink's file. Mistakes of the caller are kInvalidArgument or kFailedPrecondition; exceptions of
// a caller's source, stage, sink or callback are kInternal.
class Writer {
 public:
  // Creates a writer that owns `sink`. Writes nothing yet. kInvalidArgument if an option is out of
  // range.
  static StatusOr<std::unique_ptr<Writer>> Create(std::unique_ptr<Sink> sink,
                                                  WriterOptions options = {});
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Sets an attribute of the file; the last call wins.
  void SetAttribute(std::string_view key, Value value);
  // Sets many attributes in linear time.
  void SetAttributes(const Value::Map& attributes);

  // Streams everything in a plan. Source and plan must outlive Flush or Finish, which also call the
  // source's Finish: errors found only at the end of the input become errors of this writer.
  // kInvalidArgument if the plan was made for another version or source, or the source does not
  // know the size of a component.
  Status AddSource(TensorSource& source, const Plan& plan);

  // Adds one dense tensor: DenseBytes(shape, element) bytes, little-endian, in C order. The bytes
  // must stay valid until Flush or Finish returns. Components of one object with the same bytes
  // (the same span) share a blob; for a second name see AddAlias.
  Status Add(const std::string& name, Shape shape, ElementType element,
             std::span<const std::byte> bytes);
  // The same with bytes that are moved in and kept by the writer. If the kept bytes exceed
  // WriterOptions::memory_bytes, it waits until they are written, as in Flush.
  template <std::same_as<std::vector<std::byte>> V>
  Status Add(const std::string& name, Shape shape, ElementType element, V&& bytes) {
    const auto kept = std::make_shared<const V>(std::forward<V>(bytes));
    return AddKept(name, std::move(shape), std::move(element), *kept, kept);
  }
  // Adds one dense tensor of numbers, whose type gives the dtype: Add("bias", {3}, values). A
  // vector that is moved in is kept as above; other values must stay valid until Flush or Finish
  // returns.
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
  // Adds an object of any format with the bytes of its components in order; their sizes need not be
  // declared. `storage` has one entry for each component, or is empty for the default. The bytes
  // must stay valid until Flush or Finish returns. The name of a custom format ends in a slash and
  // a version; a quantized_group needs the attributes `bits` and `group_size`.
  Status Add(Object object, std::vector<std::span<const std::byte>> components,
             std::vector<Storage> storage = {});

  // Adds a file that travels with the model: config.json, a tokenizer. `path` is relative, in
  // segments between '/'; kInvalidArgument if CheckFilePath refuses it, or if another file has it.
  // The bytes must stay valid until Flush or Finish returns.
  Status AddFile(const std::string& path, std::span<const std::byte> bytes,
                 bool executable = false);

  // A second name for an object added before: tied weights, one blob.
  Status AddAlias(std::string name, std::string_view of);

  // Adds objects whose blobs lie in another file, as in that file's manifest. The output refers to
  // the file by size and digest and holds none of its bytes. Readers find it by `shard.name`:
  // "00001-of-00008" of "model.zt" is "model-00001-of-00008.zt". kInvalidArgument if the version
  // has no shards (2.0 has).
  Status AddShard(const StoredShard& shard, std::vector<StoredObject> objects);

  // Begins an object whose bytes come in pieces. Component sizes may be kUnknownSize. `storage` has
  // one entry for each component, or is empty for the default. Finish it before adding anything
  // else.
  StatusOr<std::unique_ptr<ObjectWriter>> Begin(Object object, std::vector<Storage> storage = {});

  // Waits until everything added so far has been written to the sink, so that its
  // memory may be reused.
  Status Flush();

  // Writes the manifest and publishes the file. The writer cannot be used afterwards, even after an
  // error.
  Status Finish();

  // Stops the workers as soon as possible; every call then returns `status`. Thread-safe.
  void Cancel(const Status& status);

  // After Flush or Finish: the tensors with values that conversions could not represent, in order.
  const std::vector<NumericFinding>& numeric_findings() const;
  // After Finish: the manifest, decoded from its bytes.
  StatusOr<Manifest> manifest() const;
  // After Finish: the bytes of the manifest.
  std::vector<std::byte> manifest_bytes() const;
  // After Finish: the file's size in bytes.
  std::uint64_t file_bytes() const;

 private:
  struct State;
  // `kept` owns the bytes.
  Status AddKept(const std::string& name, Shape shape, ElementType element,
                 std::span<const std::byte> bytes, std::shared_ptr<const void> kept);
  explicit Writer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace zt
