// zt.core:value — attribute values: what CBOR, JSON and GGUF metadata have in common.
module;

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

export module zt.core:value;

export namespace zt {

// A tree of attribute values. Maps keep insertion order and have text keys; whoever fills one keeps the keys
// unique (writers refuse a key twice). Integers are held as u64 where they are >= 0, as i64 below, so that every
// number has one representation. Copies are deep.
class Value {
 public:
  using Bytes = std::vector<std::byte>;
  using Array = std::vector<Value>;
  using Member = std::pair<std::string, Value>;
  using Map = std::vector<Member>;
  enum class Kind { kNull, kBool, kUint, kInt, kDouble, kString, kBytes, kArray, kMap };

  Value() = default;
  Value(bool v) : rep_(v) {}
  Value(std::uint64_t v) : rep_(v) {}
  Value(std::int64_t v) { SetSigned(v); }
  Value(std::uint32_t v) : rep_(std::uint64_t{v}) {}
  Value(std::int32_t v) { SetSigned(v); }
  Value(double v) : rep_(v) {}
  Value(std::string v) : rep_(std::move(v)) {}
  Value(std::string_view v) : rep_(std::string(v)) {}
  Value(const char* v) : rep_(std::string(v)) {}
  Value(Bytes v) : rep_(std::move(v)) {}
  Value(Array v) : rep_(std::move(v)) {}
  Value(Map v) : rep_(std::move(v)) {}

  inline Kind kind() const { return static_cast<Kind>(rep_.index()); }
  inline bool is_null() const { return kind() == Kind::kNull; }

  // The held value, or null where it is of another kind. Valid as long as the Value is not changed.
  inline const bool* AsBool() const { return std::get_if<bool>(&rep_); }
  inline const std::uint64_t* AsUint() const { return std::get_if<std::uint64_t>(&rep_); }
  inline const std::int64_t* AsInt() const { return std::get_if<std::int64_t>(&rep_); }
  inline const double* AsDouble() const { return std::get_if<double>(&rep_); }
  inline const std::string* AsString() const { return std::get_if<std::string>(&rep_); }
  inline const Bytes* AsBytes() const { return std::get_if<Bytes>(&rep_); }
  inline const Array* AsArray() const { return std::get_if<Array>(&rep_); }
  inline Array* AsArray() { return std::get_if<Array>(&rep_); }
  inline const Map* AsMap() const { return std::get_if<Map>(&rep_); }
  inline Map* AsMap() { return std::get_if<Map>(&rep_); }

  // Equal kinds and contents; maps compare in order. NaN equals nothing, as in IEEE 754.
  bool operator==(const Value& other) const;

 private:
  inline void SetSigned(std::int64_t v) {
    if (v >= 0)
      rep_ = static_cast<std::uint64_t>(v);
    else
      rep_ = v;
  }
  std::variant<std::monostate, bool, std::uint64_t, std::int64_t, double, std::string, Bytes, Array,
               Map>
      rep_;
};

// The member of `map` with this key, or null. Linear: attribute maps are small.
const Value* FindMember(const Value::Map& map, std::string_view key);

// Sets or appends a member.
void SetMember(Value::Map& map, std::string_view key, Value value);

// True where `text` is well-formed UTF-8 (no surrogates, no overlong forms, at most U+10FFFF).
bool IsUtf8(std::string_view text);

}  // namespace zt
