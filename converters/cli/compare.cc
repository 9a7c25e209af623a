// zt.cli:compare — matching by name, reading both sides in parallel, counting what differs.
module;

#include "core/little_endian.h"
#include "core/name_table.h"
#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :compare;
import :support;

namespace zt::cli::internal {
namespace {

constexpr std::uint64_t kRange = std::uint64_t{2} << 20;  // of one side
constexpr std::uint64_t kAligned = 16;                    // the largest element
constexpr std::size_t kBlock = 4096;                      // elements looked at at once

// Two components of the same declaration.
struct Pair {
  ComponentId first, second;
  const Object* object = nullptr;
  const Component* component = nullptr;
  std::size_t unit = 1;  // bytes of an element
  // How elements become numbers; none where only their bits count.
  enum class Numbers { kNone, kFloat, kSigned, kUnsigned, kComplex } numbers = Numbers::kNone;
  std::shared_ptr<const Transform> to_f64;

  // The pair that has the same bytes on both sides, where there is one: it is read for both.
  std::optional<std::size_t> same_as = std::nullopt;

  // Gathered in order.
  std::uint64_t differing = 0, nan = 0;
  std::optional<double> largest;
};

// Memory that a part takes beside its bytes, roughly: many small components must not fill it.
constexpr std::uint64_t kRangeWeight = 512;

struct Counts {
  std::uint64_t differing = 0, nan = 0;
  std::optional<double> largest;
  void Add(double difference) {
    if (std::isnan(difference)) {
      ++nan;
    } else if (!largest || difference > *largest) {
      largest = difference;
    }
  }
  // Two complex numbers, as numbers and as the bytes they have, `half` a part. A part that is NaN on either side and
  // differs counts as NaN; the other part still has a distance.
  void AddComplex(const double* x, const double* y, const std::byte* left, const std::byte* right,
                  std::size_t half) {
    double parts[2] = {};
    bool unlike = false, numbers = false;
    for (std::size_t i = 0; i < 2; ++i) {
      if (std::memcmp(left + i * half, right + i * half, half) == 0) continue;
      if (std::isnan(x[i]) || std::isnan(y[i])) {
        unlike = true;
      } else {
        numbers = true;
        parts[i] = x[i] == y[i] ? 0 : x[i] - y[i];
      }
    }
    if (unlike) ++nan;
    if (numbers) largest = std::max(largest.value_or(0), std::hypot(parts[0], parts[1]));
  }
};

std::uint64_t Distance(const std::byte* a, const std::byte* b, std::size_t width, bool is_signed) {
  std::uint64_t x = zt::internal::LoadLittle(a, width), y = zt::internal::LoadLittle(b, width);
  if (is_signed) {  // the order of signed numbers, shifted
    const std::uint64_t sign = std::uint64_t{1} << (8 * width - 1);
    x ^= sign;
    y ^= sign;
  }
  return x > y ? x - y : y - x;
}

// Unequal blocks of at most kBlock elements.
void CountBlock(const Pair& pair, std::span<const std::byte> a, std::span<const std::byte> b,
                Counts& counts) {
  const std::size_t count = a.size() / pair.unit;
  const std::size_t parts = pair.numbers == Pair::Numbers::kComplex ? 2 : 1;
  std::vector<double> x, y;
  if (pair.to_f64 != nullptr) {
    NumericCounts ignored;
    x.resize(count * parts);
    y.resize(count * parts);
    pair.to_f64->Apply(a, std::as_writable_bytes(std::span(x)), ignored);
    pair.to_f64->Apply(b, std::as_writable_bytes(std::span(y)), ignored);
    LittleEndian(std::as_writable_bytes(std::span(x)), sizeof(double));
    LittleEndian(std::as_writable_bytes(std::span(y)), sizeof(double));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::byte* left = a.data() + i * pair.unit;
    const std::byte* right = b.data() + i * pair.unit;
    if (std::memcmp(left, right, pair.unit) == 0) continue;
    ++counts.differing;
    switch (pair.numbers) {
      case Pair::Numbers::kNone:
        break;
      case Pair::Numbers::kFloat:
        counts.Add(x[i] == y[i] ? 0 : std::abs(x[i] - y[i]));
        break;
      case Pair::Numbers::kComplex:
        counts.AddComplex(x.data() + 2 * i, y.data() + 2 * i, left, right, pair.unit / 2);
        break;
      default:
        counts.Add(static_cast<double>(
            Distance(left, right, pair.unit, pair.numbers == Pair::Numbers::kSigned)));
    }
  }
}

Counts CountRange(const Pair& pair, std::span<const std::byte> a, std::span<const std::byte> b) {
  Counts counts;
  const std::size_t step = kBlock * pair.unit;
  for (std::size_t at = 0; at < a.size(); at += step) {
    const std::size_t size = std::min(step, a.size() - at);
    if (std::memcmp(a.data() + at, b.data() + at, size) == 0) continue;
    CountBlock(pair, a.subspan(at, size), b.subspan(at, size), counts);
  }
  return counts;
}

void Interpret(Pair& pair) {
  const Component& component = *pair.component;
  const ElementType& element = component.element;
  const LogicalType* logical = FindLogicalType(element.type);
  pair.unit = ByteWidth(element.dtype) * (logical == nullptr ? 1 : logical->ratio);
  if (component.bytes % pair.unit != 0) pair.unit = 1;
  const std::string_view format = pair.object->format;
  if (format != "dense" && !IsSparse(format)) return;  // blocks and packed numbers
  if (element.type.starts_with("complex")) {
    if (auto made = MakeConversion(element, *ParseElementType("complex128"), OnOverflow::kInf);
        made.ok()) {
      pair.to_f64 = *made;
      pair.numbers = Pair::Numbers::kComplex;
    }
  } else if (IsFloat(element.dtype) || element.type.starts_with("f8_")) {
    if (auto made = MakeConversion(element, {DType::kF64, ""}, OnOverflow::kInf); made.ok()) {
      pair.to_f64 = *made;
      pair.numbers = Pair::Numbers::kFloat;
    }
  } else if (element.type.empty() && element.dtype != DType::kBool) {
    pair.numbers = IsSignedInt(element.dtype) ? Pair::Numbers::kSigned : Pair::Numbers::kUnsigned;
  }
}

constexpr std::string_view kLogicalShape = "logical_shape";

// Nothing where the value is not a list of unsigned integers.
std::optional<Shape> ToShape(const Value* value) {
  const Value::Array* const dims = value == nullptr ? nullptr : value->AsArray();
  if (dims == nullptr) return std::nullopt;
  Shape shape;
  for (const Value& dim : *dims) {
    if (dim.AsUint() == nullptr) return std::nullopt;
    shape.push_back(*dim.AsUint());
  }
  return shape;
}

// A range of a pair, of both sides.
struct ComparedRange {
  std::uint32_t pair = 0;
  std::uint64_t offset = 0, count = 0;                 // in bytes, of each side
  std::span<const std::byte> first = {}, second = {};  // in the batch's buffer, once read
  Counts counts = {};
};

using Batch = BatchOf<ComparedRange>;

class Comparer {
 public:
  Comparer(TensorSource& first, TensorSource& second, const CompareOptions& options)
      : first_(first),
        second_(second),
        options_(options),
        pool_(MemoryFor(options.memory_bytes, options.threads) / 2) {}

  StatusOr<Comparison> Run() {
    if (!first_.seekable() && !second_.seekable()) {
      return Unsupported("two pipes cannot be compared; name a file for one of them");
    }
    ZT_RETURN_IF_ERROR(Match());
    if (!second_.seekable()) {
      std::sort(pairs_.begin(), pairs_.end(), [](const Pair& a, const Pair& b) {
        return std::pair(a.second.object, a.second.component) <
               std::pair(b.second.object, b.second.component);
      });
    }
    if (!pairs_.empty()) FindSame();
    ZT_RETURN_IF_ERROR(CompareValues());
    ZT_RETURN_IF_ERROR(first_.Finish());  // it names the file
    ZT_RETURN_IF_ERROR(second_.Finish());
    Report();
    return std::move(result_);
  }

 private:
  class ReadStage;
  class CompareStage;
  class SumStage;

  Status Match() {
    std::unordered_map<std::string_view, std::uint32_t, zt::internal::NameHash> by_name;
    const auto& theirs = second_.objects();
    for (std::uint32_t i = 0; i < theirs.size(); ++i) by_name.emplace(theirs[i].name, i);
    std::vector<bool> taken(theirs.size(), false);
    for (std::uint32_t i = 0; i < first_.objects().size(); ++i) {
      const Object& object = first_.objects()[i];
      const auto found = by_name.find(object.name);
      if (found == by_name.end()) {
        found_.push_back({i, {.kind = DifferenceKind::kOnlyFirst, .tensor = object.name}});
        continue;
      }
      taken[found->second] = true;
      ++result_.tensors;
      // What is listed but cannot be read has no bytes that could be compared.
      ZT_RETURN_IF_ERROR(WithTensor(first_.CheckReadable(i), object.name));
      ZT_RETURN_IF_ERROR(WithTensor(second_.CheckReadable(found->second), object.name));
      MatchObjects(i, found->second);
    }
    for (std::uint32_t i = 0; i < theirs.size(); ++i) {
      if (taken[i]) continue;
      found_.push_back({kLast, {.kind = DifferenceKind::kOnlySecond, .tensor = theirs[i].name}});
    }
    return OkStatus();
  }

  void MatchObjects(std::uint32_t i, std::uint32_t j) {
    const Object& a = first_.objects()[i];
    const Object& b = second_.objects()[j];
    const auto add = [&](DifferenceKind kind, std::string role, std::string first,
                         std::string second) {
      found_.push_back({i,
                        {.kind = kind,
                         .tensor = a.name,
                         .component = std::move(role),
                         .first = std::move(first),
                         .second = std::move(second)}});
    };
    const std::size_t before = found_.size();
    const bool files = IsFile(a) && IsFile(b);  // dense or not
    if (a.format != b.format && !files) return add(DifferenceKind::kFormat, "", a.format, b.format);
    if (LogicalShape(a) != LogicalShape(b)) {
      add(DifferenceKind::kShape, "", ToString(LogicalShape(a)), ToString(LogicalShape(b)));
    } else if (a.shape != b.shape) {
      add(DifferenceKind::kShape, "", ToString(a.shape), ToString(b.shape));
    }
    // Values are compared whatever the attributes are.
    const std::size_t declared = found_.size();
    MatchAttributes(i, a, b);
    const std::size_t attributes = found_.size() - declared;
    std::unordered_map<std::string_view, std::uint32_t, zt::internal::NameHash> roles;
    for (std::uint32_t c = 0; c < b.components.size(); ++c) roles.emplace(b.components[c].role, c);
    std::vector<Pair> pairs;
    for (std::uint32_t c = 0; c < a.components.size(); ++c) {
      const Component& component = a.components[c];
      const auto found = roles.find(component.role);
      if (found == roles.end() || a.components.size() != b.components.size()) {
        return add(DifferenceKind::kComponents, "", Roles(a), Roles(b));
      }
      const Component* const other = &b.components[found->second];
      if (!(component.element == other->element)) {
        add(DifferenceKind::kDType, component.role, std::string(Name(component.element)),
            std::string(Name(other->element)));
      } else if (component.bytes != other->bytes && a.shape == b.shape) {
        add(DifferenceKind::kComponents, component.role, std::to_string(component.bytes) + " bytes",
            std::to_string(other->bytes) + " bytes");
      }
      Pair pair;
      pair.first = {i, c};
      pair.second = {j, found->second};
      pair.object = &a;
      pair.component = &component;
      pairs.push_back(pair);
    }
    if (found_.size() != before + attributes) return;
    for (Pair& pair : pairs) {
      Interpret(pair);
      result_.bytes += pair.component->bytes;
      pairs_.push_back(std::move(pair));
    }
  }

  // By their encodings, in which the order of keys does not count and NaN equals itself. A logical_shape that is a shape
  // has been compared as such.
  void MatchAttributes(std::uint32_t i, const Object& a, const Object& b) {
    std::map<std::string_view, std::pair<const Value*, const Value*>> keys;
    for (const auto& [key, value] : a.attributes) keys[key].first = &value;
    for (const auto& [key, value] : b.attributes) keys[key].second = &value;
    if (IsFile(a) && IsFile(b)) keys.erase(kDenseFileAttribute);
    // Formats other than zTensor have no attributes of a tensor, or those of their own alone.
    const bool both = first_.format() == "zt" && second_.format() == "zt";
    const auto bytes = [](const Value* value) {
      return value == nullptr ? std::vector<std::byte>()
                              : EncodeCbor(*value).value_or(std::vector<std::byte>());
    };
    for (const auto& [key, values] : keys) {
      const auto [first, second] = values;
      if (key == kLogicalShape && (first == nullptr || ToShape(first)) &&
          (second == nullptr || ToShape(second))) {
        continue;
      }
      if (!both && (first == nullptr || second == nullptr)) continue;
      if (bytes(first) == bytes(second)) continue;
      found_.push_back({i,
                        {.kind = DifferenceKind::kAttribute,
                         .tensor = a.name,
                         .attribute = std::string(key),
                         .first = first == nullptr ? "" : ValueText(*first),
                         .second = second == nullptr ? "" : ValueText(*second)}});
    }
  }

  // Aliases and tied weights have the same bytes: one pair of them is read, the others take what it finds. A source checks
  // bytes that have a rule as they are read, by the tensor that asks for them: so those must be declared alike.
  void FindSame() {
    using Declared = std::tuple<std::optional<DataRule>, std::string_view, Shape, std::uint64_t>;
    const auto declared = [](const Pair& pair) -> Declared {
      const auto rule = RuleOf(*pair.object, pair.first.component, pair.component->bytes);
      if (!rule) return {};
      return {rule, pair.component->role, pair.object->shape,
              CountIndices(*pair.object).value_or(0)};
    };
    const auto key = [&](const Pair& pair) {
      return std::tuple(declared(pair), *first_.identity(pair.first),
                        *second_.identity(pair.second), static_cast<int>(pair.numbers), pair.unit,
                        std::string_view(pair.component->element.type),
                        pair.component->element.dtype);
    };
    std::map<decltype(key(pairs_.front())), std::size_t> known;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      Pair& pair = pairs_[i];
      if (first_.identity(pair.first) && second_.identity(pair.second)) {
        const auto [where, added] = known.emplace(key(pair), i);
        if (!added) pair.same_as = where->second;
      }
      if (!pair.same_as) total_ += pair.component->bytes;
    }
  }

  // What packed elements are an array of: their own shape counts bytes.
  static Shape LogicalShape(const Object& object) {
    return ToShape(FindMember(object.attributes, kLogicalShape)).value_or(object.shape);
  }

  // The roles of an object that lacks one of the other's. A list of thousands helps nobody.
  static std::string Roles(const Object& object) {
    std::string out;
    for (const Component& component : object.components) {
      if (out.size() > 200) return out + ", ...";
      out += (out.empty() ? "" : ", ") + component.role;
    }
    return out;
  }

  Status CompareValues();
  Status AddPair(RangePipeline<Batch>& pipeline, std::uint32_t index) const;

  void Report() {
    for (const Pair& each : pairs_) {
      const Pair& counted = each.same_as ? pairs_[*each.same_as] : each;
      if (counted.differing == 0) continue;
      found_.push_back({each.first.object,
                        {.kind = DifferenceKind::kValues,
                         .tensor = each.object->name,
                         .component = each.component->role,
                         .elements = each.component->bytes / each.unit,
                         .differing = counted.differing,
                         .nan = counted.nan,
                         .largest = counted.largest}});
    }
    for (std::size_t i = 0; i < found_.size(); ++i) found_[i].order = i;
    std::sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) {
      return std::pair(a.object, a.order) < std::pair(b.object, b.order);
    });
    std::uint64_t last = kLast;
    for (Found& found : found_) {
      if (found.object != kLast && found.object != last &&
          found.difference.kind != DifferenceKind::kOnlyFirst) {
        ++result_.differing;
      }
      last = found.object;
      result_.differences.push_back(std::move(found.difference));
    }
  }

  static constexpr std::uint64_t kLast = ~std::uint64_t{0};
  struct Found {
    std::uint64_t object;  // of the first input, for the order
    Difference difference;
    std::size_t order = 0;  // of finding
  };

  TensorSource& first_;
  TensorSource& second_;
  const CompareOptions& options_;
  BufferPool pool_;
  std::vector<Pair> pairs_;
  std::vector<Found> found_;
  std::uint64_t total_ = 0;
  Comparison result_;
};

class Comparer::ReadStage final : public StageOf<Batch> {
 public:
  explicit ReadStage(Comparer& comparer) : comparer_(comparer) {}
  StageOrder order() const override { return StageOrder::kIfOrdered; }
  Status Process(Batch& batch) override {
    batch.input = comparer_.pool_.Take(2 * batch.bytes);
    const std::span<std::byte> both = batch.input.bytes();
    ZT_RETURN_IF_ERROR(ReadSide(batch, comparer_.first_, &Pair::first, &ComparedRange::first,
                                both.first(batch.bytes)));
    return ReadSide(batch, comparer_.second_, &Pair::second, &ComparedRange::second,
                    both.last(batch.bytes));
  }

 private:
  // One side of all parts.
  Status ReadSide(Batch& batch, TensorSource& source, ComponentId Pair::* side,
                  std::span<const std::byte> ComparedRange::* bytes,
                  std::span<std::byte> free) const {
    const auto id_of = [&](const ComparedRange& part) { return comparer_.pairs_[part.pair].*side; };
    std::vector<RangeToRead> ranges;
    for (ComparedRange& part : batch.ranges) {
      ranges.push_back(source.RangeAt(id_of(part), part.offset, free.first(part.count)));
      free = free.subspan(part.count);
      part.*bytes = ranges.back().bytes;
    }
    return ReadRanges(ranges, [&](std::size_t i) {
      const ComparedRange& part = batch.ranges[i];
      return Read(source, id_of(part), part.offset, ranges[i].bytes);
    });
  }

  // A pipe that holds two tensors in one place cannot serve both, where the other side has them apart.
  static Status Read(TensorSource& source, ComponentId id, std::uint64_t offset,
                     std::span<std::byte> out) {
    Status status = source.Read(id, offset, out);
    if (status.code() == StatusCode::kFailedPrecondition && source.sequential(id)) {
      status = Unsupported(Fact(status) +
                           ", where another tensor lies too; save the pipe as a file first");
    }
    return AtTensor(source, id, status);
  }

  Comparer& comparer_;
};

class Comparer::CompareStage final : public StageOf<Batch> {
 public:
  explicit CompareStage(const Comparer& comparer) : comparer_(comparer) {}
  Status Process(Batch& batch) override {
    for (ComparedRange& part : batch.ranges) {
      part.counts = CountRange(comparer_.pairs_[part.pair], part.first, part.second);
    }
    return OkStatus();
  }

 private:
  const Comparer& comparer_;
};

class Comparer::SumStage final : public StageOf<Batch> {
 public:
  explicit SumStage(Comparer& comparer) : comparer_(comparer) {}
  StageOrder order() const override { return StageOrder::kInOrder; }
  Status Process(Batch& batch) override {
    for (const ComparedRange& part : batch.ranges) {
      const Counts& counts = part.counts;
      Pair& pair = comparer_.pairs_[part.pair];
      pair.differing += counts.differing;
      pair.nan += counts.nan;
      if (counts.largest) pair.largest = std::max(pair.largest.value_or(0), *counts.largest);
    }
    return OkStatus();
  }

 private:
  Comparer& comparer_;
};

Status Comparer::CompareValues() {
  RangeOptions options = {.threads = options_.threads,
                          .memory_bytes = options_.memory_bytes,
                          .cancelled = options_.cancelled};
  if (options_.progress) {
    options.progress = [this](std::uint64_t done) { options_.progress(done, total_); };
  }
  RangePipeline<Batch> pipeline(
      {std::make_shared<ReadStage>(*this), std::make_shared<CompareStage>(*this),
       std::make_shared<SumStage>(*this)},
      options);
  Status added;
  for (std::uint32_t i = 0; i < pairs_.size() && added.ok(); ++i) added = AddPair(pipeline, i);
  return pipeline.Drain(added);
}

Status Comparer::AddPair(RangePipeline<Batch>& pipeline, std::uint32_t index) const {
  const Pair& pair = pairs_[index];
  if (pair.same_as) return OkStatus();
  const bool ordered = first_.sequential(pair.first) || second_.sequential(pair.second);
  // Whole frames of a compressed side, if they hold whole elements.
  const std::uint64_t preferred =
      std::max(first_.preferred_read(pair.first), second_.preferred_read(pair.second));
  const std::uint64_t range = preferred == 0 || preferred % kAligned != 0
                                  ? kRange
                                  : std::max<std::uint64_t>(kRange / preferred, 1) * preferred;
  for (std::uint64_t at = 0; at < pair.component->bytes;) {
    const std::uint64_t count = std::min(range, pair.component->bytes - at);
    ZT_RETURN_IF_ERROR(
        pipeline.Add({.pair = index, .offset = at, .count = count},
                     {.bytes = count, .weight = 2 * count + kRangeWeight, .ordered = ordered}));
    at += count;
  }
  return OkStatus();
}

}  // namespace

StatusOr<Comparison> Compare(TensorSource& first, TensorSource& second,
                             const CompareOptions& options) {
  return Comparer(first, second, options).Run();
}

StatusOr<Comparison> CompareSources(TensorSource& first, TensorSource& second, const Common& common,
                                    std::string_view verb) {
  WarnAll(common, first.warnings());
  WarnAll(common, second.warnings());
  ProgressBar bar(common, verb);
  return Compare(first, second,
                 {.threads = common.threads,
                  .memory_bytes = common.memory,
                  .cancelled = &Interrupted(),
                  .progress = [&](std::uint64_t done, std::uint64_t total) {
                    bar.Update(done, total, 0, 0);
                  }});
}

}  // namespace zt::cli::internal
