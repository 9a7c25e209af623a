// zt.convert.hdf5 — the datasets of HDF5 files, and of Keras files (.h5, .keras),
// as a tensor source.
export module zt.convert.hdf5;

import zt.std;
import zt.convert.zip;
import zt.core;
import zt.source;

export namespace zt {

// False in a build without libhdf5 (CMake option ZT_HDF5), which recognizes HDF5
// files and refuses them.
bool ReadsHdf5();

// Number of first bytes that LooksLikeHdf5 should get.
inline constexpr std::size_t kHdf5HeadBytes = 16384 + 8;
// True if a file that begins with `head` is an HDF5 file. A user block of 512 * 2^n bytes may
// precede its signature; OpenHdf5 accepts longer user blocks than LooksLikeHdf5 can see.
bool LooksLikeHdf5(std::span<const std::byte> head);

// True if an archive holds the weights of a Keras model.
bool HoldsKeras(const ZipArchive& archive);

// Opens a file, or the weights in a .keras archive. Datasets are named by their paths, without the
// leading slash. Attributes that are numbers, strings or lists of these become attributes of their
// object; those of groups, of the file. All names of one dataset (hard links, soft links within the
// file) have one Identity.
//
// InputOptions::memory_limit bounds the memory for decoding chunks and for swapping bytes.
// Contiguous datasets are read by range, from any thread. libhdf5 does not validate its input, so
// it runs in a child process with limits on memory and processor time, which ends with the source,
// or when libhdf5 fails. OpenHdf5 forks it; no other thread may be inside libhdf5 at that moment.
// No plugin is loaded, and no other file is opened.
//
// kDataLoss for a file that is damaged or not HDF5; kUnimplemented, on reading, for elements that
// are no numbers, for filters that need a plugin, and for data in other files.
StatusOr<std::unique_ptr<TensorSource>> OpenHdf5(std::shared_ptr<ByteSource> bytes,
                                                 const InputOptions& options = {});

}  // namespace zt

// Exported for tests/fuzz.
export namespace zt::hdf5::internal {

// The source that OpenHdf5 makes of what the process sent about a file; reading what the process
// would decode fails. kDataLoss for bytes that it cannot have sent.
StatusOr<std::unique_ptr<TensorSource>> OpenSent(std::string_view sent,
                                                 std::shared_ptr<ByteSource> bytes,
                                                 std::uint64_t memory_limit);

}  // namespace zt::hdf5::internal
