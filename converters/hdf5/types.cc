// zt.convert.hdf5:types — HDF5 types as element types, and attributes as values.
module;

#include <hdf5.h>

module zt.convert.hdf5;

import zt.std;
import :library;
import :types;
import zt.core;

namespace zt::hdf5::internal {
namespace {

// Limit on the number of values in one attribute.
constexpr std::uint64_t kMostValues = std::uint64_t{1} << 16;

// Size and position of a float's fields, in bits.
struct FloatLayout {
  std::size_t size, sign, exponent, exponent_bits, mantissa, mantissa_bits, bias;
  std::string_view name;
};
// The fields of f8_e4m3fn, too, but libhdf5 converts 0x78 to infinity and what follows to NaN, as in
// IEEE 754, where f8_e4m3fn has the numbers 256 to 448.
constexpr std::string_view kE4m3 = "f8_e4m3";
constexpr FloatLayout kFloats[] = {
    {8, 63, 52, 11, 0, 52, 1023, "f64"}, {4, 31, 23, 8, 0, 23, 127, "f32"},
    {2, 15, 10, 5, 0, 10, 15, "f16"},    {2, 15, 7, 8, 0, 7, 127, "bf16"},
    {1, 7, 2, 5, 0, 2, 15, "f8_e5m2"},   {1, 7, 3, 4, 0, 3, 7, kE4m3},
};

// Keras keeps types that HDF5 lacks as opaque bytes, and their names of numpy in an attribute.
constexpr std::pair<std::string_view, std::string_view> kOpaque[] = {
    {"bfloat16", "bf16"},
    {"float8_e4m3fn", "f8_e4m3fn"},
    {"float8_e5m2", "f8_e5m2"},
};

Elements Refused(std::string_view what) { return {{}, 1, "its elements are " + std::string(what)}; }

std::uint64_t SwapOf(hid_t type) {
  return H5Tget_order(type) == H5T_ORDER_BE ? H5Tget_size(type) : 1;
}

Elements IntegersOf(hid_t type, bool is_signed) {
  const std::size_t size = H5Tget_size(type);
  const H5T_order_t order = H5Tget_order(type);
  if ((size != 1 && size != 2 && size != 4 && size != 8) || H5Tget_precision(type) != size * 8 ||
      (order != H5T_ORDER_LE && order != H5T_ORDER_BE)) {
    return Refused("integers of " + std::to_string(H5Tget_precision(type)) + " bits in " +
                   std::to_string(size) + " bytes, which are not supported");
  }
  return {(is_signed ? "i" : "u") + std::to_string(size * 8), SwapOf(type), {}};
}

Elements FloatsOf(hid_t type) {
  FloatLayout layout{H5Tget_size(type), 0, 0, 0, 0, 0, H5Tget_ebias(type), {}};
  const H5T_order_t order = H5Tget_order(type);
  if (H5Tget_fields(type, &layout.sign, &layout.exponent, &layout.exponent_bits, &layout.mantissa,
                    &layout.mantissa_bits) >= 0 &&
      (order == H5T_ORDER_LE || order == H5T_ORDER_BE)) {
    for (const FloatLayout& known : kFloats) {
      layout.name = known.name;
      if (layout.size == known.size && layout.sign == known.sign &&
          layout.exponent == known.exponent && layout.exponent_bits == known.exponent_bits &&
          layout.mantissa == known.mantissa && layout.mantissa_bits == known.mantissa_bits &&
          layout.bias == known.bias) {
        if (known.name == kE4m3) {
          return Refused(
              "floats of 4 bits of exponent and 3 of mantissa with an infinity, which f8_e4m3fn "
              "does "
              "not have; save them as float16 (with h5py: file[new_name] = file[name][()])");
        }
        return {std::string(known.name), SwapOf(type), {}};
      }
    }
  }
  return Refused("floats of an unusual kind (" + std::to_string(layout.exponent_bits) +
                 " bits of exponent, " + std::to_string(layout.mantissa_bits) +
                 " of mantissa), which are not supported");
}

std::string MemberName(hid_t type, unsigned index) {
  char* const text = H5Tget_member_name(type, index);
  std::string name = text == nullptr ? std::string() : std::string(text);
  H5free_memory(text);
  return name;
}

// A complex number is a compound of two floats, named as h5py and others do.
Elements CompoundOf(hid_t type) {
  const Elements refused =
      Refused("records of several members (a compound type), which are not supported");
  if (H5Tget_nmembers(type) != 2) return refused;
  const std::string first = MemberName(type, 0), second = MemberName(type, 1);
  if (!(first == "r" && second == "i") && !(first == "real" && second == "imag")) return refused;
  const Handle real(H5Tget_member_type(type, 0)), imaginary(H5Tget_member_type(type, 1));
  if (!real.ok() || !imaginary.ok() || H5Tget_class(real.get()) != H5T_FLOAT ||
      H5Tequal(real.get(), imaginary.get()) <= 0) {
    return refused;
  }
  const std::size_t size = H5Tget_size(real.get());
  if (H5Tget_member_offset(type, 0) != 0 || H5Tget_member_offset(type, 1) != size ||
      H5Tget_size(type) != 2 * size) {
    return refused;
  }
  Elements part = FloatsOf(real.get());
  if (!part.problem.empty()) return part;
  if (part.name == "f32") return {"complex64", part.swap, {}};
  if (part.name == "f64") return {"complex128", part.swap, {}};
  return Refused("complex numbers of two " + part.name + ", which are not supported");
}

std::string_view Trimmed(std::string_view text, H5T_str_t padding) {
  if (padding == H5T_STR_NULLTERM) return text.substr(0, text.find('\0'));
  const std::size_t last = text.find_last_not_of(padding == H5T_STR_SPACEPAD ? ' ' : '\0');
  return text.substr(0, last == text.npos ? 0 : last + 1);
}

std::optional<Value> TextValue(std::string_view text) {
  if (!IsUtf8(text)) return std::nullopt;
  return Value(text);
}

using Values = std::optional<std::vector<Value>>;

Values ReadFixedTexts(hid_t attribute, hid_t type, std::uint64_t count, std::uint64_t most) {
  const std::uint64_t size = H5Tget_size(type);
  if (size == 0 || count > most / size) return std::nullopt;
  std::vector<char> raw(count * size);
  if (H5Aread(attribute, type, raw.data()) < 0) return std::nullopt;
  std::vector<Value> values;
  for (std::uint64_t i = 0; i < count; ++i) {
    auto value =
        TextValue(Trimmed(std::string_view(raw.data() + i * size, size), H5Tget_strpad(type)));
    if (!value) return std::nullopt;
    values.push_back(*std::move(value));
  }
  return values;
}

Values ReadTexts(hid_t attribute, hid_t type, hid_t space, std::uint64_t count,
                 std::uint64_t most) {
  std::vector<char*> raw(count, nullptr);
  if (H5Aread(attribute, type, raw.data()) < 0) return std::nullopt;
  std::vector<Value> values;
  std::uint64_t taken = 0;
  for (const char* const text : raw) {
    const std::string_view view = text == nullptr ? std::string_view() : std::string_view(text);
    taken += view.size();
    auto value = taken > most ? std::nullopt : TextValue(view);
    if (!value) break;
    values.push_back(*std::move(value));
  }
  H5Dvlen_reclaim(type, space, H5P_DEFAULT, raw.data());
  if (values.size() != count) return std::nullopt;
  return values;
}

template <typename Number, typename As>
Values ReadNumbers(hid_t attribute, hid_t type, std::uint64_t count) {
  std::vector<Number> raw(count);
  if (H5Aread(attribute, type, raw.data()) < 0) return std::nullopt;
  std::vector<Value> values;
  for (const Number number : raw) values.emplace_back(static_cast<As>(number));
  return values;
}

Values ReadValues(hid_t attribute, hid_t type, hid_t space, std::uint64_t count,
                  std::uint64_t most) {
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      if (H5Tget_size(type) > 8) return std::nullopt;
      if (H5Tget_sign(type) == H5T_SGN_NONE)
        return ReadNumbers<std::uint64_t, std::uint64_t>(attribute, H5T_NATIVE_UINT64, count);
      return ReadNumbers<std::int64_t, std::int64_t>(attribute, H5T_NATIVE_INT64, count);
    case H5T_FLOAT:
      if (H5Tget_size(type) > 8) return std::nullopt;
      return ReadNumbers<double, double>(attribute, H5T_NATIVE_DOUBLE, count);
    case H5T_ENUM: {
      if (IsBool(type)) return ReadNumbers<unsigned char, bool>(attribute, type, count);
      const Handle base(H5Tget_super(type));  // libhdf5 converts to its integers
      return ReadValues(attribute, base.get(), space, count, most);
    }
    case H5T_STRING:
      return H5Tis_variable_str(type) > 0 ? ReadTexts(attribute, type, space, count, most)
                                          : ReadFixedTexts(attribute, type, count, most);
    default:
      return std::nullopt;
  }
}

}  // namespace

bool IsBool(hid_t type) {
  if (H5Tget_nmembers(type) != 2 || H5Tget_size(type) != 1) return false;
  for (unsigned i = 0; i < 2; ++i) {
    unsigned char value = 2;
    if (H5Tget_member_value(type, i, &value) < 0 || value > 1) return false;
    if (MemberName(type, i) != (value == 1 ? "TRUE" : "FALSE")) return false;
  }
  return true;
}

Elements OpaqueOf(hid_t type, hid_t dataset) {
  const auto stated = ReadAttribute(dataset, "dtype", 64);
  const std::string* const name = stated ? stated->AsString() : nullptr;
  for (const auto& [numpys, own] : kOpaque) {
    const std::size_t width = ByteWidth(ParseElementType(own)->dtype);
    if (name != nullptr && *name == numpys && width == H5Tget_size(type))
      return {std::string(own), 1, {}};
  }
  return Refused("opaque bytes, whose type no attribute 'dtype' names, and are not converted");
}

Elements ElementsOf(hid_t type, hid_t dataset) {
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      return IntegersOf(type, H5Tget_sign(type) == H5T_SGN_2);
    case H5T_BITFIELD:
      return IntegersOf(type, false);
    case H5T_FLOAT:
      return FloatsOf(type);
    case H5T_ENUM: {
      if (IsBool(type)) return {"bool", 1, {}};
      const Handle base(H5Tget_super(type));
      return ElementsOf(base.get(), dataset);
    }
    case H5T_COMPOUND:
      return CompoundOf(type);
    case H5T_STRING:
      return Refused("texts, which are not converted");
    case H5T_VLEN:
      return Refused("lists of different lengths, which are not converted");
    case H5T_REFERENCE:
      return Refused("references to other datasets, which are not converted");
    case H5T_OPAQUE:
      return OpaqueOf(type, dataset);
    case H5T_ARRAY:
      return Refused("arrays themselves, which are not supported");
    default:
      return Refused("of a kind that is not supported");
  }
}

std::optional<Value::Map> LabelsOf(hid_t type, std::uint64_t most) {
  const int count = H5Tget_nmembers(type);
  if (count < 0 || static_cast<std::uint64_t>(count) > std::min(kMostValues, most / 8))
    return std::nullopt;
  const Handle base(H5Tget_super(type));
  const bool is_signed = H5Tget_sign(base.get()) == H5T_SGN_2;
  const hid_t wide = is_signed ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64;
  if (H5Tget_size(base.get()) > sizeof(std::uint64_t)) return std::nullopt;
  Value::Array names, values;
  std::uint64_t taken = 0;
  for (unsigned i = 0; i < static_cast<unsigned>(count); ++i) {
    std::uint64_t value = 0;
    const std::string name = MemberName(type, i);
    taken += name.size();
    if (taken > most || !IsUtf8(name) || H5Tget_member_value(type, i, &value) < 0 ||
        H5Tconvert(base.get(), wide, 1, &value, nullptr, H5P_DEFAULT) < 0) {
      return std::nullopt;
    }
    names.emplace_back(name);
    values.push_back(is_signed ? Value(static_cast<std::int64_t>(value)) : Value(value));
  }
  return Value::Map{{"enum_names", Value(std::move(names))},
                    {"enum_values", Value(std::move(values))}};
}

std::vector<std::string> AttributeNames(hid_t object) {
  std::vector<std::string> names;
  hsize_t index = 0;
  const auto add = [](hid_t, const char* name, const H5A_info_t*, void* to) -> herr_t {
    static_cast<std::vector<std::string>*>(to)->emplace_back(name);
    return 0;
  };
  H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, &index, add, &names);
  return names;
}

std::optional<Value> ReadAttribute(hid_t object, const char* name, std::uint64_t most) {
  const Handle attribute(H5Aopen(object, name, H5P_DEFAULT));
  if (!attribute.ok()) return std::nullopt;
  const Handle type(H5Aget_type(attribute.get())), space(H5Aget_space(attribute.get()));
  const H5S_class_t extent = H5Sget_simple_extent_type(space.get());
  const hssize_t points = H5Sget_simple_extent_npoints(space.get());
  if (!type.ok() || points < 0 || (extent != H5S_SCALAR && extent != H5S_SIMPLE) ||
      H5Sget_simple_extent_ndims(space.get()) > 1) {
    return std::nullopt;
  }
  const auto count = static_cast<std::uint64_t>(points);
  if (count == 0) return Value(Value::Array());
  if (count > std::min(kMostValues, most / 8)) return std::nullopt;
  Values values = ReadValues(attribute.get(), type.get(), space.get(), count, most);
  if (!values) return std::nullopt;
  if (extent == H5S_SCALAR) {
    return values->size() == 1 ? std::optional(std::move((*values)[0])) : std::nullopt;
  }
  return Value(Value::Array(*std::move(values)));
}

}  // namespace zt::hdf5::internal
