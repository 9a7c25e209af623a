// zt.convert.composite:scheme — compressed-tensors, format pack-quantized.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.composite;

import zt.std;
import :scheme;
import zt.core;
import zt.source;

namespace zt::composite::internal {
namespace {

constexpr std::uint64_t kWordBits = 32;

// Nullopt where the entry is of a kind that is not grouped.
std::optional<Weights> ParseWeights(const Value::Map& map) {
  const auto bits = Integer(map, "num_bits");
  const auto strategy = Text(map, "strategy");
  if (!bits || (*bits != 2 && *bits != 4 && *bits != 8) ||
      Text(map, "type").value_or("int") != "int" || Flag(map, "dynamic").value_or(false)) {
    return std::nullopt;
  }
  Weights weights;
  weights.bits = static_cast<std::uint64_t>(*bits);
  weights.symmetric = Flag(map, "symmetric").value_or(true);
  weights.act_order = Text(map, "actorder") == "group";
  const std::int64_t size = Integer(map, "group_size").value_or(-1);
  if (strategy == "channel") return weights;
  if ((strategy && strategy != "group") || size <= 0) return std::nullopt;
  weights.group_size = size;
  return weights;
}

std::uint64_t CeilDiv(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0); }

// The two numbers that weight_shape holds: its data, not its shape.
StatusOr<Shape> ReadWeightShape(const Tensors& tensors, const Object& tensor) {
  ZT_RETURN_IF_ERROR(RequireShape(tensor, {2}));
  const ComponentId id{*tensors.Find(tensor.name), 0};
  std::array<std::byte, 16> bytes{};
  const std::size_t width = ByteWidth(tensor.components[0].element.dtype);
  const Status read = tensors.source().Read(id, 0, std::span(bytes).first(2 * width));
  if (!read.ok()) return AtTensor(tensors.source(), id, read);
  Shape shape(2);
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t b = 0; b < width; ++b)
      shape[i] |= std::to_integer<std::uint64_t>(bytes[i * width + b]) << (8 * b);
  }
  return shape;
}

// What a module's shapes say.
struct Shapes {
  std::uint64_t packed_columns = 0, in = 0, groups = 0;
  bool symmetric = false, act_order = false;
};

// The configuration's groups address modules by class and pattern; which one is meant shows in the shapes.
StatusOr<Weights> FittingWeights(const Declared& declared, const Shapes& shapes) {
  std::optional<Weights> found;
  for (const Weights& each : declared.weights) {
    const std::uint64_t size =
        each.group_size < 0 ? shapes.in : static_cast<std::uint64_t>(each.group_size);
    const bool fits = CeilDiv(shapes.in * each.bits, kWordBits) == shapes.packed_columns &&
                      CeilDiv(shapes.in, size) == shapes.groups &&
                      each.symmetric == shapes.symmetric && each.act_order == shapes.act_order;
    if (!fits) continue;
    if (found) return Unsupported("two of the configuration's config_groups fit it");
    found = each;
  }
  if (found) return *found;
  return Unsupported(
      "no entry of the configuration's config_groups with 2, 4 or 8 bits fits the shapes");
}

}  // namespace

std::vector<Weights> ConfiguredWeights(const Value::Map& config) {
  std::vector<Weights> out;
  const Value* groups = FindMember(config, "config_groups");
  if (groups == nullptr || groups->AsMap() == nullptr) return out;
  for (const auto& [name, group] : *groups->AsMap()) {
    if (group.AsMap() == nullptr) continue;
    const Value* weights = FindMember(*group.AsMap(), "weights");
    if (weights == nullptr || weights->AsMap() == nullptr) continue;
    const auto parsed = ParseWeights(*weights->AsMap());
    if (parsed) out.push_back(*parsed);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// weight_packed i32 [out, ceil(in * bits / 32)] packs along `in` from the low bits up, weight_zero_point i32
// [ceil(out * bits / 32), groups] along `out`; both hold code + 2^(bits - 1). weight_scale [out, groups].
StatusOr<Recipe> RecognizePackQuantized(const Declared& declared, const Tensors& tensors,
                                        const std::string& module) {
  Members members(tensors, module);
  ZT_ASSIGN_OR_RETURN(const Object* const packed,
                      members.Need("packed_weight", ".weight_packed", {DType::kI32}, 2));
  ZT_ASSIGN_OR_RETURN(const Object* const scales,
                      members.Need("scales", ".weight_scale", FloatTypes(), 2));
  const Object* zeros = nullptr;
  if (members.Has(".weight_zero_point")) {
    ZT_ASSIGN_OR_RETURN(zeros, members.Need("zeros", ".weight_zero_point", {DType::kI32}, 2));
  }
  const Object* g_idx = nullptr;
  if (members.Has(".weight_g_idx")) {
    ZT_ASSIGN_OR_RETURN(g_idx, members.Need("g_idx", ".weight_g_idx", {DType::kI32}, 1));
  }
  ZT_ASSIGN_OR_RETURN(const Object* const stored_shape,
                      members.Need("weight_shape", ".weight_shape", {DType::kI64, DType::kI32}, 1));
  if (members.Has(".weight_global_scale")) {
    return Unsupported(TensorContext(module + ".weight_global_scale") +
                       " makes it more than codes, scales and zeros");
  }
  ZT_ASSIGN_OR_RETURN(const Shape shape, ReadWeightShape(tensors, *stored_shape));
  const std::uint64_t out = packed->shape[0];
  const std::uint64_t in = shape[1];
  if (shape[0] != out || in == 0 || !CheckedMul(in, kWordBits)) {
    return Unsupported(TensorContext(stored_shape->name) + " says " + ToString(shape) + ", " +
                       TensorContext(packed->name) + " has shape " + ToString(packed->shape));
  }
  const std::uint64_t groups = scales->shape[1];
  ZT_RETURN_IF_ERROR(RequireShape(*scales, {out, groups}));
  if (g_idx != nullptr) ZT_RETURN_IF_ERROR(RequireShape(*g_idx, {in}));

  ZT_ASSIGN_OR_RETURN(const Weights weights,
                      FittingWeights(declared, {.packed_columns = packed->shape[1],
                                                .in = in,
                                                .groups = groups,
                                                .symmetric = zeros == nullptr,
                                                .act_order = g_idx != nullptr}));
  if (zeros != nullptr) {
    ZT_RETURN_IF_ERROR(RequireShape(*zeros, {CeilDiv(out, kWordBits / weights.bits), groups}));
  }

  Value::Map attributes;
  attributes.emplace_back("quant_method", "compressed-tensors");
  attributes.emplace_back("bits", weights.bits);
  attributes.emplace_back(
      "group_size", weights.group_size < 0 ? in : static_cast<std::uint64_t>(weights.group_size));
  attributes.emplace_back("packing", "compressed_tensors_i32_lsb_cols");
  if (zeros != nullptr) {
    attributes.emplace_back("zeros_packing", "compressed_tensors_i32_lsb_rows");
    attributes.emplace_back("zero_offset", std::uint64_t{0});
  } else {
    attributes.emplace_back("zero_point", std::uint64_t{1} << (weights.bits - 1));
  }
  attributes.emplace_back("format", Text(declared.config, "format").value_or(""));
  return members.Finish(shape, std::move(attributes));
}

}  // namespace zt::composite::internal
