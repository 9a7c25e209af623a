// zt.convert.composite:weights — codes in words: GPTQ, AWQ, pack-quantized; and bitsandbytes.
module;

#include "core/status_macros.h"

module zt.convert.composite;

import zt.std;
import :finder;
import :scheme;
import :weights;
import zt.core;
import zt.source;
import zt.transform;

namespace zt::composite::internal {
namespace {

constexpr std::uint64_t kMostStateBytes = std::uint64_t{64} << 10;
// The nibble of column i of eight is 4 * {0, 4, 1, 5, 2, 6, 3, 7}[i].
constexpr std::array<std::uint8_t, 8> kAwqShifts = {0, 16, 4, 20, 8, 24, 12, 28};
// How int8 of bitsandbytes may lie, by number. The first is by rows.
constexpr std::string_view kInt8Formats[] = {"row", "col32", "col_turing", "col_ampere"};

}  // namespace

Status Finder::LookAtPacked(const Object& codes, const std::string& module) {
  if (!Is(codes, "i32")) return OkStatus();
  if (config_.file.empty()) return NeedsConfiguration("codes of 32-bit words");
  if (!declared_) declared_ = ReadDeclared(config_.content, true);
  Weight named;
  named.name = module + ".weight";
  named.codes.object = named.scales.object = IndexOf(codes);
  named.scheme = codes.name.ends_with(".qweight") ? "gptq or awq" : "pack-quantized";
  ZT_RETURN_IF_ERROR(CheckMethod(named, {"gptq", "awq", "compressed-tensors"}));
  if (!declared_->ok())
    return WithFile(WithCode(declared_->status(), StatusCode::kDataLoss), config_.path);
  const Declared& declared = **declared_;
  if (Anchor(declared.scheme) != codes.name.substr(module.size()))
    return InvalidData("it is no part of " + Quote(method_) + ", which " + config_.file + " says");
  const auto recipe = Recognize(declared, tensors_, module);
  if (!recipe.ok()) {
    return recipe.status().code() == StatusCode::kUnimplemented
               ? WithCode(recipe.status(), StatusCode::kDataLoss)
               : recipe.status();
  }
  return AddRecipe(declared.scheme, *recipe, codes, module);
}

Status Finder::AddRecipe(Scheme scheme, const Recipe& recipe, const Object& codes,
                         const std::string& module) {
  const auto member = [&](std::string_view role) -> const Object* {
    for (const auto& member : recipe.members) {  // role, index
      if (member.first == role) return &tensors_[member.second];
    }
    return nullptr;
  };
  const auto number = [&](std::string_view key) {
    return static_cast<std::uint64_t>(FindInteger(recipe.attributes, key).value_or(0));
  };
  const Object& scales = *member("scales");
  const Object *const zeros = member("zeros"), *const groups = member("g_idx");
  Weight weight = Start(module + ".weight",
                        scheme == Scheme::kGptq      ? "gptq"
                        : scheme == Scheme::kAwqGemm ? "awq"
                                                     : "pack-quantized",
                        codes, scales);
  weight.bits = static_cast<unsigned>(number("bits"));
  const bool packed = scheme == Scheme::kPackQuantized;
  const std::uint64_t out = recipe.shape[packed ? 0 : 1], in = recipe.shape[packed ? 1 : 0];
  const std::uint64_t sets = scales.shape[packed ? 1 : 0];  // of scales, in a row
  weight.shape = {out, in};
  weight.columns = in;
  weight.layout = {.kind = Codes::kLowFirst,
                   .bits = weight.bits,
                   .per_word = recipe.per_word,
                   .values = kPlainValues};
  weight.blocks = {out, 1, number("group_size"), out, sets};
  const auto transpose = [](Stored& stored, const Object& object, std::size_t width) {
    stored.width = width;
    stored.axes = {{object.shape[1], 1}, {object.shape[0], object.shape[1]}};
  };
  if (scheme == Scheme::kAwqGemm) {
    weight.layout.kind = Codes::kPicked;
    weight.layout.unit = 4;
    weight.rows_per_codes = 8;
    weight.shifts = kAwqShifts;
    weight.pitch = in * 4;
  } else {
    weight.pitch = codes.shape[packed ? 1 : 0] * 4;
  }
  if (!packed) {
    transpose(weight.codes, codes, 4);
    transpose(weight.scales, scales, ByteWidth(scales.components[0].element.dtype));
  }
  if (zeros != nullptr) {
    weight.zeros_kind = Weight::Zeros::kPacked;
    weight.zeros = Stored{IndexOf(*zeros)};
    if (!packed) transpose(*weight.zeros, *zeros, 4);
    weight.zero_offset = static_cast<std::uint32_t>(number("zero_offset"));
  } else {
    weight.zeros_kind = Weight::Zeros::kEqual;
    weight.zero = static_cast<float>(number("zero_point"));
  }
  if (groups != nullptr) weight.groups = IndexOf(*groups);
  weight.members.clear();
  weight.members.push_back(weight.codes.object);
  for (const auto& member : recipe.members) {  // role, index
    if (member.second != weight.codes.object) weight.members.push_back(member.second);
  }
  return Add(std::move(weight), module);
}

Status Finder::LookAtNf4(const Object& absmax, const std::string& name) {
  const Object* const codes = Find(name);
  const std::string prefix = name + ".quant_state.bitsandbytes__";
  const Object* state = Find(prefix + "nf4");
  if (state == nullptr) state = Find(prefix + "fp4");
  if (codes == nullptr) return Missing(name, "whose scales these are");
  if (state == nullptr) return Missing(prefix + "nf4", "which says the shape");
  if (!Is(*codes, "u8")) return Mistyped(*codes, "u8");
  Weight weight = Start(name, "bitsandbytes nf4", *codes, absmax);
  if (state->name.ends_with("fp4")) weight.scheme = "bitsandbytes fp4";
  ZT_RETURN_IF_ERROR(CheckBitsandbytes(weight, "load_in_4bit"));
  ZT_ASSIGN_OR_RETURN(const Value::Map map, ReadState(*state));
  const Value* const shape = FindMember(map, "shape");
  const std::int64_t block = FindInteger(map, "blocksize").value_or(0);
  const auto dimensions = shape == nullptr ? std::nullopt : ToShape(*shape);
  if (!dimensions || dimensions->size() > kMaxRank || block <= 0)
    return At(*state, InvalidData("it does not say a shape and a blocksize"));
  const auto count = ElementCount(*dimensions);
  const std::uint64_t bytes = ElementCount(codes->shape).value_or(0);
  if (!count || CeilDiv(*count, 2) != bytes) {
    return At(*state, InvalidData("it says shape " + ToString(*dimensions) + ", there are " +
                                  std::to_string(bytes) + " bytes of codes"));
  }
  weight.bits = 4;
  weight.shape = *dimensions;
  weight.columns = std::max<std::uint64_t>(*count, 1);
  weight.pitch = bytes;
  weight.layout.kind = Codes::kHighNibble;
  const auto blocks = CeilDiv(*count, static_cast<std::uint64_t>(block));
  weight.blocks = {1, 1, static_cast<std::uint64_t>(block), 1, std::max<std::uint64_t>(blocks, 1)};
  const Shape table = {16};
  ZT_ASSIGN_OR_RETURN(weight.value_table, Need(name + ".quant_map", "f32", &table));
  weight.members.insert(weight.members.end(), {*weight.value_table, IndexOf(*state)});
  if (ElementCount(absmax.shape) != blocks) return Misshapen(absmax, {blocks}, "its state");
  if (Is(absmax, "u8")) {
    ZT_RETURN_IF_ERROR(AddNested(weight, map, name));
  } else if (!Is(absmax, "f32")) {
    return Mistyped(absmax, "f32 or u8");
  }
  return Add(std::move(weight), ModuleOf(name));
}

Status Finder::AddNested(Weight& weight, const Value::Map& state, const std::string& name) {
  const std::int64_t block = FindInteger(state, "nested_blocksize").value_or(0);
  const Value* const offset = FindMember(state, "nested_offset");
  const double* const number = offset == nullptr ? nullptr : offset->AsDouble();
  if (block <= 0 || (number == nullptr && FindInteger(state, "nested_offset") != 0))
    return InvalidData("its state does not say nested_blocksize and nested_offset");
  const Shape map = {256};
  const Shape scales = {CeilDiv(weight.blocks.scale_columns, static_cast<std::uint64_t>(block))};
  Weight::Nested nested;
  ZT_ASSIGN_OR_RETURN(nested.map, Need(name + ".nested_quant_map", "f32", &map));
  ZT_ASSIGN_OR_RETURN(nested.absmax, Need(name + ".nested_absmax", "f32", &scales));
  nested.block = static_cast<std::uint64_t>(block);
  nested.offset = number == nullptr ? 0.0f : static_cast<float>(*number);
  weight.members.insert(weight.members.end(), {nested.map, nested.absmax});
  weight.nested = nested;
  return OkStatus();
}

StatusOr<Value::Map> Finder::ReadState(const Object& state) {
  const std::uint64_t bytes = state.components[0].bytes;
  if (!Is(state, "u8")) return Mistyped(state, "u8");
  if (bytes > kMostStateBytes) {
    return At(state, InvalidData("it has " + std::to_string(bytes) +
                                 " bytes; a state has at most " + std::to_string(kMostStateBytes)));
  }
  std::string text(bytes, '\0');
  const ComponentId id{IndexOf(state), 0};
  ZT_RETURN_IF_ERROR(tensors_.source().Read(id, 0, std::as_writable_bytes(std::span(text))));
  auto map = ParseJsonObject(text);
  if (!map.ok()) return At(state, map.status());
  return map;
}

Status Finder::CheckBitsandbytes(const Weight& weight, std::string_view flag) const {
  ZT_RETURN_IF_ERROR(CheckMethod(weight, {"bitsandbytes"}));
  const Value* const loads = FindMember(config_.content, flag);
  if (loads == nullptr || loads->AsBool() == nullptr || *loads->AsBool()) return OkStatus();
  return InvalidData("it is stored as " + std::string(weight.scheme) + ", and " + config_.file +
                     " says " + Quote(flag) + ": false");
}

Status Finder::LookAtInt8(const Object& scales, const std::string& module) {
  const Object* const codes = Find(module + ".weight");
  if (codes == nullptr) return Missing(module + ".weight", "whose scales these are");
  if (!Is(*codes, "i8")) return Mistyped(*codes, "i8");
  if (codes->shape.size() != 2) return Unread(*codes, "codes of two dimensions");
  const Shape wanted = {codes->shape[0]};
  if (scales.shape != wanted) return Misshapen(scales, wanted, "a scale for each row");
  if (!Is(scales, "f32")) return Mistyped(scales, "f32");
  Weight weight = Start(codes->name, "bitsandbytes int8", *codes, scales);
  ZT_RETURN_IF_ERROR(CheckBitsandbytes(weight, "load_in_8bit"));
  weight.layout.kind = Codes::kI8;
  weight.blocks = {wanted[0], 1, weight.columns, wanted[0], 1};
  weight.factor = 1.0f / 127.0f;
  if (const Object* const format = Find(module + ".weight_format")) {
    std::byte number{};
    if (!Is(*format, "u8") || ElementCount(format->shape) != 1) return Mistyped(*format, "one u8");
    ZT_RETURN_IF_ERROR(tensors_.source().Read({IndexOf(*format), 0}, 0, std::span(&number, 1)));
    const auto which = std::to_integer<std::size_t>(number);
    if (which != 0) {
      return At(*format, Unsupported("it says format " + std::to_string(which) +
                                     (which < std::size(kInt8Formats)
                                          ? " (" + std::string(kInt8Formats[which]) + ")"
                                          : "") +
                                     ", and only 0 (row) is read"));
    }
  }
  return Add(std::move(weight), module);
}

}  // namespace zt::composite::internal
