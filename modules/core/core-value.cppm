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
  using Bytes = std::vector<std::byte>;          // CBOR's byte string
  using Array = std::vector<Value>;              // CBOR's array
  using Member = std::pair<std::string, Value>;  // of a map: key (UTF-8) and value
  using Map = std::vector<Member>;               // CBOR's map, in the order of insertion
  // What a Value holds.
  enum class Kind { kNull, kBool, kUint, kInt, kDouble, kString, kBytes, kArray, kMap };

  // Null; or what is given, copied. Implicit, so that attributes read as literals:
  // {{"bits", 4}, {"axes", Array{0, 1}}}.
  Value() = default;
  Value(bool v) : rep_(v) {}                           // kBool
  Value(std::uint64_t v) : rep_(v) {}                  // kUint
  Value(std::int64_t v) { SetSigned(v); }              // kUint, or kInt where negative
  Value(std::uint32_t v) : rep_(std::uint64_t{v}) {}   // kUint
  Value(std::int32_t v) { SetSigned(v); }              // kUint, or kInt where negative
  Value(double v) : rep_(v) {}                         // kDouble
  Value(std::string v) : rep_(std::move(v)) {}         // kString
  Value(std::string_view v) : rep_(std::string(v)) {}  // kString
  Value(const char* v) : rep_(std::string(v)) {}       // kString, up to the first zero
  Value(Bytes v) : rep_(std::move(v)) {}               // kBytes
  Value(Array v) : rep_(std::move(v)) {}               // kArray
  Value(Map v) : rep_(std::move(v)) {}                 // kMap

  // Which of the Kinds it holds.
  inline Kind kind() const { return static_cast<Kind>(rep_.index()); }
  // True for Kind::kNull, which a Value is by default.
  inline bool is_null() const { return kind() == Kind::kNull; }

  // The held value, or null where it is of another kind. Valid as long as the Value is not changed.
  inline const bool* AsBool() const { return std::get_if<bool>(&rep_); }
  inline const std::uint64_t* AsUint() const { return std::get_if<std::uint64_t>(&rep_); }  // kUint
  inline const std::int64_t* AsInt() const {
    return std::get_if<std::int64_t>(&rep_);
  }  // kInt: below 0 only
  inline const double* AsDouble() const { return std::get_if<double>(&rep_); }            // kDouble
  inline const std::string* AsString() const { return std::get_if<std::string>(&rep_); }  // kString
  inline const Bytes* AsBytes() const { return std::get_if<Bytes>(&rep_); }               // kBytes
  inline const Array* AsArray() const { return std::get_if<Array>(&rep_); }               // kArray
  inline const Map* AsMap() const { return std::get_if<Map>(&rep_); }                     // kMap
  inline Map* AsMap() { return std::get_if<Map>(&rep_); }  // kMap, to be changed

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
