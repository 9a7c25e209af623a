/* ztstream/ztstream.h — ztstream for C++17 and any compiler: RAII over ztstream/c.h, in a header.
 * In C it only includes c.h.
 *
 * Errors are thrown as ztstream::Error, whose code() is the exit status of the program. No type of
 * the standard library crosses into the shared library, so the compiler and its options need not be
 * those that built the library. */
#ifndef ZTSTREAM_ZTSTREAM_H_
#define ZTSTREAM_ZTSTREAM_H_

#include "ztstream/c.h"

#ifdef __cplusplus

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace ztstream {

// An error. Its message is one line with the names of file and tensor.
class Error : public std::runtime_error {
 public:
  Error(zts_status code, const char* message) : std::runtime_error(message), code_(code) {}
  zts_status code() const { return code_; }

 private:
  zts_status code_;
};

// Throws the last error of the calling thread unless `status` is ZTS_OK.
inline void Check(zts_status status) {
  if (status != ZTS_OK) throw Error(status, zts_last_error());
}

namespace internal {

// A text as C has it. Throws if U+0000 would end it.
inline const char* Whole(const std::string& text) {
  if (text.find('\0') == text.npos) return text.c_str();
  throw Error(ZTS_INVALID_ARGUMENT, "a key, path or type holds a zero byte, which ends texts of C");
}

// A text as JSON.
inline std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) {
      out += c;
    } else {
      out += c < 0x10 ? "\\u000" : "\\u001";
      out += "0123456789abcdef"[c & 15];
    }
  }
  return out + '"';
}

}  // namespace internal

// The dtype of an arithmetic type: kDType<float> is "f32".
template <typename T>
constexpr const char* DTypeName() {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8, "AddBytes takes other types by name");
  constexpr std::size_t size = sizeof(T) == 8 ? 3 : sizeof(T) == 4 ? 2 : sizeof(T) == 2 ? 1 : 0;
  constexpr const char* names[3][4] = {
      {"i8", "i16", "i32", "i64"}, {"u8", "u16", "u32", "u64"}, {nullptr, nullptr, "f32", "f64"}};
  if constexpr (std::is_same_v<T, bool>) {
    return "bool";
  } else {
    return names[std::is_floating_point_v<T> ? 2 : std::is_unsigned_v<T>][size];
  }
}
template <typename T>
inline constexpr const char* kDType = DTypeName<T>();

using Shape = std::vector<std::uint64_t>;

// How to open an input: zts_reader_options with its defaults.
struct ReaderOptions : zts_reader_options {
  ReaderOptions() { zts_reader_options_init(this, sizeof(zts_reader_options)); }
};

// How to write a file: zts_writer_options with its defaults.
struct WriterOptions : zts_writer_options {
  WriterOptions() { zts_writer_options_init(this, sizeof(zts_writer_options)); }
};

// Where the bytes of a writer go, in order. What a function throws comes out of the call of the
// writer. One thread at a time calls them, not always the same one.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void Append(const void* data, std::size_t bytes) = 0;
  virtual void Finish(std::uint64_t /*total*/) {}  // after the last byte
  virtual void Abort() noexcept {}                 // discards what was appended
};

// A part of an object of several: `dtype` is any name of a type. Of one that is begun `data` is null
// and `bytes` may be ZTS_UNKNOWN.
struct Part {
  std::string role, dtype;
  const void* data = nullptr;
  std::uint64_t bytes = ZTS_UNKNOWN;
};

// Writes one .zt file, which appears under its name when Finish returns. A writer that is destroyed
// before leaves no file.
class Writer {
 public:
  explicit Writer(const std::string& path, const WriterOptions& options = {}) {
    Check(zts_writer_open(internal::Whole(path), &options, &writer_));
  }
  // Writes to `sink`, which must outlive the writer; `name` stands for the file in errors.
  explicit Writer(Sink& sink, const std::string& name = "sink", const WriterOptions& options = {})
      : called_(std::make_unique<Called>(Called{&sink, nullptr})) {
    zts_sink functions = {};
    functions.size = sizeof functions;
    functions.name = internal::Whole(name);
    functions.append = [](const void* data, std::size_t bytes, void* user) {
      return Call(user, [&](Sink& to) { to.Append(data, bytes); });
    };
    functions.finish = [](std::uint64_t total, void* user) {
      return Call(user, [&](Sink& to) { to.Finish(total); });
    };
    functions.abort = [](void* user) { static_cast<Called*>(user)->sink->Abort(); };
    functions.user = called_.get();
    Done(zts_writer_open_sink(&functions, &options, &writer_));
  }
  ~Writer() { zts_writer_free(writer_); }
  Writer(Writer&& other) noexcept { *this = std::move(other); }
  Writer& operator=(Writer&& other) noexcept {
    std::swap(writer_, other.writer_);
    std::swap(called_, other.called_);
    std::swap(kept_, other.kept_);
    std::swap(kept_bytes_, other.kept_bytes_);
    return *this;
  }
  // For functions of c.h. The writer keeps it.
  zts_writer* native() const { return writer_; }

  // Sets an attribute of the file: a text, a bool or a number of any type. SetJson sets each member
  // of a JSON object, in the form of zts_reader_attributes.
  template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  void Set(const std::string& key, T v) {
    if constexpr (std::is_same_v<T, bool>) {
      Done(zts_writer_set_bool(writer_, internal::Whole(key), v));
    } else if constexpr (std::is_floating_point_v<T>) {
      Done(zts_writer_set_double(writer_, internal::Whole(key), static_cast<double>(v)));
    } else if (v <= T{0} || static_cast<std::uint64_t>(v) <= std::uint64_t{INT64_MAX}) {
      Done(zts_writer_set_int(writer_, internal::Whole(key), static_cast<std::int64_t>(v)));
    } else {
      SetJson("{" + internal::Quoted(key) + ":" + std::to_string(v) + "}");
    }
  }
  void Set(const std::string& key, std::string_view v) {
    const std::string text(v);
    // Only JSON has texts with U+0000, which ends those of C.
    if (key.find('\0') != key.npos || v.find('\0') != v.npos) {
      SetJson("{" + internal::Quoted(key) + ":" + internal::Quoted(text) + "}");
    } else {
      Done(zts_writer_set_text(writer_, key.c_str(), text.c_str()));
    }
  }
  void SetJson(const std::string& json) { Done(zts_writer_set_json(writer_, json.c_str())); }

  // Adds a dense tensor of `count` values. They must stay until Flush or Finish returns.
  template <typename T>
  void Add(const std::string& name, const Shape& shape, const T* values, std::size_t count) {
    AddBytes(name, kDType<T>, shape, values, count * sizeof(T));
  }
  template <typename T>
  void Add(const std::string& name, const Shape& shape, const std::vector<T>& values) {
    Add(name, shape, values.data(), values.size());
  }
  // The same of a vector that is moved in, which is kept as long.
  template <typename T>
  void Add(const std::string& name, const Shape& shape, std::vector<T>&& values) {
    if constexpr (std::is_same_v<T, bool>) {
      Add(name, shape, values);
    } else {
      const auto kept = std::make_shared<const std::vector<T>>(std::move(values));
      Keep(kept, kept->size() * sizeof(T), [&] { Add(name, shape, kept->data(), kept->size()); });
    }
  }
  template <typename T>
  void Add(const std::string& name, const Shape& shape, const std::vector<T>&& values) = delete;
  // Of a vector of bool, whose values are no bytes, a copy.
  void Add(const std::string& name, const Shape& shape, const std::vector<bool>& values) {
    const auto kept = std::make_shared<std::vector<unsigned char>>(values.begin(), values.end());
    Keep(kept, kept->size(), [&] { AddBytes(name, "bool", shape, kept->data(), kept->size()); });
  }
  // The same for any dtype: "bf16", "f8_e4m3fn", ...
  void AddBytes(const std::string& name, const std::string& dtype, const Shape& shape,
                const void* data, std::uint64_t bytes) {
    Done(zts_writer_add(writer_, name.data(), name.size(), internal::Whole(dtype), shape.data(),
                        shape.size(), data, bytes));
  }
  // Adds an object of several parts, or a tensor ("dense") with attributes, which are a JSON object.
  void AddObject(const std::string& name, const std::string& format, const Shape& shape,
                 const std::vector<Part>& parts, const std::string& attributes = "{}") {
    Declare(zts_writer_add_object, name, format, shape, parts, attributes);
  }
  void Alias(const std::string& name, const std::string& of) {
    Done(zts_writer_alias(writer_, name.data(), name.size(), of.data(), of.size()));
  }

  // Writes a dense tensor piece by piece: Begin, Append as often as needed, End. Where only its end
  // tells how long it is, its first dimension is 0, and SetLeadingDimension comes before End.
  void Begin(const std::string& name, const std::string& dtype, const Shape& shape,
             const std::string& attributes = "{}") {
    BeginObject(name, "dense", shape, {{"data", dtype}}, attributes);
  }
  // The same of an object; Next goes to its next part.
  void BeginObject(const std::string& name, const std::string& format, const Shape& shape,
                   const std::vector<Part>& parts, const std::string& attributes = "{}") {
    Declare(zts_writer_begin, name, format, shape, parts, attributes);
  }
  void Append(const void* data, std::uint64_t bytes) {
    Done(zts_writer_append(writer_, data, bytes));
  }
  void Next() { Done(zts_writer_next(writer_)); }
  void SetLeadingDimension(std::uint64_t size) {
    Done(zts_writer_set_leading_dimension(writer_, size));
  }
  void End() { Done(zts_writer_end(writer_)); }

  void Flush() {
    Done(zts_writer_flush(writer_));
    kept_.clear();
    kept_bytes_ = 0;
  }
  void Finish() { Done(zts_writer_finish(writer_)); }

 private:
  struct Called {
    Sink* sink;
    std::exception_ptr thrown;
  };
  template <typename Body>
  static int Call(void* user, Body&& body) noexcept {
    Called& called = *static_cast<Called*>(user);
    try {
      body(*called.sink);
      return 0;
    } catch (...) {
      called.thrown = std::current_exception();
      return 5;  // EIO
    }
  }
  void Done(zts_status status) {
    if (status == ZTS_OK) return;
    if (called_ != nullptr && called_->thrown) std::rethrow_exception(called_->thrown);
    Check(status);
  }
  template <typename Added>
  void Keep(std::shared_ptr<const void> values, std::size_t bytes, Added&& add) {
    kept_.push_back(std::move(values));
    add();
    kept_bytes_ += bytes;
    if (kept_bytes_ >= (std::size_t{64} << 20)) Flush();
  }
  template <typename Function>
  void Declare(Function* function, const std::string& name, const std::string& format,
               const Shape& shape, const std::vector<Part>& parts, const std::string& attributes) {
    std::vector<zts_part> table;
    for (const Part& part : parts) {
      table.push_back(
          {internal::Whole(part.role), internal::Whole(part.dtype), part.data, part.bytes});
    }
    zts_declaration d = {};
    d.size = sizeof d;
    d.name = name.data();
    d.name_bytes = name.size();
    d.format = internal::Whole(format);
    d.shape = shape.data();
    d.rank = shape.size();
    d.attributes = attributes.c_str();
    d.parts = table.data();
    d.part_count = table.size();
    d.part_size = sizeof(zts_part);
    Done(function(writer_, &d));
  }

  zts_writer* writer_ = nullptr;
  std::unique_ptr<Called> called_;                 // by the functions of a sink
  std::vector<std::shared_ptr<const void>> kept_;  // what was moved in
  std::size_t kept_bytes_ = 0;
};

// An open .zt file of any version, or a checkpoint of another format: see zts_reader_open.
class Reader {
 public:
  explicit Reader(const std::string& path, const ReaderOptions& options = {}) {
    Check(zts_reader_open(internal::Whole(path), &options, &reader_));
  }
  // Opens a file in memory, which must outlive the reader; `name` stands for it in errors.
  Reader(const void* data, std::uint64_t bytes, const std::string& name = "memory",
         const ReaderOptions& options = {}) {
    Check(zts_reader_open_memory(data, bytes, internal::Whole(name), nullptr, nullptr, &options,
                                 &reader_));
  }
  ~Reader() { zts_reader_free(reader_); }
  Reader(Reader&& other) noexcept : reader_(std::exchange(other.reader_, nullptr)) {}
  Reader& operator=(Reader&& other) noexcept {
    std::swap(reader_, other.reader_);
    return *this;
  }

  // For functions of c.h. The reader keeps it.
  zts_reader* native() const { return reader_; }

  std::size_t size() const { return zts_reader_count(reader_); }
  zts_object Object(std::size_t index) const {
    zts_object object;
    Check(zts_reader_objects(reader_, index, 1, &object, sizeof object));
    return object;
  }
  std::size_t Find(const std::string& name) const {
    std::size_t index;
    Check(zts_reader_find(reader_, name.data(), name.size(), &index));
    return index;
  }
  zts_component Component(std::size_t index, std::size_t component = 0) const {
    const zts_object object = Object(index);
    if (component >= object.components) {
      throw Error(ZTS_INVALID_ARGUMENT, "there is no such component");
    }
    zts_component out;
    Check(zts_reader_components(reader_, object.first_component + component, 1, &out, sizeof out));
    return out;
  }

  // Attributes of an object or of the file, as a JSON object.
  std::string Attributes(std::size_t object = ZTS_FILE) const {
    char* json;
    Check(zts_reader_attributes(reader_, object, &json));
    const std::string out = json;
    zts_free(json);
    return out;
  }
  // Attributes of the file. They throw if there is none with the key, or if it has another type.
  std::string Text(const std::string& key) const {
    const char* value;
    std::size_t bytes;
    Check(zts_reader_get_text(reader_, internal::Whole(key), &value, &bytes));
    return std::string(value, bytes);
  }
  std::int64_t Int(const std::string& key) const {
    std::int64_t value;
    Check(zts_reader_get_int(reader_, internal::Whole(key), &value));
    return value;
  }
  double Double(const std::string& key) const {
    double value;
    Check(zts_reader_get_double(reader_, internal::Whole(key), &value));
    return value;
  }
  bool Bool(const std::string& key) const {
    int value;
    Check(zts_reader_get_bool(reader_, internal::Whole(key), &value));
    return value != 0;
  }

  // All values of a tensor with one component. Throws if its type is not T.
  template <typename T>
  std::vector<T> Read(const std::string& name) const {
    // A vector of bool has no memory of its values.
    using Held = std::conditional_t<std::is_same_v<T, bool>, unsigned char, T>;
    const std::size_t index = Find(name);
    std::vector<Held> values(CheckType<T>(name, index) / sizeof(T));
    Check(zts_reader_read(reader_, index, 0, 0, values.data(), values.size() * sizeof(T)));
    if constexpr (std::is_same_v<T, Held>) {
      return values;
    } else {
      return std::vector<T>(values.begin(), values.end());
    }
  }
  // Reads decoded bytes of any component, from `offset` on.
  void ReadBytes(std::size_t index, std::size_t component, std::uint64_t offset, void* out,
                 std::uint64_t bytes) const {
    Check(zts_reader_read(reader_, index, component, offset, out, bytes));
  }
  // Maps the values of a raw tensor in its file, and returns them and their number; valid as long
  // as the reader.
  template <typename T>
  std::pair<const T*, std::size_t> Map(const std::string& name) const {
    const std::size_t index = Find(name);
    CheckType<T>(name, index);
    void* data;
    std::uint64_t bytes;
    Check(zts_reader_map(reader_, index, 0, &data, &bytes));
    if (reinterpret_cast<std::uintptr_t>(data) % alignof(T) != 0) {
      throw Error(ZTS_UNSUPPORTED, ("tensor '" + name + "': its values lie at an odd address of " +
                                    "the file; Read copies them")
                                       .c_str());
    }
    return {static_cast<const T*>(data), static_cast<std::size_t>(bytes / sizeof(T))};
  }

  // Verifies the file. Returns a line for each fault. `report`, if not null, gets the counts:
  // content without a digest is not verified.
  std::vector<std::string> Verify(unsigned threads = 0, zts_verify_report* report = nullptr) const {
    std::vector<std::string> problems;
    zts_call call;
    zts_call_init(&call, sizeof call);
    call.threads = threads;
    const zts_status status = zts_reader_verify(
        reader_, ZTS_FILE,
        [](const char* object, std::size_t bytes, const char*, const char* message, void* user) {
          static_cast<std::vector<std::string>*>(user)->push_back(
              (bytes == 0 ? std::string() : std::string(object, bytes) + ": ") + message);
        },
        &problems, report, sizeof *report, &call);
    if (problems.empty() && status != ZTS_UNVERIFIED) Check(status);
    return problems;
  }

 private:
  template <typename T>
  std::uint64_t CheckType(const std::string& name, std::size_t index) const {
    const zts_object object = Object(index);
    if (object.components != 1 || object.format != std::string("dense")) {
      throw Error(ZTS_INVALID_ARGUMENT,
                  ("tensor '" + name + "': it is not a dense tensor but " + object.format).c_str());
    }
    const zts_component component = Component(index);
    if (component.dtype == std::string(kDType<T>)) return component.bytes;
    throw Error(ZTS_INVALID_ARGUMENT,
                ("tensor '" + name + "': its values are " + component.dtype + ", not " + kDType<T>)
                    .c_str());
  }
  zts_reader* reader_ = nullptr;
};

}  // namespace ztstream

#endif /* __cplusplus */

#endif /* ZTSTREAM_ZTSTREAM_H_ */
