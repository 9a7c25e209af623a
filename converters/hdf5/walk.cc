// zt.convert.hdf5 — turns links into names, datasets into declarations, HDF5 types into element
// types. No link out of the file is followed.
module;

#include <hdf5.h>

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.hdf5;

import zt.std;
import :index;
import :library;
import zt.core;

namespace zt::hdf5::internal {
namespace {

// ---- types and attributes -----------------------------------------------------------------------

// The element type of a dataset. If `problem` says why it cannot be converted, the rest is empty.
struct Elements {
  std::string name;        // name of the element type
  std::uint64_t swap = 1;  // size of the units whose bytes are reversed; 1: none
  std::string problem;
};

// Limit on the number of values in one attribute.
constexpr std::uint64_t kMostValues = std::uint64_t{1} << 16;

// Size and position of a float's fields, in bits.
struct FloatLayout {
  std::size_t size, sign, exponent, exponent_bits, mantissa, mantissa_bits, bias;
  std::string_view name;
};
constexpr FloatLayout kFloats[] = {
    {8, 63, 52, 11, 0, 52, 1023, "f64"}, {4, 31, 23, 8, 0, 23, 127, "f32"},
    {2, 15, 10, 5, 0, 10, 15, "f16"},    {2, 15, 7, 8, 0, 7, 127, "bf16"},
    {1, 7, 2, 5, 0, 2, 15, "f8_e5m2"},   {1, 7, 3, 4, 0, 3, 7, "f8_e4m3fn"},
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

// h5py stores bools as an enumeration of FALSE and TRUE.
bool IsBool(hid_t type) {
  if (H5Tget_nmembers(type) != 2 || H5Tget_size(type) != 1) return false;
  for (unsigned i = 0; i < 2; ++i) {
    unsigned char value = 2;
    if (H5Tget_member_value(type, i, &value) < 0 || value > 1) return false;
    if (MemberName(type, i) != (value == 1 ? "TRUE" : "FALSE")) return false;
  }
  return true;
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

// ---- attributes ---------------------------------------------------------------------------------

std::string_view Trimmed(std::string_view text, H5T_str_t padding) {
  if (padding != H5T_STR_SPACEPAD) return text.substr(0, text.find('\0'));
  const std::size_t last = text.find_last_not_of(' ');
  return text.substr(0, last == text.npos ? 0 : last + 1);
}

std::optional<Value> TextValue(std::string_view text) {
  if (!IsUtf8(text)) return std::nullopt;
  return Value(text);
}

using Values = std::optional<std::vector<Value>>;

// The names and values of an enumeration's members, to become attributes; nothing if there are too
// many, or a name is not UTF-8.
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
    case H5T_ENUM:
      if (!IsBool(type)) return std::nullopt;
      return ReadNumbers<unsigned char, bool>(attribute, type, count);
    case H5T_STRING:
      return H5Tis_variable_str(type) > 0 ? ReadTexts(attribute, type, space, count, most)
                                          : ReadFixedTexts(attribute, type, count, most);
    default:
      return std::nullopt;
  }
}

Elements ElementsOf(hid_t type) {
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
      return ElementsOf(base.get());
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
      return Refused("opaque bytes, which are not converted");
    case H5T_ARRAY:
      return Refused("arrays themselves, which are not supported");
    default:
      return Refused("of a kind that is not supported");
  }
}

// An attribute of `object`; nothing if it is neither a number, a string nor a list of these, or
// takes more than `most` bytes.
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

// The names of the attributes of `object`.
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

// ---- objects, link by link ----------------------------------------------------------------------

// Limit on the bytes of an index: kFreeIndex plus kIndexPerByte for each byte of the file. A path
// is joined from the names of its groups, so a small file can have long paths.
constexpr std::uint64_t kFreeIndex = std::uint64_t{16} << 20;
constexpr std::uint64_t kIndexPerByte = 8;
// Cost of a dataset beside its names.
constexpr std::uint64_t kDeclaration = 128;
// Limits on the bytes of one attribute, and of all.
constexpr std::uint64_t kMostAttribute = std::uint64_t{4} << 20;
constexpr std::uint64_t kMostAttributes = std::uint64_t{16} << 20;

// The filter of h5py.
constexpr H5Z_filter_t kLzf = 32000;
// libhdf5's built-in filters have numbers up to this one.
constexpr H5Z_filter_t kLastOwnFilter = H5Z_FILTER_SCALEOFFSET;

struct Link {
  std::string name;
  H5L_type_t type;
};

class Walker {
 public:
  Walker(hid_t file, std::uint64_t size, std::uint64_t most_chunk)
      : file_(file), budget_(kFreeIndex + kIndexPerByte * size), most_chunk_(most_chunk) {}

  StatusOr<Index> Run() {
    H5O_info_t root;
    if (H5Oget_info_by_name2(file_, "/", &root, H5O_INFO_BASIC, H5P_DEFAULT) < 0)
      return Damaged("the root group");
    groups_.insert(root.addr);
    pending_.push_back({root.addr, ""});
    while (!pending_.empty()) {
      const Pending next = std::move(pending_.back());
      pending_.pop_back();
      ZT_RETURN_IF_ERROR(VisitGroup(next.address, next.path));
    }
    if (!left_out_.empty()) {
      Warn(
          "attributes that are neither numbers and texts nor lists of these, or too large, are "
          "left out: " +
          left_out_.ToString());
    }
    return std::move(index_);
  }

 private:
  struct Pending {
    std::uint64_t address;
    std::string path;
  };

  void Warn(std::string line) { index_.warnings.push_back(std::move(line)); }

  Status Spend(std::uint64_t bytes) {
    if (bytes > budget_) {
      return Unsupported("its names and attributes would take more than " +
                         std::to_string(kIndexPerByte) + " times its size");
    }
    budget_ -= bytes;
    return OkStatus();
  }

  Status VisitGroup(std::uint64_t address, const std::string& path) {
    const std::string context = path.empty() ? "the root group" : "group " + Quote(path);
    const Handle group(H5Oopen_by_addr(file_, address));
    if (!group.ok()) return Annotate(Damaged("its header"), context);
    ZT_RETURN_IF_ERROR(Annotate(AddAttributes(group.get(), path, index_.attributes), context));
    std::vector<Link> links;
    hsize_t at = 0;
    const auto add = [](hid_t, const char* name, const H5L_info_t* info, void* to) -> herr_t {
      static_cast<std::vector<Link>*>(to)->push_back({name, info->type});
      return 0;
    };
    if (H5Literate(group.get(), H5_INDEX_NAME, H5_ITER_NATIVE, &at, add, &links) < 0)
      return Annotate(Damaged("its links"), context);
    for (const Link& link : links) {
      const std::string name = path.empty() ? link.name : path + "/" + link.name;
      ZT_RETURN_IF_ERROR(Spend(kDeclaration + name.size()));
      ZT_RETURN_IF_ERROR(WithTensor(VisitLink(group.get(), link, name), name));
    }
    return OkStatus();
  }

  Status VisitLink(hid_t group, const Link& link, const std::string& name) {
    if (link.type != H5L_TYPE_HARD && link.type != H5L_TYPE_SOFT) {
      AddRefused(name, link.type == H5L_TYPE_EXTERNAL
                           ? "it is a link to another file, which is not followed; convert that "
                             "file itself"
                           : "it is a link of a kind that is not known");
      return OkStatus();
    }
    const bool soft = link.type == H5L_TYPE_SOFT;
    H5O_info_t info;
    if (H5Oget_info_by_name2(group, link.name.c_str(), &info, H5O_INFO_BASIC, H5P_DEFAULT) < 0) {
      if (!soft) return Damaged("its header");
      Warn("the link " + Quote(name) + " leads nowhere within the file and is left out");
      return OkStatus();
    }
    switch (info.type) {
      case H5O_TYPE_GROUP:
        if (!soft && groups_.insert(info.addr).second) {
          pending_.push_back({info.addr, name});
        } else {
          Warn("the link " + Quote(name) +
               " is a second name of a group; its datasets are listed once, by the first name");
        }
        return OkStatus();
      case H5O_TYPE_DATASET:
        return AddDataset(info.addr, name);
      case H5O_TYPE_NAMED_DATATYPE:
        return OkStatus();
      default:
        Warn(Quote(name) + " is of a kind that is not known and is left out");
        return OkStatus();
    }
  }

  void AddRefused(const std::string& name, std::string problem) {
    Dataset dataset;
    dataset.name = name;
    dataset.problem = std::move(problem);
    dataset.shape = {0};
    index_.datasets.push_back(std::move(dataset));
  }

  Status AddDataset(std::uint64_t address, const std::string& name) {
    const auto known = datasets_.find(address);
    if (known != datasets_.end()) {
      Dataset again = index_.datasets[known->second];
      again.name = name;
      std::uint64_t work = again.problem.size();
      for (const auto& [key, value] : again.attributes) work += key.size() + SizeOf(value);
      ZT_RETURN_IF_ERROR(Spend(work));
      index_.datasets.push_back(std::move(again));
      return OkStatus();
    }
    const Handle handle(H5Oopen_by_addr(file_, address));
    if (!handle.ok()) return Damaged("its header");
    Dataset dataset;
    dataset.name = name;
    dataset.address = address;
    ZT_RETURN_IF_ERROR(Describe(handle.get(), dataset));
    ZT_RETURN_IF_ERROR(AddAttributes(handle.get(), "", dataset.attributes));
    ZT_RETURN_IF_ERROR(AddLabels(handle.get(), dataset));
    datasets_.emplace(address, index_.datasets.size());
    index_.datasets.push_back(std::move(dataset));
    return OkStatus();
  }

  Status Describe(hid_t id, Dataset& dataset) {
    const Handle space(H5Dget_space(id)), type(H5Dget_type(id)), made(H5Dget_create_plist(id));
    if (!space.ok() || !type.ok() || !made.ok()) return Damaged("its header");
    if (H5Sget_simple_extent_type(space.get()) == H5S_NULL) {
      dataset.shape = {0};
      dataset.problem = "it has a type and no elements (a null dataspace), and so no shape";
      return OkStatus();
    }
    const int rank = H5Sget_simple_extent_ndims(space.get());
    if (rank < 0 || rank > H5S_MAX_RANK) return Damaged("its shape");
    std::array<hsize_t, H5S_MAX_RANK> dims{};
    if (H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr) < 0)
      return Damaged("its shape");
    dataset.shape.assign(dims.begin(), dims.begin() + rank);
    Elements elements = ElementsOf(type.get());
    dataset.problem = std::move(elements.problem);
    dataset.element = std::move(elements.name);
    dataset.swap = elements.swap;
    if (!dataset.problem.empty()) return OkStatus();
    if (H5Pget_external_count(made.get()) > 0) {
      dataset.problem = "its bytes are in other files (external storage), which are not read";
      return OkStatus();
    }
    return DescribeLayout(id, made.get(), H5Tget_size(type.get()), dataset);
  }

  Status DescribeLayout(hid_t id, hid_t made, std::uint64_t width, Dataset& dataset) {
    switch (H5Pget_layout(made)) {
      case H5D_CONTIGUOUS: {
        // H5Dget_offset adds the size of the user block even to an undefined address.
        H5D_space_status_t space = H5D_SPACE_STATUS_ERROR;
        if (H5Dget_space_status(id, &space) < 0) return Damaged("its layout");
        // libhdf5 returns the fill value
        if (space == H5D_SPACE_STATUS_NOT_ALLOCATED) return OkStatus();
        const haddr_t offset = H5Dget_offset(id);
        dataset.contiguous = offset != HADDR_UNDEF;
        dataset.offset = dataset.contiguous ? offset : 0;
        return OkStatus();
      }
      case H5D_COMPACT:
        return OkStatus();
      case H5D_CHUNKED:
        return DescribeChunks(made, width, dataset);
      case H5D_VIRTUAL:
        dataset.problem = "it is put together from other files (virtual), which are not read";
        return OkStatus();
      default:
        return Damaged("its layout");
    }
  }

  Status DescribeChunks(hid_t made, std::uint64_t width, Dataset& dataset) {
    const int rank = static_cast<int>(dataset.shape.size());
    std::array<hsize_t, H5S_MAX_RANK> dims{};
    if (rank == 0 || H5Pget_chunk(made, rank, dims.data()) != rank) return Damaged("its chunks");
    dataset.chunk.assign(dims.begin(), dims.begin() + rank);
    const auto elements = ElementCount(dataset.chunk);
    const auto bytes = elements ? CheckedMul(*elements, width) : std::nullopt;
    if (!bytes || *bytes == 0) return Damaged("its chunks");
    if (*bytes > most_chunk_) {
      dataset.problem =
          "its chunks of " + std::to_string(*bytes) +
          " bytes are decoded whole, and may take a quarter of the memory limit each, " +
          std::to_string(most_chunk_) + " bytes; raise the limit (--memory)";
      return OkStatus();
    }
    const int filters = H5Pget_nfilters(made);
    if (filters < 0) return Damaged("its filters");
    for (int i = 0; i < filters; ++i) {
      std::array<char, 64> name{};
      unsigned flags = 0, config = 0;
      std::size_t values = 0;
      const H5Z_filter_t filter = H5Pget_filter2(made, static_cast<unsigned>(i), &flags, &values,
                                                 nullptr, name.size() - 1, name.data(), &config);
      if (filter < 0) return Damaged("its filters");
      if (filter <= kLastOwnFilter && H5Zfilter_avail(filter) > 0) continue;
      const std::string advice =
          filter == kLzf
              ? "only h5py has it; copy the file first with h5py, with compression='gzip'"
              : "repack the file first (h5repack -f GZIP=1)";
      dataset.problem = "its chunks went through the filter " + Quote(name.data()) + " (number " +
                        std::to_string(filter) + "), which is a plugin, and none is loaded; " +
                        advice;
      return OkStatus();
    }
    return OkStatus();
  }

  // Adds the attributes of an object. Those of a group get its path as prefix.
  Status AddAttributes(hid_t object, const std::string& path, Value::Map& to) {
    std::unordered_set<std::string, zt::internal::NameHash> keys;
    for (std::string& name : AttributeNames(object)) {
      std::string key = path.empty() ? name : path + "/" + name;
      auto value = ReadAttribute(object, name.c_str(), std::min(kMostAttribute, attributes_));
      const std::uint64_t size = value ? key.size() + SizeOf(*value) : 0;
      const bool fresh =
          &to == &index_.attributes ? keys_.insert(key).second : keys.insert(key).second;
      if (!value || !fresh || key.empty() || !IsUtf8(key) || size > attributes_) {
        left_out_.Add(Quote(key));
        continue;
      }
      ZT_RETURN_IF_ERROR(Spend(size));
      attributes_ -= size;
      to.emplace_back(std::move(key), *std::move(value));
    }
    return OkStatus();
  }
  // Adds the labels of an enumeration to its dataset's attributes.
  Status AddLabels(hid_t id, Dataset& dataset) {
    const Handle type(H5Dget_type(id));
    if (H5Tget_class(type.get()) != H5T_ENUM || IsBool(type.get())) return OkStatus();
    auto labels = LabelsOf(type.get(), std::min(kMostAttribute, attributes_));
    std::uint64_t size = 0;
    for (const auto& [key, value] : labels.value_or(Value::Map())) {
      size += key.size() + SizeOf(value);
      if (FindMember(dataset.attributes, key) != nullptr) size = ~std::uint64_t{0} / 2;
    }
    if (!labels || size > attributes_) {
      left_out_.Add("the labels of " + Quote(dataset.name));
      return OkStatus();
    }
    ZT_RETURN_IF_ERROR(Spend(size));
    attributes_ -= size;
    for (Value::Member& label : *labels) dataset.attributes.push_back(std::move(label));
    return OkStatus();
  }

  std::uint64_t SizeOf(const Value& value) const {
    std::uint64_t size = sizeof(Value);
    if (const auto* text = value.AsString()) size += text->size();
    if (const auto* array = value.AsArray()) {
      for (const Value& item : *array) size += SizeOf(item);
    }
    return size;
  }

  const hid_t file_;
  std::uint64_t budget_;
  const std::uint64_t most_chunk_;
  std::uint64_t attributes_ = kMostAttributes;
  NameList left_out_;  // names of attributes left out
  Index index_;
  std::vector<Pending> pending_;
  std::unordered_set<std::uint64_t> groups_;  // addresses of groups already visited
  // by address: index of the first entry
  std::unordered_map<std::uint64_t, std::size_t> datasets_;
  std::unordered_set<std::string, zt::internal::NameHash> keys_;  // keys of index_.attributes
};

}  // namespace

StatusOr<Index> Walk(hid_t file, std::uint64_t size, std::uint64_t most_chunk) {
  return Walker(file, size, most_chunk).Run();
}

}  // namespace zt::hdf5::internal
