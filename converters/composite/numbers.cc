// zt.convert.composite:numbers — computes the numbers of a quantized tensor from its codes and
// scales.
module;

#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.convert.composite;

import zt.std;
import :numbers;
import :weights;
import zt.convert.strided;
import zt.core;
import zt.pipeline;
import zt.source;
import zt.transform;

#pragma clang fp contract(off)

namespace zt::composite::internal {
namespace {

constexpr std::uint64_t kWord = sizeof(float);
// Numbers that are computed at once: their codes and scales are in memory.
constexpr std::uint64_t kMostNumbers = std::uint64_t{4} << 20;
constexpr std::uint64_t kStep = 2048;  // numbers that stay in the first-level cache

// A component as bytes.
class ComponentBytes final : public ByteSource {
 public:
  ComponentBytes(TensorSource& source, std::uint32_t object)
      : source_(source), id_{object, 0}, name_(source.file(id_)) {}
  const std::string& name() const override { return name_; }
  std::optional<std::uint64_t> size() const override {
    return source_.objects()[id_.object].components[0].bytes;
  }
  bool sequential() const override { return false; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    return WithTensor(source_.Read(id_, offset, out), source_.objects()[id_.object].name);
  }

 private:
  TensorSource& source_;
  const ComponentId id_;
  const std::string name_;
};

// Opens components: those that can only be read in order are held in memory.
class Opener {
 public:
  Opener(TensorSource& source, std::uint64_t memory)
      : source_(source),
        held_(std::make_shared<HeldBytes>(memory)),
        bands_(std::make_shared<StridedBands>(memory)) {}

  StatusOr<std::shared_ptr<ByteSource>> Open(std::uint32_t object) const {
    auto bytes = std::make_shared<ComponentBytes>(source_, object);
    if (!source_.sequential({object, 0})) return bytes;
    const std::uint64_t size = *bytes->size();
    if (size > held_->room()) {
      return WithAdvice(Unsupported(TensorContext(source_.objects()[object].name) +
                                    " can only be read in order, and its " + std::to_string(size) +
                                    " bytes take more than the memory limit"),
                        Advice::kMemory);
    }
    return HeldBytes::Make(held_, std::move(bytes), 0, size);
  }
  const std::shared_ptr<StridedBands>& bands() const { return bands_; }

 private:
  TensorSource& source_;
  const std::shared_ptr<HeldBytes> held_;
  const std::shared_ptr<StridedBands> bands_;
};

// A component in the order that the numbers need.
class Rows {
 public:
  Status Open(const Stored& stored, const Opener& opener) {
    ZT_ASSIGN_OR_RETURN(bytes_, opener.Open(stored.object));
    if (stored.axes.empty()) return OkStatus();
    Shape shape, strides;
    for (const auto& [count, stride] : stored.axes) {
      shape.push_back(count);
      strides.push_back(stride);
    }
    view_ = std::make_unique<StridedView>(*bytes_, 0, CollapseAxes(shape, strides),
                                          StridedView::Elements{stored.width, 1}, opener.bands());
    return OkStatus();
  }
  Status Read(std::uint64_t offset, std::span<std::byte> out) const {
    return view_ != nullptr ? view_->Read(offset, out) : bytes_->ReadAt(offset, out);
  }
  bool moved() const { return view_ != nullptr; }

 private:
  std::shared_ptr<ByteSource> bytes_;
  std::unique_ptr<StridedView> view_;  // of bytes_
};

// See Numbers.
class WeightNumbers final : public Numbers {
 public:
  static StatusOr<std::unique_ptr<Numbers>> Make(Weight weight, TensorSource& source,
                                                 const Opener& opener) {
    auto out = std::make_unique<WeightNumbers>(std::move(weight), source);
    Weight& of = out->weight_;
    if (ElementCount(of.shape) == 0) return out;
    ZT_RETURN_IF_ERROR(out->codes_.Open(of.codes, opener));
    ZT_RETURN_IF_ERROR(out->scales_.Open(of.scales, opener));
    if (of.zeros) ZT_RETURN_IF_ERROR(out->zeros_.Open(*of.zeros, opener));
    for (const auto& [index, bytes] :
         {std::make_pair(of.global, &out->global_), std::make_pair(of.groups, &out->groups_),
          std::make_pair(of.value_table, &out->table_)}) {
      if (!index) continue;
      ZT_ASSIGN_OR_RETURN(*bytes, opener.Open(*index));
    }
    if (of.nested) {
      ZT_ASSIGN_OR_RETURN(out->nested_map_, opener.Open(of.nested->map));
      ZT_ASSIGN_OR_RETURN(out->nested_absmax_, opener.Open(of.nested->absmax));
    }
    return out;
  }
  WeightNumbers(Weight weight, TensorSource& source)
      : weight_(std::move(weight)), source_(source) {}

  const Weight& weight() const override { return weight_; }
  bool moved() const override { return codes_.moved(); }

  Status Compute(std::uint64_t first, std::span<float> out, BufferPool& pool) const override {
    while (!out.empty()) {
      const auto some = std::min<std::uint64_t>(out.size(), kMostNumbers);
      ZT_RETURN_IF_ERROR(Some(first, out.first(some), pool));
      first += some;
      out = out.subspan(some);
    }
    return OkStatus();
  }

 private:
  // What the numbers of some rows need.
  struct Needs {
    CodeLayout layout;
    Buffer codes;
    std::uint64_t codes_at = 0;  // offset of the first byte
    std::vector<float> scales, zeros;
    std::uint64_t scales_at = 0;  // index of the first scale
    std::vector<std::uint32_t> groups;
    Buffer words;                // packed zeros of all rows
    std::uint64_t words_at = 0;  // row of the first word
  };

  static Status ReadFloats(ByteSource& bytes, std::uint64_t first, std::span<float> out) {
    const auto raw = std::as_writable_bytes(out);
    ZT_RETURN_IF_ERROR(bytes.ReadAt(first * kWord, raw));
    LittleEndian(raw, kWord);
    return OkStatus();
  }

  Status Some(std::uint64_t first, std::span<float> out, BufferPool& pool) const {
    const std::uint64_t columns = weight_.columns, last = first + out.size() - 1;
    const std::uint64_t row = first / columns, last_row = last / columns;
    const bool one = row == last_row;
    const std::uint64_t from = one ? first % columns : 0, to = one ? last % columns + 1 : columns;
    Needs needs;
    ZT_RETURN_IF_ERROR(ReadCodes(row, last_row, from, to, pool, needs));
    ZT_RETURN_IF_ERROR(ReadScales(row, last_row, from, to, needs));
    ZT_RETURN_IF_ERROR(ReadZeros(row, last_row, pool, needs));
    for (std::uint64_t r = row, column = first % columns; !out.empty(); ++r, column = 0) {
      const auto some = std::min<std::uint64_t>(columns - column, out.size());
      Row(needs, r, column, out.first(some));
      out = out.subspan(some);
    }
    return OkStatus();
  }

  Status ReadCodes(std::uint64_t row, std::uint64_t last, std::uint64_t from, std::uint64_t to,
                   BufferPool& pool, Needs& needs) const {
    needs.layout = weight_.layout;
    if (table_ != nullptr) ZT_RETURN_IF_ERROR(ReadFloats(*table_, 0, needs.layout.values));
    const std::uint64_t first = row / weight_.rows_per_codes * weight_.pitch;
    const std::uint64_t end = last / weight_.rows_per_codes * weight_.pitch;
    needs.codes_at = first + BytesOfCodes(weight_.layout, from, 0).first;
    needs.codes = pool.Take(end + BytesOfCodes(weight_.layout, 0, to).second - needs.codes_at);
    return codes_.Read(needs.codes_at, needs.codes.bytes());
  }

  Status ReadScales(std::uint64_t row, std::uint64_t last, std::uint64_t from, std::uint64_t to,
                    Needs& needs) const {
    if (groups_ != nullptr) {
      from = 0;
      to = weight_.columns;
      ZT_RETURN_IF_ERROR(ReadGroups(needs));
    }
    needs.scales_at = weight_.blocks.Index(row, from);
    const std::uint64_t count = weight_.blocks.Index(last, to - 1) + 1 - needs.scales_at;
    const ElementType& element = source_.objects()[weight_.scales.object].components[0].element;
    const std::size_t width = ElementBytes(element);
    std::vector<std::byte> raw(count * width);
    ZT_RETURN_IF_ERROR(scales_.Read(needs.scales_at * width, raw));
    needs.scales.resize(count);
    if (weight_.nested) {
      ZT_RETURN_IF_ERROR(ComputeNested(raw, needs));
    } else {
      ZT_RETURN_IF_ERROR(DecodeScales(element, raw, needs.scales.data()));
    }
    if (global_ != nullptr) {
      float global = 0;
      ZT_RETURN_IF_ERROR(ReadFloats(*global_, 0, std::span(&global, 1)));
      for (float& scale : needs.scales) scale = weight_.divides ? scale / global : scale * global;
    }
    if (weight_.zeros_kind == Weight::Zeros::kI8) {
      ZT_RETURN_IF_ERROR(zeros_.Read(needs.scales_at, std::span(raw).first(count)));
      needs.zeros.resize(count);
      for (std::uint64_t i = 0; i < count; ++i)
        needs.zeros[i] = static_cast<float>(static_cast<std::int8_t>(raw[i]));
    } else if (weight_.zeros_kind == Weight::Zeros::kEqual) {
      needs.zeros.assign(count, weight_.zero);
    }
    return OkStatus();
  }

  Status ComputeNested(std::span<const std::byte> codes, Needs& needs) const {
    const Weight::Nested& nested = *weight_.nested;
    std::array<float, 256> map;
    ZT_RETURN_IF_ERROR(ReadFloats(*nested_map_, 0, map));
    const std::uint64_t first = needs.scales_at / nested.block;
    std::vector<float> absmax((needs.scales_at + codes.size() - 1) / nested.block - first + 1);
    ZT_RETURN_IF_ERROR(ReadFloats(*nested_absmax_, first, absmax));
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const float scale = map[std::to_integer<std::uint8_t>(codes[i])] *
                          absmax[(needs.scales_at + i) / nested.block - first];
      needs.scales[i] = scale + nested.offset;
    }
    return OkStatus();
  }

  // The set of scales of each column. Where one is -1, none is meant: consecutive groups.
  Status ReadGroups(Needs& needs) const {
    std::vector<std::uint32_t> groups(weight_.columns);
    const auto raw = std::as_writable_bytes(std::span(groups));
    ZT_RETURN_IF_ERROR(groups_->ReadAt(0, raw));
    LittleEndian(raw, sizeof(std::uint32_t));
    if (std::ranges::find(groups, ~std::uint32_t{0}) != groups.end() &&
        weight_.scheme == "pack-quantized")
      return OkStatus();
    const auto wrong = std::ranges::find_if(
        groups, [&](std::uint32_t group) { return group >= weight_.blocks.scale_columns; });
    if (wrong != groups.end()) {
      return InvalidData(TensorContext(source_.objects()[*weight_.groups].name) + " says group " +
                         std::to_string(static_cast<std::int32_t>(*wrong)) + " of column " +
                         std::to_string(wrong - groups.begin()) + ", there are " +
                         std::to_string(weight_.blocks.scale_columns));
    }
    needs.groups = std::move(groups);
    return OkStatus();
  }

  // Zero points of a group are dense along the rows: row r begins at bit r * bits of its column.
  Status ReadZeros(std::uint64_t row, std::uint64_t last, BufferPool& pool, Needs& needs) const {
    if (weight_.zeros_kind != Weight::Zeros::kPacked) return OkStatus();
    needs.words_at = row * weight_.bits / 32;
    const std::uint64_t end = ((last + 1) * weight_.bits + 31) / 32;
    const std::uint64_t line = weight_.blocks.scale_columns * kWord;
    needs.words = pool.Take((end - needs.words_at) * line);
    return zeros_.Read(needs.words_at * line, needs.words.bytes());
  }

  void UnpackZeros(const Needs& needs, std::uint64_t row, std::vector<float>& zeros) const {
    const unsigned bits = weight_.bits;
    const std::uint64_t bit = row * bits, sets = weight_.blocks.scale_columns;
    const bool awq = weight_.layout.kind == Codes::kPicked;
    const unsigned shift = awq ? weight_.shifts[row % 8] : static_cast<unsigned>(bit % 32);
    const std::byte* const words =
        needs.words.bytes().data() + (bit / 32 - needs.words_at) * sets * kWord;
    zeros.resize(sets);
    for (std::uint64_t g = 0; g < sets; ++g) {
      std::uint64_t word = zt::internal::LoadLittle(words + g * kWord, kWord);
      if (shift + bits > 32)
        word |= zt::internal::LoadLittle(words + (sets + g) * kWord, kWord) << 32;
      zeros[g] = static_cast<float>(((word >> shift) + weight_.zero_offset) & ((1u << bits) - 1));
    }
  }

  void Row(const Needs& needs, std::uint64_t row, std::uint64_t column,
           std::span<float> out) const {
    const auto& blocks = weight_.blocks;
    std::vector<float> unpacked;
    const bool packed = weight_.zeros_kind == Weight::Zeros::kPacked;
    if (packed) UnpackZeros(needs, row, unpacked);
    const std::uint64_t first_scale = blocks.Index(row, 0);
    const std::uint64_t codes_row = row / weight_.rows_per_codes * weight_.pitch;
    while (!out.empty()) {
      const auto some = out.first(std::min<std::uint64_t>(out.size(), kStep));
      const std::uint64_t at =
          codes_row + BytesOfCodes(weight_.layout, column, 0).first - needs.codes_at;
      DecodeCodes(needs.layout, needs.codes.bytes().data() + at, column,
                  weight_.shifts[row % weight_.rows_per_codes], some);
      if (!needs.groups.empty()) {
        ScaleGathered(needs, first_scale, column, packed ? unpacked.data() : nullptr, some);
      } else {
        const std::uint64_t scale = blocks.Index(row, column);
        const float* const scales = needs.scales.data() + (scale - needs.scales_at);
        const float* const zeros = packed ? unpacked.data() + (scale - first_scale)
                                   : needs.zeros.empty()
                                       ? nullptr
                                       : needs.zeros.data() + (scale - needs.scales_at);
        if (blocks.block_columns == 1) {
          ScaleEach(some, scales, zeros);
        } else {
          ScaleRuns(some, scales, zeros, column % blocks.block_columns, blocks.block_columns);
        }
      }
      if (weight_.factor) ScaleRuns(some, &*weight_.factor, nullptr, 0, some.size());
      column += some.size();
      out = out.subspan(some.size());
    }
  }

  // Each column has the scale and zero point of its group.
  void ScaleGathered(const Needs& needs, std::uint64_t first_scale, std::uint64_t column,
                     const float* row_zeros, std::span<float> out) const {
    float scales[kStep], zeros[kStep];
    const float* const from = needs.scales.data() + (first_scale - needs.scales_at);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::uint32_t group = needs.groups[column + i];
      scales[i] = from[group];
      zeros[i] = row_zeros != nullptr ? row_zeros[group] : weight_.zero;
    }
    ScaleEach(out, scales, zeros);
  }

  Weight weight_;
  TensorSource& source_;
  Rows codes_, scales_, zeros_;
  std::shared_ptr<ByteSource> global_, groups_, table_, nested_map_, nested_absmax_;
};

}  // namespace

NumbersMaker MakeNumbers(TensorSource& source, std::uint64_t memory) {
  return [&source, opener = Opener(source, memory)](Weight weight) {
    return WeightNumbers::Make(std::move(weight), source, opener);
  };
}

}  // namespace zt::composite::internal
