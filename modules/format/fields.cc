// zt.format:fields — reads the fields of a CBOR map, and finds unknown, missing and repeated ones.
// values.
module;

#include "core/name_table.h"
#include "core/status_macros.h"
#include "format/cbor.h"

module zt.format;

import zt.std;
import :dialect;
import :fields;
import zt.compress;
import zt.core;
import zt.digest;

namespace zt::format::internal {

namespace cbor = format_cbor;

namespace {

Status Twice(std::string_view key) { return InvalidData("field " + Quote(key) + " occurs twice"); }

}  // namespace

Status FieldSet::Add(std::string_view key, std::size_t* field) {
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (names_[i] != key) continue;
    if (seen_ >> i & 1) return Twice(key);
    seen_ |= std::uint32_t{1} << i;
    *field = i;
    return OkStatus();
  }
  unknown_.emplace_back(key);
  *field = kUnknownField;
  return OkStatus();
}

bool FieldSet::Knows(std::string_view key) const {
  return std::find(names_.begin(), names_.end(), key) != names_.end();
}

Status FieldSet::Check(std::size_t required) const {
  const auto key_of = [this](std::size_t i) { return std::string_view(unknown_[i]); };
  if (const auto twice = zt::internal::FindTwice(unknown_.size(), key_of)) {
    return Twice(key_of(twice->again));
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!Has(i)) return InvalidData("field " + Quote(names_[i]) + " is missing");
  }
  return OkStatus();
}

Status FieldReader::Malformed() const { return InvalidData(reader_.error()); }

Status FieldReader::CheckEnd() const {
  if (reader_.remaining() == 0) return OkStatus();
  return InvalidData(std::to_string(reader_.remaining()) + " bytes follow the CBOR value");
}

Status FieldReader::Expected(const cbor::Item& item, std::string_view field,
                             std::string_view kind) const {
  if (item.kind == cbor::Kind::kError) return Malformed();
  return InvalidData(Quote(field) + " is " + std::string(cbor::Describe(item.kind)) + ", " +
                     std::string(kind) + " is needed");
}

Status FieldReader::OpenMap(std::string_view field, cbor::Container* map) {
  const cbor::Item item = reader_.Next();
  if (item.kind != cbor::Kind::kMap) return Expected(item, field, "a map");
  *map = cbor::Open(item);
  return OkStatus();
}

Status FieldReader::ReadKey(std::string_view* key) {
  const cbor::Item item = reader_.Next();
  if (item.kind == cbor::Kind::kError) return Malformed();
  if (item.kind != cbor::Kind::kText) {
    return InvalidData("a map key is " + std::string(cbor::Describe(item.kind)) +
                       ", only text can be a key");
  }
  if (!IsUtf8(item.text)) return InvalidData("a map key is not valid UTF-8");
  *key = item.text;
  return OkStatus();
}

Status FieldReader::ReadField(FieldSet& fields, std::size_t depth, std::size_t* field) {
  std::string_view key;
  ZT_RETURN_IF_ERROR(ReadKey(&key));
  ZT_RETURN_IF_ERROR(fields.Add(key, field));
  return *field == kUnknownField ? SkipValue(depth) : OkStatus();
}

Status FieldReader::ReadUint(std::string_view field, std::uint64_t* value) {
  const cbor::Item item = reader_.Next();
  if (item.kind != cbor::Kind::kUint) return Expected(item, field, "an unsigned integer");
  *value = item.value;
  return OkStatus();
}

Status FieldReader::ReadDecodedSize(std::string_view field, std::uint64_t* value) {
  ZT_RETURN_IF_ERROR(ReadUint(field, value));
  if (*value != kUnknownSize) return OkStatus();
  return InvalidData(Quote(field) + " " + std::to_string(*value) +
                     " is more than any component has");
}

Status FieldReader::ReadText(std::string_view field, std::string_view* text) {
  const cbor::Item item = reader_.Next();
  if (item.kind != cbor::Kind::kText) return Expected(item, field, "text");
  if (!IsUtf8(item.text)) return InvalidData(Quote(field) + " is not valid UTF-8");
  *text = item.text;
  return OkStatus();
}

Status FieldReader::ReadText(std::string_view field, std::string* text) {
  std::string_view view;
  ZT_RETURN_IF_ERROR(ReadText(field, &view));
  text->assign(view);
  return OkStatus();
}

Status FieldReader::ReadOptionalText(std::string_view field, std::string* text) {
  const cbor::Item item = reader_.Next();
  if (item.kind == cbor::Kind::kNull) return OkStatus();
  if (item.kind != cbor::Kind::kText) return Expected(item, field, "text");
  if (!IsUtf8(item.text)) return InvalidData(Quote(field) + " is not valid UTF-8");
  text->assign(item.text);
  return OkStatus();
}

Status FieldReader::ReadDigest(std::string_view field, std::string* digest) {
  ZT_RETURN_IF_ERROR(ReadOptionalText(field, digest));
  return digest->empty() ? OkStatus() : CheckDigestText(*digest);
}

Status FieldReader::ReadEncoding(StatusCode unknown, Encoding* encoding) {
  std::string_view text;
  ZT_RETURN_IF_ERROR(ReadText("encoding", &text));
  const auto parsed = ParseEncoding(text);
  if (!parsed || *parsed == Encoding::kPlanes) {
    return MakeStatus(unknown, "encoding " + Quote(text) + " is neither 'raw' nor 'zstd'");
  }
  *encoding = *parsed;
  return OkStatus();
}

Status FieldReader::ReadDtype(const Dialect& dialect, StatusCode unknown, ElementType* element) {
  std::string_view text;
  ZT_RETURN_IF_ERROR(ReadText("dtype", &text));
  auto parsed = dialect.ParseElement(text);
  if (!parsed)
    return MakeStatus(unknown, "dtype " + Quote(text) + " is not a dtype of " + dialect.Named());
  element->dtype = parsed->dtype;
  if (!parsed->type.empty()) element->type = std::move(parsed->type);
  return OkStatus();
}

Status FieldReader::ReadShape(Shape* shape) {
  const cbor::Item head = reader_.Next();
  if (head.kind != cbor::Kind::kArray) return Expected(head, "shape", "an array");
  cbor::Container container = cbor::Open(head);
  shape->reserve(std::min<std::uint64_t>(container.left, kMaxRank));
  while (reader_.More(container)) {
    if (shape->size() == kMaxRank) {
      return InvalidData("the rank exceeds " + std::to_string(kMaxRank));
    }
    std::uint64_t dim;
    ZT_RETURN_IF_ERROR(ReadUint("shape", &dim));
    shape->push_back(dim);
  }
  return OkStatus();
}

Status FieldReader::ReadAttributes(std::size_t depth, Value::Map* attributes) {
  ZT_ASSIGN_OR_RETURN(Value value, ReadAttribute("attributes", depth));
  if (value.is_null()) return OkStatus();
  if (value.AsMap() == nullptr) return InvalidData("'attributes' is not a map");
  *attributes = std::move(value).TakeMap();
  return OkStatus();
}

StatusOr<Value> FieldReader::ReadAttribute(std::string_view field, std::size_t depth) {
  std::size_t position = reader_.position();
  auto value = ReadValue(bytes_, &position, kMaxNesting - depth, &budget_);
  if (!value.ok()) return Annotate(value.status(), Quote(field));
  reader_.Rewind(position);
  return value;
}

Status FieldReader::SkipValue(std::size_t depth) {
  return reader_.Skip(kMaxNesting - depth) ? OkStatus() : Malformed();
}

Status CheckNames(const Manifest& manifest) {
  const auto name_of = [&](std::size_t i) { return std::string_view(manifest.objects[i].name); };
  const auto twice = zt::internal::FindTwice(manifest.objects.size(), name_of);
  return twice ? InvalidData(TensorContext(name_of(twice->again)) + " occurs twice") : OkStatus();
}

}  // namespace zt::format::internal
