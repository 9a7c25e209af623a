// zt.convert.npy — planning an .npy file, and what .npy and .npz cannot say.
module;

#include "core/status_macros.h"

module zt.convert.npy;

import zt.std;
import :plan;
import zt.convert.layout;
import zt.core;
import zt.source;

namespace zt {
namespace npy::internal {
DescrText DescrOf(const ElementType& element) {
  const std::size_t width = ByteWidth(element.dtype);
  if (element.type == "complex64") return {"<c8"};
  if (element.type == "complex128") return {"<c16"};
  if (!element.type.empty() || element.dtype == DType::kBF16)
    return {"|V" + std::to_string(width), false};
  const char kind = element.dtype == DType::kBool ? 'b'
                    : IsFloat(element.dtype)      ? 'f'
                    : IsSignedInt(element.dtype)  ? 'i'
                                                  : 'u';
  return {std::string(width == 1 ? "|" : "<") + kind + std::to_string(width)};
}

std::vector<std::byte> EncodeHeader(std::string_view descr, std::span<const std::uint64_t> shape) {
  constexpr std::size_t kPrefix = 10, kAlignment = 64;
  constexpr std::size_t kGrowth = 21;  // numpy leaves room for the first dimension to grow
  std::string text = "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': (";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ' ';
    text += std::to_string(shape[i]);
    if (i + 1 < shape.size() || shape.size() == 1) text += ',';
  }
  text += "), }";
  if (!shape.empty()) text.append(kGrowth - std::to_string(shape[0]).size(), ' ');
  const std::size_t unpadded = kPrefix + text.size() + 1;
  text.append((unpadded + kAlignment - 1) / kAlignment * kAlignment - unpadded, ' ');
  text += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(text.size() & 255);
  out += static_cast<char>(text.size() >> 8);
  out += text;
  const auto bytes = std::as_bytes(std::span(out));
  return {bytes.begin(), bytes.end()};
}

Status CheckDense(const Object& object) {
  if (object.format != "dense" || object.components.size() != 1) {
    return Unsupported("format " + Quote(object.format) + " is not an array" +
                       (object.format.starts_with("gguf.") ? "; convert it with --dequantize first"
                        : object.format.starts_with("sparse")
                            ? "; a sparse matrix is an .npz of its own"
                            : ""));
  }
  const Component& data = object.components.front();
  if (data.bytes == kUnknownSize) return Unsupported("its size is not known in advance");
  if (!data.element.type.empty() && FindLogicalType(data.element.type) == nullptr) {
    return Unsupported("type " + Quote(data.element.type) +
                       " is not known, so numpy cannot be told what its bytes are");
  }
  // The header states shape and element; what follows it must be as long.
  const auto bytes = DenseBytes(object.shape, data.element);
  if (!bytes || *bytes != data.bytes) {
    return InvalidData("shape " + ToString(object.shape) + " of " +
                       std::string(Name(data.element)) + " does not fit its " +
                       std::to_string(data.bytes) + " bytes");
  }
  return OkStatus();
}

const std::string* ScipyFormatOf(const Object& object) {
  const Value* value = FindMember(object.attributes, kScipyFormat);
  const std::string* format = value == nullptr ? nullptr : value->AsString();
  return object.name == "data" && format != nullptr && format->size() == 3 ? format : nullptr;
}

void Losses::Add(const Object& object, const ElementType& element) {
  if (!DescrOf(element).named) {
    ++unnamed_;
    const std::string_view name = Name(element);
    if (std::find(types_.begin(), types_.end(), name) == types_.end()) types_.emplace_back(name);
  }
  const bool lost = std::ranges::any_of(object.attributes, [](const auto& member) {
    return member.first != kScipyFormat && member.first != kScipyIsArray;
  });
  if (lost && ++attributed_ == 1) first_ = object.name;
}

std::vector<std::string> Losses::Lines() const {
  std::vector<std::string> lines;
  if (unnamed_ > 0) {
    std::string types;
    for (const std::string& type : types_) types += (types.empty() ? "" : ", ") + type;
    const bool numbers = std::ranges::any_of(types_, [](std::string_view type) {
      return type == "bf16" || (type.starts_with("f8_") && type != "f8_e8m0");
    });
    const bool wide = std::ranges::find(types_, "bf16") != types_.end();
    const bool narrow = types_.size() > (wide ? 1u : 0u);
    lines.push_back("numpy has no name for " + types + ": " + std::to_string(unnamed_) +
                    (unnamed_ == 1 ? " array is" : " arrays are") + " written as '|V'" +
                    (numbers ? "; for float32: 'ztstream convert --dtype f32' first" : "") +
                    "; in numpy: " + (wide ? ".view('<u2')" : "") + (wide && narrow ? " or " : "") +
                    (narrow ? ".view('u1')" : "") + " is the bits");
  }
  if (attributed_ > 0) {
    lines.push_back("numpy's files do not keep the attributes of " + std::to_string(attributed_) +
                    " tensors, " + Quote(first_) + " the first");
  }
  return lines;
}

}  // namespace npy::internal

using namespace npy::internal;

std::vector<std::string> NpyLosses(const TensorSource& source,
                                   std::span<const std::uint32_t> objects) {
  Losses losses;
  for (const std::uint32_t index : objects) {
    const Object& object = source.objects()[index];
    const bool dense = object.components.size() == 1;  // a sparse matrix has types that numpy knows
    losses.Add(object, dense ? object.components.front().element : ElementType{});
  }
  return losses.Lines();
}

StatusOr<FileLayout> PlanNpy(const TensorSource& source, std::uint32_t index) {
  const Object& object = source.objects()[index];
  ZT_RETURN_IF_ERROR(WithTensor(CheckDense(object), object.name));
  const Component& data = object.components.front();
  FileLayout layout;
  layout.pieces.push_back({.before = EncodeHeader(DescrOf(data.element).text, object.shape),
                           .source = {index, 0},
                           .bytes = data.bytes});
  layout.bytes = layout.pieces.front().before.size() + data.bytes;
  layout.warnings = NpyLosses(source, std::span(&index, 1));
  return layout;
}

}  // namespace zt
