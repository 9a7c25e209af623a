// zt.convert.hdf5:index — an index as bytes: numbers of eight bytes in the host's order, texts and lists by their size.
module zt.convert.hdf5;

import zt.std;
import :index;
import zt.core;

namespace zt::hdf5::internal {
namespace {

class Encoder {
 public:
  void Number(std::uint64_t number) {
    char bytes[sizeof number];
    std::memcpy(bytes, &number, sizeof number);
    out_.append(bytes, sizeof number);
  }
  void Text(std::string_view text) {
    Number(text.size());
    out_ += text;
  }
  void Numbers(const Shape& numbers) {
    Number(numbers.size());
    for (const std::uint64_t number : numbers) Number(number);
  }
  void Item(const Value& value) {
    Number(static_cast<std::uint64_t>(value.kind()));
    if (const auto* flag = value.AsBool()) return Number(*flag ? 1 : 0);
    if (const auto* whole = value.AsUint()) return Number(*whole);
    if (const auto* negative = value.AsInt()) return Number(static_cast<std::uint64_t>(*negative));
    if (const auto* real = value.AsDouble()) return Number(std::bit_cast<std::uint64_t>(*real));
    if (const auto* text = value.AsString()) return Text(*text);
    if (const auto* array = value.AsArray()) {
      Number(array->size());
      for (const Value& item : *array) Item(item);
    }
  }
  void Members(const Value::Map& map) {
    Number(map.size());
    for (const auto& [key, value] : map) {
      Text(key);
      Item(value);
    }
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// What does not decode leaves zeros and emptiness behind, and ok() false.
class Decoder {
 public:
  explicit Decoder(std::string_view in) : in_(in) {}
  bool ok() const { return ok_; }
  bool done() const { return ok_ && in_.empty(); }

  std::uint64_t Number() {
    std::uint64_t number = 0;
    if (!Has(sizeof number)) return 0;
    std::memcpy(&number, in_.data(), sizeof number);
    in_.remove_prefix(sizeof number);
    return number;
  }
  // A count of things that take eight bytes each, or more.
  std::uint64_t Count() {
    const std::uint64_t count = Number();
    return Has(count > in_.size() ? count : count * 8) ? count : 0;
  }
  std::string Text() {
    const std::uint64_t size = Number();
    if (!Has(size)) return {};
    std::string text(in_.substr(0, size));
    in_.remove_prefix(size);
    return text;
  }
  Shape Numbers() {
    Shape numbers(Count());
    for (std::uint64_t& number : numbers) number = Number();
    return numbers;
  }
  Value Item(bool nested = false) {
    switch (static_cast<Value::Kind>(Number())) {
      case Value::Kind::kBool:
        return Value(Number() != 0);
      case Value::Kind::kUint:
        return Value(Number());
      case Value::Kind::kInt:
        return Value(static_cast<std::int64_t>(Number()));
      case Value::Kind::kDouble:
        return Value(std::bit_cast<double>(Number()));
      case Value::Kind::kString:
        return Value(Text());
      case Value::Kind::kArray: {
        ok_ = ok_ && !nested;
        Value::Array array(ok_ ? Count() : 0);
        for (Value& item : array) item = Item(true);
        return Value(std::move(array));
      }
      default:
        ok_ = false;
        return Value();
    }
  }
  Value::Map Members() {
    Value::Map map(Count());
    for (auto& [key, value] : map) {
      key = Text();
      value = Item();
    }
    return map;
  }

 private:
  bool Has(std::uint64_t bytes) {
    ok_ = ok_ && bytes <= in_.size();
    return ok_;
  }

  std::string_view in_;
  bool ok_ = true;
};

}  // namespace

std::string Encode(const Index& index) {
  Encoder out;
  out.Number(index.datasets.size());
  for (const Dataset& dataset : index.datasets) {
    out.Text(dataset.name);
    out.Number(dataset.address);
    out.Text(dataset.problem);
    out.Text(dataset.element);
    out.Numbers(dataset.shape);
    out.Number(dataset.swap);
    out.Number(dataset.contiguous ? 1 : 0);
    out.Number(dataset.offset);
    out.Numbers(dataset.chunk);
    out.Members(dataset.attributes);
  }
  out.Members(index.attributes);
  out.Number(index.warnings.size());
  for (const std::string& line : index.warnings) out.Text(line);
  return out.Take();
}

StatusOr<Index> Decode(std::string_view text) {
  Decoder in(text);
  Index index;
  for (std::uint64_t left = in.Count(); left > 0 && in.ok(); --left) {
    Dataset dataset;
    dataset.name = in.Text();
    dataset.address = in.Number();
    dataset.problem = in.Text();
    dataset.element = in.Text();
    dataset.shape = in.Numbers();
    dataset.swap = in.Number();
    dataset.contiguous = in.Number() != 0;
    dataset.offset = in.Number();
    dataset.chunk = in.Numbers();
    dataset.attributes = in.Members();
    index.datasets.push_back(std::move(dataset));
  }
  index.attributes = in.Members();
  for (std::uint64_t left = in.Count(); left > 0 && in.ok(); --left)
    index.warnings.push_back(in.Text());
  if (!in.done()) return InvalidData("libhdf5 failed on it; the file is damaged");
  return index;
}

}  // namespace zt::hdf5::internal
