// zt.convert.hdf5 — turns links into names and datasets into declarations. No link out of the file
// is followed.
module;

#include <hdf5.h>

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.hdf5;

import zt.std;
import :index;
import :library;
import :types;
import zt.core;

namespace zt::hdf5::internal {
namespace {

// ---- objects, link by link ----------------------------------------------------------------------

// Limit on the bytes of an index: kFreeIndex plus kIndexPerByte for each byte of the file. A path
// is joined from the names of its groups, so a small file can have long paths.
constexpr std::uint64_t kFreeIndex = std::uint64_t{256} << 10;
constexpr std::uint64_t kIndexPerByte = 4;
// Cost of a dataset beside its names, and of a value of an attribute beside its text.
constexpr std::uint64_t kDeclaration = 128;
constexpr std::uint64_t kValue = 4;
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
    pending_.push_back({root.addr, "", false});
    while (!pending_.empty()) {
      const Pending next = std::move(pending_.back());
      pending_.pop_back();
      ZT_RETURN_IF_ERROR(VisitGroup(next));
    }
    if (!left_out_.empty()) {
      Warn(
          "attributes of other types than numbers and texts, of several dimensions, or too large, "
          "are left out: " +
          left_out_.ToString());
    }
    return std::move(index_);
  }

 private:
  struct Pending {
    std::uint64_t address;
    std::string path;
    bool misnamed;  // a name in the path is not UTF-8
  };

  void Warn(std::string line) { index_.warnings.push_back(std::move(line)); }

  Status Spend(std::uint64_t bytes) {
    spent_ = bytes > budget_;
    if (spent_) {
      return Unsupported("its names and attributes would take more than " +
                         std::to_string(kFreeIndex >> 10) + " KiB and " +
                         std::to_string(kIndexPerByte) + " times its size");
    }
    budget_ -= bytes;
    return OkStatus();
  }

  Status VisitGroup(const Pending& group_of) {
    const auto& [address, path, misnamed] = group_of;
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
      const std::string name = (path.empty() ? "" : path + "/") + EscapeUnlessUtf8(link.name);
      ZT_RETURN_IF_ERROR(Spend(kDeclaration + name.size()));
      const bool odd = misnamed || !IsUtf8(link.name);
      const Status status = VisitLink(group.get(), link, name, odd);
      // A limit ends the walk; what libhdf5 cannot read is one dataset's problem.
      if (!status.ok() && spent_) return WithTensor(status, name);
      if (!status.ok()) ZT_RETURN_IF_ERROR(AddRefused(name, status));
    }
    return OkStatus();
  }

  Status VisitLink(hid_t group, const Link& link, const std::string& name, bool misnamed) {
    if (link.type == H5L_TYPE_EXTERNAL) {
      return Unsupported(
          "it is a link to another file, which is not followed; convert that file itself");
    }
    if (link.type != H5L_TYPE_HARD && link.type != H5L_TYPE_SOFT)
      return Unsupported("it is a link of a kind that is not known");
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
          pending_.push_back({info.addr, name, misnamed});
        } else {
          Warn("the link " + Quote(name) +
               " is a second name of a group; its datasets are listed once, by the first name");
        }
        return OkStatus();
      case H5O_TYPE_DATASET:
        if (misnamed) {
          return Unsupported(
              "its name is not UTF-8, and shown with escapes; give it another one (with h5py: "
              "file.move)");
        }
        return AddDataset(info.addr, name);
      case H5O_TYPE_NAMED_DATATYPE:
        return OkStatus();
      default:
        Warn(Quote(name) + " is of a kind that is not known and is left out");
        return OkStatus();
    }
  }

  Status AddRefused(const std::string& name, const Status& problem) {
    Dataset dataset;
    dataset.name = name;
    dataset.problem = std::string(problem.message());
    dataset.damaged = problem.code() == StatusCode::kDataLoss;
    dataset.shape = {0};
    ZT_RETURN_IF_ERROR(Spend(dataset.problem.size()));
    index_.datasets.push_back(std::move(dataset));
    return OkStatus();
  }

  Status AddDataset(std::uint64_t address, const std::string& name) {
    const auto known = datasets_.find(address);
    if (known != datasets_.end()) {
      Dataset again = index_.datasets[known->second];
      again.name = name;
      std::uint64_t work = again.problem.size();
      for (const auto& [key, value] : again.attributes) work += key.size() + SizeOf(value, kValue);
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
    Elements elements = ElementsOf(type.get(), id);
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
          std::to_string(most_chunk_) + " bytes";
      dataset.too_large = true;
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
      const std::uint64_t size = value ? key.size() + SizeOf(*value, sizeof(Value)) : 0;
      const bool fresh =
          &to == &index_.attributes ? keys_.insert(key).second : keys.insert(key).second;
      if (!value || !fresh || key.empty() || !IsUtf8(key) || size > attributes_) {
        left_out_.Add(Quote(key));
        continue;
      }
      ZT_RETURN_IF_ERROR(Spend(key.size() + SizeOf(*value, kValue)));
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
    std::uint64_t size = 0, work = 0;
    for (const auto& [key, value] : labels.value_or(Value::Map())) {
      size += key.size() + SizeOf(value, sizeof(Value));
      work += key.size() + SizeOf(value, kValue);
      if (FindMember(dataset.attributes, key) != nullptr) size = ~std::uint64_t{0} / 2;
    }
    if (!labels || size > attributes_) {
      left_out_.Add("the labels of " + Quote(dataset.name));
      return OkStatus();
    }
    ZT_RETURN_IF_ERROR(Spend(work));
    attributes_ -= size;
    for (Value::Member& label : *labels) dataset.attributes.push_back(std::move(label));
    return OkStatus();
  }

  // The bytes of the texts in a value, and `each` for every value.
  std::uint64_t SizeOf(const Value& value, std::uint64_t each) const {
    std::uint64_t size = each;
    if (const auto* text = value.AsString()) size += text->size();
    if (const auto* array = value.AsArray()) {
      for (const Value& item : *array) size += SizeOf(item, each);
    }
    return size;
  }

  const hid_t file_;
  std::uint64_t budget_;
  bool spent_ = false;  // more than the budget was asked for
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
