// zt.core:value — attribute values: the data model common to CBOR, JSON and GGUF metadata.
export module zt.core:value;

import zt.std;

export namespace zt {

// The integer types except bool.
template <class T>
concept Integer = std::integral<T> && !std::same_as<T, bool>;

// A tree of attribute values. Maps keep insertion order and have text keys; the code that fills a
// map keeps its keys unique (writers refuse a duplicate key). Integers are u64 if >= 0, else
// i64, so that every number has one representation. Arrays, maps and byte strings do not change
// once they are in a Value, and its copies share them: a copy takes constant time and memory.
class Value {
 public:
  using Bytes = std::vector<std::byte>;          // CBOR's byte string
  using Array = std::vector<Value>;              // CBOR's array
  using Member = std::pair<std::string, Value>;  // key (UTF-8) and value
  using Map = std::vector<Member>;               // CBOR's map, in the order of insertion
  // The kinds of values.
  enum class Kind { kNull, kBool, kUint, kInt, kDouble, kString, kBytes, kArray, kMap };

  // Null, or a copy of the argument. Implicit, so that attributes read as literals:
  // {{"bits", 4}, {"axes", Array{0, 1}}}.
  Value() = default;
  template <std::same_as<bool> T>  // excludes pointers
  Value(T v) : rep_(v) {}          // kBool
  template <Integer T>
  Value(T v) {  // kUint, or kInt if negative
    if (v < 0)
      rep_ = static_cast<std::int64_t>(v);
    else
      rep_ = static_cast<std::uint64_t>(v);
  }
  template <std::floating_point T>
  Value(T v) : rep_(static_cast<double>(v)) {}         // kDouble
  Value(std::string v) : rep_(std::move(v)) {}         // kString
  Value(std::string_view v) : rep_(std::string(v)) {}  // kString
  Value(const char* v) : rep_(std::string(v)) {}       // kString, up to the first NUL
  Value(Bytes v) : rep_(Share(std::move(v))) {}        // kBytes
  Value(Array v) : rep_(Share(std::move(v))) {}        // kArray
  Value(Map v) : rep_(Share(std::move(v))) {}          // kMap

  // Out of memory they throw (a string is copied), and the assigned value stays as it was.
  Value(const Value& other);
  Value& operator=(const Value& other);
  Value(Value&&) noexcept = default;
  Value& operator=(Value&&) noexcept = default;
  ~Value() = default;

  // The kind of the value.
  inline Kind kind() const { return static_cast<Kind>(rep_.index()); }
  // True for Kind::kNull, the default.
  inline bool is_null() const { return kind() == Kind::kNull; }

  // The held value, or null if it is of another kind. Valid until the Value is assigned or moved.
  inline const bool* AsBool() const { return std::get_if<bool>(&rep_); }
  inline const std::uint64_t* AsUint() const { return std::get_if<std::uint64_t>(&rep_); }  // kUint
  // kInt: negative only
  inline const std::int64_t* AsInt() const { return std::get_if<std::int64_t>(&rep_); }
  inline const double* AsDouble() const { return std::get_if<double>(&rep_); }            // kDouble
  inline const std::string* AsString() const { return std::get_if<std::string>(&rep_); }  // kString
  inline const Bytes* AsBytes() const { return Held<Bytes>(); }                           // kBytes
  inline const Array* AsArray() const { return Held<Array>(); }                           // kArray
  inline const Map* AsMap() const { return Held<Map>(); }                                 // kMap

  // The map, moved out where no copy shares it; empty if the value is of another kind.
  Map TakeMap() &&;

  // The number, whether kUint, kInt or kDouble; nullopt for other kinds, and if an integer T
  // cannot hold it exactly: 3.0 fits int, 3.5 does not, 300 does not fit std::uint8_t. A floating T
  // takes the nearest number.
  template <class T>
    requires Integer<T> || std::floating_point<T>
  std::optional<T> Number() const {
    if (const std::uint64_t* v = AsUint()) return Fitted<T>(*v);
    if (const std::int64_t* v = AsInt()) return Fitted<T>(*v);
    if (const double* v = AsDouble()) return Fitted<T>(*v);
    return std::nullopt;
  }

  // Equal kinds and contents; maps compare in order. NaN equals nothing, as in IEEE 754.
  bool operator==(const Value& other) const;

 private:
  template <class T, class From>
  inline static std::optional<T> Fitted(From v) {
    if constexpr (std::floating_point<T>) {
      return static_cast<T>(v);
    } else if constexpr (std::floating_point<From>) {
      // The bounds are 0 or powers of two, which a double holds exactly. NaN fails both
      // comparisons.
      constexpr From end = static_cast<From>(std::numeric_limits<T>::max() / 2 + 1) * 2;
      if (!(v >= static_cast<From>(std::numeric_limits<T>::min()) && v < end)) return std::nullopt;
      const auto whole = static_cast<T>(v);
      return static_cast<From>(whole) == v ? std::optional<T>(whole) : std::nullopt;
    } else {
      const auto held = static_cast<T>(v);
      const bool fits = static_cast<From>(held) == v && (held < 0) == (v < 0);
      return fits ? std::optional<T>(held) : std::nullopt;
    }
  }
  // What copies share; null where it is empty, so that the smallest ones allocate nothing.
  template <class T>
  using Shared = std::shared_ptr<const T>;
  template <class T>
  inline static Shared<T> Share(T&& v) {
    return v.empty() ? nullptr : std::make_shared<T>(std::move(v));
  }
  template <class T>
  const T* Held() const;  // of Bytes, Array and Map
  using Rep = std::variant<std::monostate, bool, std::uint64_t, std::int64_t, double, std::string,
                           Shared<Bytes>, Shared<Array>, Shared<Map>>;
  static Rep Copy(const Rep& rep);
  Rep rep_;
};

// The member of `map` with this key, or null. Linear: attribute maps are small.
const Value* FindMember(const Value::Map& map, std::string_view key);

// Sets the member with this key, or appends it.
void SetMember(Value::Map& map, std::string_view key, Value value);

// True if `text` is well-formed UTF-8 (no surrogates, no overlong forms, at most U+10FFFF).
bool IsUtf8(std::string_view text);

// `text` if it is UTF-8; else with each byte that is not UTF-8 written as \xHH, and a surrogate as
// \udHHH, as Python's "backslashreplace" writes it.
std::string EscapeUnlessUtf8(std::string_view text);

}  // namespace zt
