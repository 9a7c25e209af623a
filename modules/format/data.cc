// zt.format:data — validates the bytes of bools, indices and row pointers.
module zt.format;

import zt.std;
import :data;
import zt.core;

namespace zt {
namespace {

// Sign-extends signed indices: a negative one then reads as larger than any valid index, so that
// one comparison refuses both.
template <typename Unsigned>
std::uint64_t LoadIndex(const std::byte* from, bool is_signed) {
  Unsigned value;
  std::memcpy(&value, from, sizeof value);
  if constexpr (std::endian::native == std::endian::big && sizeof value > 1) {
    std::reverse(reinterpret_cast<std::byte*>(&value),
                 reinterpret_cast<std::byte*>(&value) + sizeof value);
  }
  if (!is_signed) return value;
  return static_cast<std::uint64_t>(std::int64_t{static_cast<std::make_signed_t<Unsigned>>(value)});
}

// Calls each(value, position) for whole elements; the loop is compiled for each width.
template <typename Each>
void ForIndices(std::span<const std::byte> bytes, std::uint64_t position, DType dtype, Each each) {
  const bool is_signed = IsSignedInt(dtype);
  const auto loop = [&]<typename Unsigned>(Unsigned) {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(Unsigned)) {
      each(LoadIndex<Unsigned>(bytes.data() + at, is_signed), position++);
    }
  };
  switch (ByteWidth(dtype)) {
    case 1:
      return loop(std::uint8_t{});
    case 2:
      return loop(std::uint16_t{});
    case 4:
      return loop(std::uint32_t{});
    default:
      return loop(std::uint64_t{});
  }
}

// True if the object determines the number of elements in a component of f4_e2m1 with this role.
bool HasPackedCount(const Object& object, std::string_view role) {
  if (object.format == "dense" || object.format == "zt.mx/1") return role == "data";
  return IsSparse(object.format) && role == "values";
}

// True if the number of those elements is odd. A dense tensor has one only with a logical shape.
bool HasOddCount(const Object& object) {
  if (object.format == "dense") {
    const auto shape = format::internal::LogicalShape(object);
    return shape && ElementCount(*shape).value_or(0) % 2 == 1;
  }
  if (object.format == "zt.mx/1") return ElementCount(object.shape).value_or(0) % 2 == 1;
  const std::uint64_t count = format::internal::CountElements(object).value_or(0);
  // 1.x may store values unpacked, one byte for each element.
  return count % 2 == 1 && std::ranges::any_of(object.components, [&](const Component& each) {
           return each.role == "values" && each.bytes == count / 2 + 1;
         });
}

}  // namespace

std::optional<DataRule> RuleOf(const Object& object, std::size_t component, std::uint64_t bytes) {
  const Component& declared = object.components[component];
  const DType dtype = declared.element.dtype;
  if (dtype == DType::kBool) return DataRule{DataRule::Kind::kBool, dtype};
  if (declared.element.type == "f4_e2m1") {
    if (bytes == 0 || !HasPackedCount(object, declared.role)) return std::nullopt;
    if (bytes == kUnknownSize) return DataRule{DataRule::Kind::kNibble, dtype, 1, bytes};
    if (!HasOddCount(object)) return std::nullopt;
    return DataRule{DataRule::Kind::kNibble, dtype, 1, bytes - 1};
  }
  const bool integer = IsSignedInt(dtype) || IsUnsignedInt(dtype);
  if (!integer || !IsIndexRole(object.format, declared.role)) return std::nullopt;
  if (declared.role == "indptr") return DataRule{DataRule::Kind::kPointers, dtype};
  const std::uint32_t dimensions =
      declared.role == "coords" ? static_cast<std::uint32_t>(object.shape.size()) : 1;
  if (dimensions == 0) return std::nullopt;
  return DataRule{DataRule::Kind::kIndices, dtype, dimensions,
                  bytes == kUnknownSize ? bytes : bytes / ByteWidth(dtype) / dimensions,
                  object.format == "sparse_csr"};
}

std::optional<std::uint64_t> format::internal::CountElements(const Object& object) {
  const bool csr = object.format == "sparse_csr";
  if (!csr && (object.format != "sparse_coo" || object.shape.empty())) return std::nullopt;
  for (const Component& each : object.components) {
    if (each.role != (csr ? "indices" : "coords") || each.bytes == kUnknownSize) continue;
    return each.bytes / ByteWidth(each.element.dtype) / (csr ? 1 : object.shape.size());
  }
  return std::nullopt;
}

std::optional<std::uint64_t> CountIndices(const Object& object) {
  if (object.format != "sparse_csr") return std::nullopt;
  return format::internal::CountElements(object);
}

DataValidator::DataValidator(const DataRule& rule, std::uint64_t offset)
    : rule_(rule), width_(ByteWidth(rule.dtype)), begin_(offset), end_(offset) {
  if (rule.kind == DataRule::Kind::kIndices) largest_.resize(rule.dimensions);
}

void DataValidator::Add(std::span<const std::byte> bytes) {
  const std::size_t cut = end_ % width_;
  if (cut != 0) {  // the rest of an incomplete element
    const std::size_t rest = std::min(width_ - cut, bytes.size());
    Edge(bytes.first(rest));
    bytes = bytes.subspan(rest);
  }
  const std::size_t whole = bytes.size() / width_ * width_;
  if (whole > 0) Whole(bytes.first(whole), end_ / width_);
  end_ += whole;
  if (whole < bytes.size()) Edge(bytes.subspan(whole));
}

// Adds bytes that end at the next element boundary or before.
void DataValidator::Edge(std::span<const std::byte> bytes) {
  const bool headless = end_ / width_ == begin_ / width_ && begin_ % width_ != 0;
  auto& held = headless ? head_ : tail_;
  std::size_t& size = headless ? head_bytes_ : tail_bytes_;
  std::copy(bytes.begin(), bytes.end(), held.begin() + static_cast<std::ptrdiff_t>(size));
  size += bytes.size();
  end_ += bytes.size();
  if (headless || end_ % width_ != 0) return;
  Whole(std::span(tail_).first(width_), end_ / width_ - 1);
  tail_bytes_ = 0;
}

void DataValidator::Whole(std::span<const std::byte> bytes, std::uint64_t position) {
  switch (rule_.kind) {
    case DataRule::Kind::kBool:
      return Bools(bytes, position);
    case DataRule::Kind::kIndices:
      return Indices(bytes, position);
    case DataRule::Kind::kNibble:
      return Nibble(bytes, position);
    case DataRule::Kind::kPointers:
      return Pointers(bytes, position);
  }
}

void DataValidator::Nibble(std::span<const std::byte> bytes, std::uint64_t position) {
  const std::uint64_t end = position + bytes.size() - 1;  // the last byte so far
  const std::uint64_t at = rule_.each == kUnknownSize ? end : rule_.each;
  if (at < position || at > end) return;
  const auto last = std::to_integer<std::uint64_t>(bytes[at - position]);
  bad_ = last > 0xf ? std::optional(Found{last, at}) : std::nullopt;
}

void DataValidator::Bools(std::span<const std::byte> bytes, std::uint64_t position) {
  if (bad_) return;
  const auto bad =
      std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  if (bad == bytes.end()) return;
  bad_ = {std::to_integer<std::uint64_t>(*bad),
          position + static_cast<std::uint64_t>(bad - bytes.begin())};
}

void DataValidator::Indices(std::span<const std::byte> bytes, std::uint64_t position) {
  while (!bytes.empty()) {  // run by run
    const std::uint64_t run =
        rule_.each == 0 ? rule_.dimensions - 1
                        : std::min<std::uint64_t>(position / rule_.each, rule_.dimensions - 1);
    const std::uint64_t left =
        run + 1 == rule_.dimensions ? bytes.size() / width_ : (run + 1) * rule_.each - position;
    const std::size_t count = std::min<std::uint64_t>(left, bytes.size() / width_);
    Found largest = largest_[run].value_or(Found{0, position});
    ForIndices(bytes.first(count * width_), position, rule_.dtype,
               [&largest](std::uint64_t value, std::uint64_t at) {
                 if (value > largest.value) largest = {value, at};
               });
    largest_[run] = largest;
    bytes = bytes.subspan(count * width_);
    position += count;
  }
}

void DataValidator::Pointers(std::span<const std::byte> bytes, std::uint64_t position) {
  ForIndices(bytes, position, rule_.dtype, [this](std::uint64_t value, std::uint64_t at) {
    if (!first_) {
      first_ = {value, at};
    } else if (value < last_ && !bad_) {
      bad_ = {value, at};
    }
    last_ = value;
  });
}

void DataValidator::Merge(const DataValidator& next) {
  Add(std::span(next.head_).first(next.head_bytes_));
  if (!bad_ && next.first_ && first_ && next.first_->value < last_) bad_ = next.first_;
  if (!bad_ || (rule_.kind == DataRule::Kind::kNibble && next.end_ > next.begin_)) bad_ = next.bad_;
  if (next.first_) {
    if (!first_) first_ = next.first_;
    last_ = next.last_;
  }
  for (std::size_t d = 0; d < next.largest_.size(); ++d) {
    if (!next.largest_[d]) continue;
    if (!largest_[d] || next.largest_[d]->value > largest_[d]->value)
      largest_[d] = next.largest_[d];
  }
  end_ = next.end_ - next.tail_bytes_;
  if (next.tail_bytes_ > 0) Edge(std::span(next.tail_).first(next.tail_bytes_));
}

Status DataValidator::Check(const Object& object, std::optional<std::uint64_t> indices) const {
  const auto negative = [this](const Found& found) {
    return IsSignedInt(rule_.dtype) && static_cast<std::int64_t>(found.value) < 0;
  };
  const auto at = [negative](const Found& found) {
    return std::to_string(found.position) + " is " + (negative(found) ? "-" : "") +
           std::to_string(negative(found) ? 0 - found.value : found.value);
  };
  switch (rule_.kind) {
    case DataRule::Kind::kBool:
      if (!bad_) return OkStatus();
      return InvalidData("element " + std::to_string(bad_->position) + " of bool is " +
                         std::to_string(bad_->value) + ", neither 0 nor 1");
    case DataRule::Kind::kNibble:
      if (!bad_ || !HasOddCount(object)) return OkStatus();
      return InvalidData("the last byte of an odd number of f4_e2m1 is " +
                         std::to_string(bad_->value) + ", its high half is not 0");
    case DataRule::Kind::kIndices:
      for (std::size_t d = 0; d < largest_.size(); ++d) {
        const std::size_t axis = object.format == "sparse_csr" ? 1 : d;
        const std::uint64_t bound = axis < object.shape.size() ? object.shape[axis] : 0;
        if (!largest_[d]) continue;
        if (negative(*largest_[d])) return InvalidData("index " + at(*largest_[d]) + ", negative");
        if (largest_[d]->value < bound) continue;
        return InvalidData("index " + at(*largest_[d]) + ", beyond the dimension of " +
                           std::to_string(bound));
      }
      return OkStatus();
    case DataRule::Kind::kPointers:
      if (first_ && first_->position == 0 && first_->value != 0) {
        return InvalidData("row pointer " + at(*first_) + ", not 0");
      }
      if (bad_) return InvalidData("row pointer " + at(*bad_) + ", less than the one before");
      if (!indices || last_ == *indices) return OkStatus();
      return InvalidData("the last row pointer is " + std::to_string(last_) + ", there are " +
                         std::to_string(*indices) + " indices");
  }
  return OkStatus();
}

}  // namespace zt
