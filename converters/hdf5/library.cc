// zt.convert.hdf5:library — with walk.cc the only caller of libhdf5, which reads files through a
// driver over ByteSource.
module;

#include <new>

#include <hdf5.h>
// Later versions declare drivers here.
#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h>
#endif

#include "core/status_macros.h"

module zt.convert.hdf5;

import zt.std;
import :index;
import :library;
import zt.core;
import zt.source;

namespace zt::hdf5::internal {
namespace {

// ---- libhdf5's file driver: reads from a ByteSource ---------------------------------------------

// The argument of OpenDriver, passed through the property list.
struct Given {
  ByteSource* bytes;
  bool* opened;
};

struct DriverFile {
  H5FD_t base;  // must come first
  ByteSource* bytes;
  haddr_t end;  // end of the allocated address space, as set by libhdf5
};

DriverFile* Of(H5FD_t* file) { return reinterpret_cast<DriverFile*>(file); }
const DriverFile* Of(const H5FD_t* file) { return reinterpret_cast<const DriverFile*>(file); }

// Opens `bytes` once. Other files, which links, virtual datasets or external
// storage name, are refused.
H5FD_t* OpenDriver(const char*, unsigned flags, hid_t properties, haddr_t) {
  const auto* const given = static_cast<const Given*>(H5Pget_driver_info(properties));
  if (given == nullptr || *given->opened || (flags & H5F_ACC_RDWR) != 0) return nullptr;
  auto* const file = new (std::nothrow) DriverFile{};
  if (file == nullptr) return nullptr;
  *given->opened = true;
  file->bytes = given->bytes;
  return &file->base;
}
herr_t CloseDriver(H5FD_t* file) {
  delete Of(file);
  return 0;
}
haddr_t EndOfAddresses(const H5FD_t* file, H5FD_mem_t) { return Of(file)->end; }
herr_t SetEndOfAddresses(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  Of(file)->end = end;
  return 0;
}
haddr_t EndOfFile(const H5FD_t* file, H5FD_mem_t) { return Of(file)->bytes->size().value_or(0); }
herr_t ReadDriver(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, std::size_t size, void* out) {
  const std::uint64_t have = Of(file)->bytes->size().value_or(0);
  if (offset > have || size > have - offset) return -1;
  return Of(file)->bytes->ReadAt(offset, {static_cast<std::byte*>(out), size}).ok() ? 0 : -1;
}
herr_t WriteDriver(H5FD_t*, H5FD_mem_t, hid_t, haddr_t, std::size_t, const void*) { return -1; }

// The driver that makes several files of one, if its name stands near the begin of the first.
std::string_view DriverOf(ByteSource& bytes) {
  std::string head(std::min<std::uint64_t>(bytes.size().value_or(0), 1024), '\0');
  if (!bytes.ReadAt(0, std::as_writable_bytes(std::span(head))).ok()) return "";
  if (head.find("NCSAfami") != head.npos) return "family";
  return head.find("NCSAmult") != head.npos ? "split" : "";
}

hid_t RegisterDriver() {
  H5FD_class_t driver{};
#ifdef H5FD_CLASS_VERSION
  driver.version = H5FD_CLASS_VERSION;
  driver.value = static_cast<H5FD_class_value_t>(511);  // in the range for private use
#endif
  driver.name = "ztstream";
  driver.maxaddr = static_cast<haddr_t>(INT64_MAX);
  driver.fc_degree = H5F_CLOSE_WEAK;
  driver.fapl_size = sizeof(Given);
  driver.open = OpenDriver;
  driver.close = CloseDriver;
  driver.get_eoa = EndOfAddresses;
  driver.set_eoa = SetEndOfAddresses;
  driver.get_eof = EndOfFile;
  driver.read = ReadDriver;
  driver.write = WriteDriver;
  return H5FDregister(&driver);
}

}  // namespace

Status Damaged(std::string_view what) {
  std::string words;
  const auto innermost = [](unsigned, const H5E_error2_t* error, void* to) -> herr_t {
    auto& text = *static_cast<std::string*>(to);
    if (text.empty() && error->desc != nullptr) text = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, &words);
  if (words.size() > 200) words.resize(200);
  if (words.find("version") != words.npos) {
    unsigned major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
    return Unsupported(std::string(what) + " cannot be read by libhdf5 " + std::to_string(major) +
                       "." + std::to_string(minor) + "." + std::to_string(release) + " (" + words +
                       "): a newer library wrote it; copy what it holds with an h5py that reads "
                       "it, which writes an older form (new_file[name] = old_file[name][()])");
  }
  return InvalidData("it is damaged: " + std::string(what) + " cannot be read" +
                     (words.empty() ? "" : " (libhdf5: " + words + ")"));
}

StatusOr<std::unique_ptr<Library>> Library::Open(ByteSource& bytes, std::uint64_t most_chunk) {
  if (H5dont_atexit() < 0 || H5open() < 0) return IoError("libhdf5 cannot be set up");
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(0);
  auto library = std::make_unique<Library>();
  library->size_ = bytes.size().value_or(0);
  library->most_chunk_ = most_chunk;
  library->driver_ = Handle(RegisterDriver());
  const Handle access(H5Pcreate(H5P_FILE_ACCESS));
  const Given given{&bytes, &library->opened_};
  // No chunk cache: a block consists of whole chunks, so chunks would not be reused.
  if (H5Pset_driver(access.get(), library->driver_.get(), &given) < 0 ||
      H5Pset_cache(access.get(), 0, 521, std::size_t{1} << 20, 1.0) < 0) {
    return IoError("libhdf5 cannot be set up");
  }
  // The name is not used. Since 2.1 one that is not absolute asks for the working folder, which the
  // worker may not.
  library->file_ = Handle(H5Fopen("/", H5F_ACC_RDONLY, access.get()));
  if (!library->file_.ok()) {
    const Status damaged = Damaged("the superblock");
    const std::string_view driver = DriverOf(bytes);
    if (driver.empty()) return damaged;
    const bool family = driver == "family";
    return Unsupported("it is one of the files that HDF5's driver '" + std::string(driver) +
                       "' makes of one; open them with h5py and copy what they hold into one file: "
                       "h5py.File(" +
                       (family ? "'NAME%d.h5', driver='family', memb_size=0"
                               : "NAME without -m.h5, driver='split'") +
                       "), new_file[name] = old_file[name][()]");
  }
  return library;
}

Status Library::ReadBlock(std::uint64_t address, std::span<const std::uint64_t> start,
                          std::span<const std::uint64_t> count, std::span<std::byte> out) {
  if (address != address_ || !dataset_.ok()) {
    dataset_ = Handle(H5Oopen_by_addr(file_.get(), address));
    address_ = address;
  }
  const Handle type(H5Dget_type(dataset_.get())), space(H5Dget_space(dataset_.get()));
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (!type.ok() || rank < 0 || static_cast<std::size_t>(rank) != start.size())
    return Damaged("the dataset");
  std::uint64_t elements = 1;
  for (const std::uint64_t n : count) elements *= n;  // the caller has checked for overflow
  const hsize_t flat = elements;
  const Handle memory(H5Screate_simple(1, &flat, nullptr));
  if (elements * H5Tget_size(type.get()) != out.size()) return Damaged("the dataset");
  const std::vector<hsize_t> first(start.begin(), start.end()), size(count.begin(), count.end());
  if (rank > 0 && H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, first.data(), nullptr,
                                      size.data(), nullptr) < 0) {
    return Damaged("the dataset");
  }
  // If neither data nor a fill value is stored, libhdf5 leaves the buffer unchanged.
  std::memset(out.data(), 0, out.size());
  if (H5Dread(dataset_.get(), type.get(), memory.get(), space.get(), H5P_DEFAULT, out.data()) < 0)
    return Damaged("its data");
  return OkStatus();
}

}  // namespace zt::hdf5::internal
