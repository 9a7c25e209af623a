// zt.convert.hdf5 — datasets of HDF5 files, and of the Keras files that are or hold one, as a tensor source.
export module zt.convert.hdf5;

import zt.std;
import zt.convert.zip;
import zt.core;
import zt.source;

export namespace zt {

// False in a build without libhdf5 (the CMake option ZT_HDF5): files are recognised and refused.
bool ReadsHdf5();

// How many first bytes LooksLikeHdf5 wants to see.
inline constexpr std::size_t kHdf5HeadBytes = 16384 + 8;
// True where a file that begins with `head` is an HDF5 file. Bytes of another program's may come first: 512, or any
// doubling of it. OpenHdf5 takes more of them than this looks behind.
bool LooksLikeHdf5(std::span<const std::byte> head);

// True where an archive holds a Keras model's weights.
bool HoldsKeras(const ZipArchive& archive);

// The datasets of a file, or of the weights in a .keras archive, by their paths without the leading slash. Attributes
// that are numbers, texts or lists of these become attributes of their object, or of the whole. Names of one dataset
// (hard links, soft links within the file) have one Identity.
//
// InputOptions::memory_limit is what a dataset may hold while its chunks are decoded or its elements are turned around.
// Contiguous datasets are read by range, from any thread. libhdf5 trusts the files that it reads, so it runs in a process
// of its own with limits of memory and processor time, which ends with the source, or when libhdf5 fails. It is forked
// here; no other thread may be inside libhdf5 at that moment. No plugin is loaded, no other file opened.
//
// kDataLoss for what is no HDF5 file, or damaged; kUnimplemented, when they are kept, for elements that are no numbers,
// for filters that need a plugin, and for data in other files.
StatusOr<std::unique_ptr<TensorSource>> OpenHdf5(std::shared_ptr<ByteSource> bytes,
                                                 const InputOptions& options = {});

}  // namespace zt
