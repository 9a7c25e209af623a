// zt.convert.hdf5:index — an index as bytes, for its way between two processes.
module zt.convert.hdf5;

import zt.std;
import :index;
import zt.core;

namespace zt::hdf5::internal {
namespace {

// Calls `wire`, an Encoder or a Decoder, for each field in order.
template <class Wire, class... Fields>
void Each(Wire& wire, Fields&... fields) {
  (wire(fields), ...);
}
template <class Wire, class ADataset>
void FieldsOf(Wire& wire, ADataset& dataset) {
  Each(wire, dataset.name, dataset.address, dataset.problem, dataset.damaged, dataset.too_large,
       dataset.element, dataset.shape, dataset.swap, dataset.contiguous, dataset.offset,
       dataset.chunk, dataset.attributes);
}

class Encoder {
 public:
  void operator()(std::uint64_t number) {
    out_.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  void operator()(const std::string& text) {
    (*this)(text.size());
    out_ += text;
  }
  template <std::ranges::range Items>
  void operator()(const Items& items) {
    (*this)(items.size());
    for (const auto& item : items) (*this)(item);
  }
  void operator()(const Value::Member& member) { Each(*this, member.first, member.second); }
  void operator()(const Value& value) {
    (*this)(static_cast<std::uint64_t>(value.kind()));
    if (const auto* flag = value.AsBool()) return (*this)(*flag);
    if (const auto* whole = value.AsUint()) return (*this)(*whole);
    if (const auto* below = value.AsInt()) return (*this)(static_cast<std::uint64_t>(*below));
    if (const auto* real = value.AsDouble()) return (*this)(std::bit_cast<std::uint64_t>(*real));
    if (const auto* text = value.AsString()) return (*this)(*text);
    if (const auto* array = value.AsArray()) return (*this)(*array);
  }
  void operator()(const Dataset& dataset) { FieldsOf(*this, dataset); }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// After malformed input, done() is false and the remaining fields are zero or empty.
class Decoder {
 public:
  explicit Decoder(std::string_view in) : in_(in) {}
  bool done() const { return ok_ && in_.empty(); }

  void operator()(std::uint64_t& number) {
    const std::string_view bytes = Take(sizeof number);
    if (ok_) std::memcpy(&number, bytes.data(), sizeof number);
  }
  void operator()(bool& flag) { flag = Number() != 0; }
  void operator()(std::string& text) { text = Take(Number()); }
  template <std::ranges::range Items>
  void operator()(Items& items) {
    for (std::uint64_t left = Number(); left > 0 && ok_; --left) (*this)(items.emplace_back());
  }
  void operator()(Value::Member& member) { Each(*this, member.first, member.second); }
  void operator()(Value& value) {
    switch (static_cast<Value::Kind>(Number())) {
      case Value::Kind::kBool:
        value = Value(Number() != 0);
        return;
      case Value::Kind::kUint:
        value = Value(Number());
        return;
      case Value::Kind::kInt:
        value = Value(static_cast<std::int64_t>(Number()));
        return;
      case Value::Kind::kDouble:
        value = Value(std::bit_cast<double>(Number()));
        return;
      case Value::Kind::kString:
        value = Value(std::string(Take(Number())));
        return;
      case Value::Kind::kArray: {
        ok_ = ok_ && !std::exchange(nested_, true);
        Value::Array array;
        if (ok_) (*this)(array);
        nested_ = false;
        value = Value(std::move(array));
        return;
      }
      default:
        ok_ = false;
    }
  }
  void operator()(Dataset& dataset) { FieldsOf(*this, dataset); }

 private:
  std::uint64_t Number() {
    std::uint64_t number = 0;
    (*this)(number);
    return number;
  }
  std::string_view Take(std::uint64_t size) {
    ok_ = ok_ && size <= in_.size();
    const std::string_view taken = in_.substr(0, ok_ ? size : 0);
    in_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view in_;
  bool ok_ = true;
  bool nested_ = false;  // within an array: attributes nest one level deep
};

}  // namespace

std::string Encode(const Index& index) {
  Encoder out;
  Each(out, index.datasets, index.attributes, index.warnings);
  return out.Take();
}

StatusOr<Index> Decode(std::string_view text) {
  Decoder in(text);
  Index index;
  Each(in, index.datasets, index.attributes, index.warnings);
  if (!in.done()) return InvalidData("libhdf5 failed on it; the file is damaged");
  return index;
}

}  // namespace zt::hdf5::internal
