// zt.format:fields — reads the fields of a manifest's maps and validates their kinds. Internal to
// the module.
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

// Tracks the fields of one map. Known keys are identified by their index in `names`; unknown keys
// are kept until the map ends to detect duplicates.
class FieldSet {
 public:
  // `names` must outlive this; at most 32.
  explicit FieldSet(std::span<const std::string_view> names) : names_(names) {}

  // Sets `*field` to the key's index in `names`, or kUnknownField. Fails if a known key is
  // repeated.
  Status Add(std::string_view key, std::size_t* field);
  // True if the key is known.
  bool Knows(std::string_view key) const;
  inline bool Has(std::size_t field) const { return (seen_ >> field & 1) != 0; }
  // Call at the end of the map. Fails if an unknown key is repeated or one of the first `required`
  // known fields is missing.
  Status Check(std::size_t required) const;

 private:
  std::span<const std::string_view> names_;
  std::uint32_t seen_ = 0;
  std::vector<std::string> unknown_;
};

// Reads items of the expected kinds; errors name the field. `depth` is the number of open
// containers.
class FieldReader {
 public:
  // Creates at most `budget` attribute values.
  FieldReader(std::span<const std::byte> bytes, std::size_t budget)
      : reader_(bytes), budget_(budget), bytes_(bytes) {}

 protected:
  Status Malformed() const;
  // Fails if anything follows the decoded value.
  Status CheckEnd() const;
  // The error that `item` is malformed or not of kind `kind`.
  Status Expected(const format_cbor::Item& item, std::string_view field,
                  std::string_view kind) const;
  Status OpenMap(std::string_view field, format_cbor::Container* map);
  // Keys and texts that are read as views are valid until the next item.
  Status ReadKey(std::string_view* key);
  // Reads a key. If it is unknown, skips its value.
  Status ReadField(FieldSet& fields, std::size_t depth, std::size_t* field);
  Status ReadUint(std::string_view field, std::uint64_t* value);
  // Reads a decoded size. kUnknownSize is reserved, in every version.
  Status ReadDecodedSize(std::string_view field, std::uint64_t* value);
  Status ReadText(std::string_view field, std::string_view* text);
  Status ReadText(std::string_view field, std::string* text);
  // For a field whose default is null: null leaves `text` unchanged.
  Status ReadOptionalText(std::string_view field, std::string* text);
  Status ReadDigest(std::string_view field, std::string* digest);
  // Reads the field `encoding`. Byte planes are not an encoding here: 1.x has them as a format. An
  // unknown name is an error of code `unknown`.
  Status ReadEncoding(StatusCode unknown, Encoding* encoding);
  // Reads a `dtype` in the dialect's spelling. An unknown one is an error of code `unknown`.
  Status ReadDtype(const Dialect& dialect, StatusCode unknown, ElementType* element);
  Status ReadShape(Shape* shape);
  // Null means no attributes.
  Status ReadAttributes(std::size_t depth, Value::Map* attributes);
  StatusOr<Value> ReadAttribute(std::string_view field, std::size_t depth);
  Status SkipValue(std::size_t depth);

  format_cbor::Reader reader_;
  std::size_t budget_;

 private:
  std::span<const std::byte> bytes_;
};

// Fails if two objects have the same name.
Status CheckNames(const Manifest& manifest);

}  // namespace zt::format::internal
