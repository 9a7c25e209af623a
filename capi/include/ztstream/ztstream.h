// ztstream/ztstream.h — ztstream for C++17 and any compiler: RAII over ztstream/c.h, in a header.
// In C it only includes c.h.
//
// Errors are thrown as ztstream::Error, whose code() is the exit status of the program. No type of
// the standard library crosses into the shared library, so the compiler and its options need not be
// those that built the library.
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
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr const char* name = "f32";
};
template <>
struct DTypeOf<double> {
  static constexpr const char* name = "f64";
};
template <>
struct DTypeOf<bool> {
  static constexpr const char* name = "bool";
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr const char* name = "i8";
};
template <>
struct DTypeOf<std::int16_t> {
  static constexpr const char* name = "i16";
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr const char* name = "i32";
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr const char* name = "i64";
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr const char* name = "u8";
};
template <>
struct DTypeOf<std::uint16_t> {
  static constexpr const char* name = "u16";
};
template <>
struct DTypeOf<std::uint32_t> {
  static constexpr const char* name = "u32";
};
template <>
struct DTypeOf<std::uint64_t> {
  static constexpr const char* name = "u64";
};
template <typename T>
inline constexpr const char* kDType = DTypeOf<T>::name;

using Shape = std::vector<std::uint64_t>;

// How to open an input: zts_reader_options with its defaults.
struct ReaderOptions : zts_reader_options {
  ReaderOptions() { zts_reader_options_init(this, sizeof(zts_reader_options)); }
};

// How to write a file: zts_writer_options with its defaults.
struct WriterOptions : zts_writer_options {
  WriterOptions() { zts_writer_options_init(this, sizeof(zts_writer_options)); }
};

// Writes one .zt file, which appears under its name when Finish returns. A writer that is destroyed
// before leaves no file.
class Writer {
 public:
  explicit Writer(const std::string& path, const WriterOptions& options = {}) {
    Check(zts_writer_open(internal::Whole(path), &options, &writer_));
  }
  ~Writer() { zts_writer_free(writer_); }
  Writer(Writer&& other) noexcept { *this = std::move(other); }
  Writer& operator=(Writer&& other) noexcept {
    std::swap(writer_, other.writer_);
    std::swap(kept_, other.kept_);
    std::swap(kept_bytes_, other.kept_bytes_);
    return *this;
  }

  void Set(const std::string& key, const std::string& v) {
    // Only JSON has texts with U+0000, which ends those of C.
    if (key.find('\0') != key.npos || v.find('\0') != v.npos) {
      const std::string json = "{" + internal::Quoted(key) + ":" + internal::Quoted(v) + "}";
      Check(zts_writer_set_json(writer_, json.c_str()));
    } else {
      Check(zts_writer_set_text(writer_, key.c_str(), v.c_str()));
    }
  }
  void Set(const std::string& key, const char* v) { Set(key, std::string(v)); }
  void Set(const std::string& key, std::int64_t v) {
    Check(zts_writer_set_int(writer_, internal::Whole(key), v));
  }
  void Set(const std::string& key, int v) { Set(key, std::int64_t{v}); }
  void Set(const std::string& key, double v) {
    Check(zts_writer_set_double(writer_, internal::Whole(key), v));
  }
  void Set(const std::string& key, bool v) {
    Check(zts_writer_set_bool(writer_, internal::Whole(key), v));
  }

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
    const auto kept = std::make_shared<const std::vector<T>>(std::move(values));
    kept_.push_back(kept);
    Add(name, shape, kept->data(), kept->size());
    kept_bytes_ += kept->size() * sizeof(T);
    if (kept_bytes_ >= (std::size_t{64} << 20)) Flush();
  }
  template <typename T>
  void Add(const std::string& name, const Shape& shape, const std::vector<T>&& values) = delete;
  // The same for any dtype: "bf16", "f8_e4m3fn", ...
  void AddBytes(const std::string& name, const std::string& dtype, const Shape& shape,
                const void* data, std::uint64_t bytes) {
    Check(zts_writer_add(writer_, name.data(), name.size(), internal::Whole(dtype), shape.data(),
                         shape.size(), data, bytes));
  }
  void Alias(const std::string& name, const std::string& of) {
    Check(zts_writer_alias(writer_, name.data(), name.size(), of.data(), of.size()));
  }

  // Writes a dense tensor piece by piece: Begin, Append as often as needed, End.
  void Begin(const std::string& name, const std::string& dtype, const Shape& shape) {
    const zts_part data = {"data", internal::Whole(dtype), nullptr, ZTS_UNKNOWN};
    zts_declaration dense = {};
    dense.size = sizeof dense;
    dense.name = name.data();
    dense.name_bytes = name.size();
    dense.shape = shape.data();
    dense.rank = shape.size();
    dense.parts = &data;
    dense.part_count = 1;
    dense.part_size = sizeof data;
    Check(zts_writer_begin(writer_, &dense));
  }
  void Append(const void* data, std::uint64_t bytes) {
    Check(zts_writer_append(writer_, data, bytes));
  }
  void End() { Check(zts_writer_end(writer_)); }

  void Flush() {
    Check(zts_writer_flush(writer_));
    kept_.clear();
    kept_bytes_ = 0;
  }
  void Finish() { Check(zts_writer_finish(writer_)); }

 private:
  zts_writer* writer_ = nullptr;
  std::vector<std::shared_ptr<const void>> kept_;  // what was moved in
  std::size_t kept_bytes_ = 0;
};

// An open .zt file of any version, or a checkpoint of another format: see zts_reader_open.
class Reader {
 public:
  explicit Reader(const std::string& path, const ReaderOptions& options = {}) {
    Check(zts_reader_open(internal::Whole(path), &options, &reader_));
  }
  ~Reader() { zts_reader_free(reader_); }
  Reader(Reader&& other) noexcept : reader_(std::exchange(other.reader_, nullptr)) {}
  Reader& operator=(Reader&& other) noexcept {
    std::swap(reader_, other.reader_);
    return *this;
  }

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
    const std::size_t index = Find(name);
    std::vector<T> values(CheckType<T>(name, index) / sizeof(T));
    Check(zts_reader_read(reader_, index, 0, 0, values.data(), values.size() * sizeof(T)));
    return values;
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

#endif  // __cplusplus

#endif  // ZTSTREAM_ZTSTREAM_H_
