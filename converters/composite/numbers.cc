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

namespace zt::composite::internal {
namespace {

constexpr std::uint64_t kWord = sizeof(float);
// Numbers that are computed at once: their codes and scales are in memory.
constexpr std::uint64_t kMostNumbers = std::uint64_t{4} << 20;
constexpr std::uint64_t kMostGathered = std::uint64_t{1} << 31;
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kMostCode = 512;       // no fixed code, less its zero point, is larger
constexpr std::uint64_t kStep = 2048;  // numbers that stay in the first-level cache

// A component as bytes.
class ComponentBytes final : public ByteSource {
 public:
  ComponentBytes(TensorSource& source, std::uint32_t object) : source_(source), id_{object, 0} {}
  const std::string& name() const override { return source_.file(id_); }
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
};

// Opens components: those that can only be read in order are held in memory.
class Opener {
 public:
  Opener(TensorSource& source, std::uint64_t memory)
      : source_(source),
        memory_(memory),
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
  std::uint64_t memory() const { return memory_; }

 private:
  TensorSource& source_;
  const std::uint64_t memory_;
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
    for (const auto& axis : stored.axes) {  // count, stride
      shape.push_back(axis.first);
      strides.push_back(axis.second);
    }
    view_ = std::make_unique<StridedView>(*bytes_, 0, CollapseAxes(shape, strides),
                                          StridedView::Elements{stored.width, 1}, opener.bands());
    return OkStatus();
  }
  Status Read(std::uint64_t offset, std::span<std::byte> out) const {
    return view_ != nullptr ? view_->Read(offset, out) : bytes_->ReadAt(offset, out);
  }

 private:
  std::shared_ptr<ByteSource> bytes_;
  std::unique_ptr<StridedView> view_;  // of bytes_
};

// See Numbers.
class WeightNumbers final : public Numbers {
 public:
  static StatusOr<std::unique_ptr<Numbers>> Make(const Weight& weight, TensorSource& source,
                                                 const Opener& opener) {
    auto out = std::make_unique<WeightNumbers>(weight, source, opener.memory());
    if (ElementCount(weight.shape) == 0) return out;
    ZT_RETURN_IF_ERROR(out->codes_.Open(weight.codes, opener));
    ZT_RETURN_IF_ERROR(out->scales_.Open(weight.scales, opener));
    if (weight.zeros) ZT_RETURN_IF_ERROR(out->zeros_.Open(*weight.zeros, opener));
    const auto open = [&](const auto& index, auto& bytes) -> Status {
      if (!index) return OkStatus();
      ZT_ASSIGN_OR_RETURN(bytes, opener.Open(*index));
      return OkStatus();
    };
    ZT_RETURN_IF_ERROR(open(weight.global, out->global_));
    ZT_RETURN_IF_ERROR(open(weight.groups, out->groups_));
    ZT_RETURN_IF_ERROR(open(weight.value_table, out->table_));
    if (weight.nested) {
      ZT_ASSIGN_OR_RETURN(out->nested_map_, opener.Open(weight.nested->map));
      ZT_ASSIGN_OR_RETURN(out->nested_absmax_, opener.Open(weight.nested->absmax));
    }
    return out;
  }
  WeightNumbers(const Weight& weight, TensorSource& source, std::uint64_t memory)
      : weight_(weight), source_(source), memory_(memory) {}

  Status Compute(std::uint64_t first, std::span<float> out, bool saturate, std::uint64_t& overflow,
                 BufferPool& pool) const override {
    while (!out.empty()) {
      const auto some = std::min<std::uint64_t>(out.size(), kMostNumbers);
      ZT_RETURN_IF_ERROR(Some(first, out.first(some), saturate, overflow, pool));
      first += some;
      out = out.subspan(some);
    }
    return OkStatus();
  }

 private:
  // What the numbers of some rows need.
  struct Needs {
    CodeLayout layout;
    float most_code = kMostCode;  // no magnitude is larger
    Buffer codes;
    std::uint64_t codes_at = 0;  // offset of the first byte
    std::vector<float> scales, zeros;
    std::uint64_t scales_at = 0;  // index of the first scale
    // The scales of some columns begin with those of `first_set`; a row has `sets` of them.
    std::uint64_t first_set = 0, sets = 0;
    // Of each column from `groups_at` on, counted from the first set; empty: they are consecutive.
    std::vector<std::uint32_t> groups;
    std::uint64_t groups_at = 0;
    Buffer words;                // packed zeros of all rows, of these sets
    std::uint64_t words_at = 0;  // row of the first word
    // A product may be beyond f32. Then `unbounded` says which scales are not finite as stored, if
    // any is.
    bool may_overflow = false;
    std::vector<bool> unbounded;
  };

  static Status ReadFloats(ByteSource& bytes, std::uint64_t first, std::span<float> out) {
    const auto raw = std::as_writable_bytes(out);
    ZT_RETURN_IF_ERROR(bytes.ReadAt(first * kWord, raw));
    LittleEndian(raw, kWord);
    return OkStatus();
  }

  Status Some(std::uint64_t first, std::span<float> out, bool saturate, std::uint64_t& overflow,
              BufferPool& pool) const {
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
      if (needs.may_overflow)
        overflow += CountOverflow(needs, r, column, saturate, out.first(some));
      out = out.subspan(some);
    }
    return OkStatus();
  }

  Status ReadCodes(std::uint64_t row, std::uint64_t last, std::uint64_t from, std::uint64_t to,
                   BufferPool& pool, Needs& needs) const {
    needs.layout = weight_.layout;
    if (table_ != nullptr) {
      ZT_RETURN_IF_ERROR(ReadFloats(*table_, 0, needs.layout.values));
      needs.most_code = Largest(needs.layout.values);
      if (!std::isfinite(needs.most_code)) {
        return AtTensor(source_, {*weight_.value_table, 0},
                        InvalidData("it has a value that is not finite"));
      }
    }
    const std::uint64_t first = row / weight_.rows_per_codes * weight_.pitch;
    const std::uint64_t end = last / weight_.rows_per_codes * weight_.pitch;
    needs.codes_at = first + BytesOfCodes(weight_.layout, from, 0).first;
    needs.codes = pool.Take(end + BytesOfCodes(weight_.layout, 0, to).second - needs.codes_at);
    return codes_.Read(needs.codes_at, needs.codes.bytes());
  }

  Status ReadScales(std::uint64_t row, std::uint64_t last, std::uint64_t from, std::uint64_t to,
                    Needs& needs) const {
    const Blocks& blocks = weight_.blocks;
    needs.sets = blocks.scale_columns;
    if (groups_ != nullptr) ZT_RETURN_IF_ERROR(ReadGroups(from, to, needs));
    if (row == last) {
      std::uint64_t end = (to - 1) / blocks.block_columns + 1;
      needs.first_set = from / blocks.block_columns;
      if (!needs.groups.empty()) {
        const std::uint32_t least = std::ranges::min(needs.groups);
        end = std::uint64_t{std::ranges::max(needs.groups)} + 1;
        needs.first_set = least;
        for (std::uint32_t& group : needs.groups) group -= least;
      }
      needs.sets = end - needs.first_set;
    }
    needs.scales_at = blocks.Index(row, 0) + needs.first_set;
    const std::uint64_t count =
        blocks.Index(last, 0) + needs.first_set + needs.sets - needs.scales_at;
    // What a range of numbers needs of them is beyond it where groups have no order.
    if (count > std::min(kMostNumbers + memory_ / (4 * kWord), kMostGathered)) {
      return WithAdvice(Unsupported("a row has " + std::to_string(count) +
                                    " scales in any order, which take more than the memory limit"),
                        Advice::kMemory);
    }
    const ElementType& element = source_.objects()[weight_.scales.object].components[0].element;
    const std::size_t width = ElementBytes(element);
    std::vector<std::byte> raw(count * width);
    ZT_RETURN_IF_ERROR(scales_.Read(needs.scales_at * width, raw));
    needs.scales.resize(count);
    if (weight_.nested) {
      ZT_RETURN_IF_ERROR(ComputeNested(raw, needs));
    } else {
      ZT_RETURN_IF_ERROR(DecodeScales(element, raw, needs.scales.data()));
      MarkUnbounded(needs);
    }
    if (global_ != nullptr) {
      float global = 0;
      ZT_RETURN_IF_ERROR(ReadFloats(*global_, 0, std::span(&global, 1)));
      if (!std::isfinite(global)) needs.unbounded.assign(count, true);
      for (float& scale : needs.scales) scale = weight_.divides ? scale / global : scale * global;
      if (global == 0 && weight_.divides) needs.unbounded.assign(count, true);
    }
    if (weight_.zeros_kind == Weight::Zeros::kEach) {
      const ElementType& type = source_.objects()[weight_.zeros->object].components[0].element;
      raw.resize(count * ElementBytes(type));
      ZT_RETURN_IF_ERROR(zeros_.Read(needs.scales_at * ElementBytes(type), raw));
      needs.zeros.resize(count);
      ZT_RETURN_IF_ERROR(DecodeScales(type, raw, needs.zeros.data()));
      needs.most_code += Largest(needs.zeros);
    } else if (weight_.zeros_kind == Weight::Zeros::kEqual) {
      needs.zeros.assign(count, weight_.zero);
    }
    needs.may_overflow = !(Largest(needs.scales) <= kLargest / std::max(needs.most_code, 1.f));
    return OkStatus();
  }

  // The largest magnitude; infinite or NaN if one is.
  static float Largest(std::span<const float> numbers) {
    std::uint32_t most = 0;
    for (const float number : numbers)
      most = std::max(most, std::bit_cast<std::uint32_t>(number) & 0x7fffffffu);
    return std::bit_cast<float>(most);
  }

  static void MarkUnbounded(Needs& needs) {
    if (std::isfinite(Largest(needs.scales))) return;
    needs.unbounded.resize(needs.scales.size());
    for (std::size_t i = 0; i < needs.scales.size(); ++i)
      needs.unbounded[i] = !std::isfinite(needs.scales[i]);
  }

  // The numbers that f32 cannot hold though all that makes them is finite: infinite ones, and the
  // NaN of a code of 0 and a scale beyond f32.
  std::uint64_t CountOverflow(const Needs& needs, std::uint64_t row, std::uint64_t column,
                              bool saturate, std::span<float> out) const {
    std::uint64_t found = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (std::isfinite(out[i])) continue;
      const std::uint64_t set = needs.groups.empty()
                                    ? (column + i) / weight_.blocks.block_columns
                                    : needs.groups[column + i - needs.groups_at] + needs.first_set;
      const std::uint64_t scale = weight_.blocks.Index(row, 0) + set - needs.scales_at;
      if (!needs.unbounded.empty() && needs.unbounded[scale]) continue;
      if (std::isnan(out[i]) && !std::isinf(needs.scales[scale])) continue;
      ++found;
      if (saturate) out[i] = std::isnan(out[i]) ? 0 : std::clamp(out[i], -kLargest, kLargest);
    }
    return found;
  }

  Status ComputeNested(std::span<const std::byte> codes, Needs& needs) const {
    const Weight::Nested& nested = *weight_.nested;
    std::array<float, 256> map;
    ZT_RETURN_IF_ERROR(ReadFloats(*nested_map_, 0, map));
    const std::uint64_t first = needs.scales_at / nested.block;
    std::vector<float> absmax((needs.scales_at + codes.size() - 1) / nested.block - first + 1);
    ZT_RETURN_IF_ERROR(ReadFloats(*nested_absmax_, first, absmax));
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const float factors[] = {map[std::to_integer<std::uint8_t>(codes[i])],
                               absmax[(needs.scales_at + i) / nested.block - first]};
      needs.scales[i] = factors[0] * factors[1] + nested.offset;
      if (std::isfinite(Largest(factors))) continue;
      needs.unbounded.resize(codes.size());
      needs.unbounded[i] = true;
    }
    return OkStatus();
  }

  // The set of scales of each column. Where one is -1, none is meant: consecutive groups.
  Status ReadGroups(std::uint64_t from, std::uint64_t to, Needs& needs) const {
    if (weight_.scheme == "pack-quantized") {
      ZT_ASSIGN_OR_RETURN(const bool meant, GroupsMeant());
      if (!meant) return OkStatus();
    }
    needs.groups.resize(to - from);
    needs.groups_at = from;
    ZT_RETURN_IF_ERROR(ReadWords(from, needs.groups));
    const auto wrong = std::ranges::find_if(
        needs.groups, [&](std::uint32_t group) { return group >= weight_.blocks.scale_columns; });
    if (wrong == needs.groups.end()) {
      if (InOrder(from, needs.groups)) needs.groups.clear();
      return OkStatus();
    }
    return AtTensor(
        source_, {*weight_.groups, 0},
        InvalidData(
            "it says group " + std::to_string(static_cast<std::int32_t>(*wrong)) + " of column " +
            std::to_string(from + static_cast<std::uint64_t>(wrong - needs.groups.begin())) +
            ", there are " + std::to_string(weight_.blocks.scale_columns)));
  }

  // True if they are those of columns from `from` on without g_idx.
  bool InOrder(std::uint64_t from, std::span<const std::uint32_t> groups) const {
    const std::uint64_t size = weight_.blocks.block_columns;
    for (std::uint64_t run; !groups.empty(); groups = groups.subspan(run), from += run) {
      const std::uint64_t group = from / size;
      run = std::min<std::uint64_t>((group + 1) * size - from, groups.size());
      for (const std::uint32_t each : groups.first(run)) {
        if (each != group) return false;
      }
    }
    return true;
  }

  Status ReadWords(std::uint64_t from, std::span<std::uint32_t> out) const {
    const auto raw = std::as_writable_bytes(out);
    ZT_RETURN_IF_ERROR(groups_->ReadAt(from * sizeof(std::uint32_t), raw));
    LittleEndian(raw, sizeof(std::uint32_t));
    return OkStatus();
  }

  // False if one is -1. Looks once.
  StatusOr<bool> GroupsMeant() const {
    const std::lock_guard lock(groups_mutex_);
    std::vector<std::uint32_t> some(std::min<std::uint64_t>(weight_.columns, kStep * 32));
    for (std::uint64_t at = 0; !groups_meant_ && at < weight_.columns; at += some.size()) {
      some.resize(std::min<std::uint64_t>(some.size(), weight_.columns - at));
      ZT_RETURN_IF_ERROR(ReadWords(at, some));
      if (std::ranges::find(some, ~std::uint32_t{0}) != some.end()) groups_meant_ = false;
    }
    if (!groups_meant_) groups_meant_ = true;
    return *groups_meant_;
  }

  // Where the zero point of a row begins in the column of its group: they lie along the rows.
  std::uint64_t BitOfZero(std::uint64_t row) const {
    const std::uint64_t per = weight_.layout.per_word;
    return per == 0 ? row * weight_.bits : row / per * 32 + row % per * weight_.bits;
  }

  Status ReadZeros(std::uint64_t row, std::uint64_t last, BufferPool& pool, Needs& needs) const {
    if (weight_.zeros_kind != Weight::Zeros::kPacked) return OkStatus();
    needs.words_at = BitOfZero(row) / 32;
    const std::uint64_t end = (BitOfZero(last) + weight_.bits + 31) / 32;
    const std::uint64_t line = weight_.blocks.scale_columns * kWord, part = needs.sets * kWord;
    needs.words = pool.Take((end - needs.words_at) * part);
    if (part == line) return zeros_.Read(needs.words_at * line, needs.words.bytes());
    for (std::uint64_t r = needs.words_at; r < end; ++r) {
      ZT_RETURN_IF_ERROR(
          zeros_.Read(r * line + needs.first_set * kWord,
                      needs.words.bytes().subspan((r - needs.words_at) * part, part)));
    }
    return OkStatus();
  }

  void UnpackZeros(const Needs& needs, std::uint64_t row, std::vector<float>& zeros) const {
    const unsigned bits = weight_.bits;
    const std::uint64_t bit = BitOfZero(row), sets = needs.sets;
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
    // Of the row's first set.
    const std::uint64_t first = blocks.Index(row, 0) + needs.first_set - needs.scales_at;
    const float* const scales = needs.scales.data() + first;
    const float* const zeros = packed                ? unpacked.data()
                               : needs.zeros.empty() ? nullptr
                                                     : needs.zeros.data() + first;
    const std::uint64_t codes_row = row / weight_.rows_per_codes * weight_.pitch;
    while (!out.empty()) {
      const auto some = out.first(std::min<std::uint64_t>(out.size(), kStep));
      const std::uint64_t at =
          codes_row + BytesOfCodes(weight_.layout, column, 0).first - needs.codes_at;
      DecodeCodes(needs.layout, needs.codes.bytes().data() + at, column,
                  weight_.shifts[row % weight_.rows_per_codes], some);
      if (!needs.groups.empty()) {
        ScaleGathered(some, needs.groups.data() + (column - needs.groups_at), scales, zeros);
      } else {
        const std::uint64_t set = column / blocks.block_columns - needs.first_set;
        const float* const some_zeros = zeros == nullptr ? nullptr : zeros + set;
        if (blocks.block_columns == 1) {
          ScaleEach(some, scales + set, some_zeros);
        } else {
          ScaleRuns(some, scales + set, some_zeros, column % blocks.block_columns,
                    blocks.block_columns);
        }
      }
      if (weight_.factor) ScaleRuns(some, &*weight_.factor, nullptr, 0, some.size());
      column += some.size();
      out = out.subspan(some.size());
    }
  }

  const Weight& weight_;
  TensorSource& source_;
  const std::uint64_t memory_;
  Rows codes_, scales_, zeros_;
  mutable std::mutex groups_mutex_;
  mutable std::optional<bool> groups_meant_;  // guarded by it
  std::shared_ptr<ByteSource> global_, groups_, table_, nested_map_, nested_absmax_;
};

}  // namespace

NumbersMaker MakeNumbers(TensorSource& source, std::uint64_t memory) {
  return [&source, opener = Opener(source, memory)](const Weight& weight) {
    return WeightNumbers::Make(weight, source, opener);
  };
}

}  // namespace zt::composite::internal
