// zt.format:fields — reads the fields of a manifest's maps, each of the kind it must be. Internal to the module.
module;

#include "format/cbor.h"

module zt.format:fields;

import zt.std;
import :dialect;
import :model;
import zt.compress;
import zt.core;

namespace zt::format::internal {

inline constexpr std::size_t kUnknownField = ~std::size_t{0};

// The fields of one map: where a key stands among the known `names`, and which were seen. The names of unknown
// fields are kept until the map ends, since they too may occur only once.
class Fields {
 public:
  // `names` outlive this; at most 32.
  explicit Fields(std::span<const std::string_view> names) : names_(names) {}

  // The key's place in `names`, or kUnknownField; fails where a known one comes twice.
  Status Add(std::string_view key, std::size_t* field);
  // Whether the key is among the known ones.
  bool Knows(std::string_view key) const;
  inline bool Has(std::size_t field) const { return (seen_ >> field & 1) != 0; }
  // At the end of the map: nothing unknown twice, and the first `required` known fields are there.
  Status Check(std::size_t required) const;

 private:
  std::span<const std::string_view> names_;
  std::uint32_t seen_ = 0;
  std::vector<std::string> unknown_;
};

// Reads items of the kinds a manifest asks for; errors name the field. A `depth` is how many containers are open.
class FieldReader {
 public:
  // At most `budget` attribute values are made.
  FieldReader(std::span<const std::byte> bytes, std::size_t budget)
      : reader_(bytes), budget_(budget), bytes_(bytes) {}

 protected:
  Status Malformed() const;
  // That nothing follows what was read.
  Status CheckEnd() const;
  // That `item` is not `kind`, or malformed.
  Status Expected(const format_cbor::Item& item, std::string_view field,
                  std::string_view kind) const;
  Status OpenMap(std::string_view field, format_cbor::Container* map);
  // The key is valid until the next item, as is a text read as a view.
  Status ReadKey(std::string_view* key);
  // Reads a key. A field that is not among the known ones is passed over, value and all.
  Status ReadField(Fields& fields, std::size_t depth, std::size_t* field);
  Status ReadUint(std::string_view field, std::uint64_t* value);
  Status ReadText(std::string_view field, std::string_view* text);
  Status ReadText(std::string_view field, std::string* text);
  // For a field whose default is null: `text` stays as it is.
  Status ReadOptionalText(std::string_view field, std::string* text);
  Status ReadDigest(std::string_view field, std::string* digest);
  // The name of an encoding that stands in the field `encoding`: planes do not, in 1.x they are a format.
  // `unknown` is the kind of error for a name that is neither.
  Status ReadEncoding(StatusCode unknown, Encoding* encoding);
  // A `dtype` as the dialect spells it; `unknown` is the kind of error for one that it does not know.
  Status ReadDtype(const Dialect& dialect, StatusCode unknown, ElementType* element);
  Status ReadShape(Shape* shape);
  // Null stands for no attributes.
  Status ReadAttributes(std::size_t depth, Value::Map* attributes);
  StatusOr<Value> ReadAttribute(std::string_view field, std::size_t depth);
  Status SkipValue(std::size_t depth);

  format_cbor::Reader reader_;
  std::size_t budget_;

 private:
  std::span<const std::byte> bytes_;
};

// That no two objects have the same name.
Status CheckNames(const Manifest& manifest);

}  // namespace zt::format::internal
