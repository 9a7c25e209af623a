// zt.convert.npy — numpy's files as tensor sources: .npy, .npz, folders of .npy, scipy's sparse
// .npz. Also writes .npy and .npz.
export module zt.convert.npy;

import zt.std;
import zt.convert.layout;
import zt.core;
import zt.source;

export namespace zt {

// True if a file that begins with `head` (8 bytes suffice) is an .npy array.
bool LooksLikeNpy(std::span<const std::byte> head);

// Attribute of an object, true if it was a two-dimensional sparse array of scipy rather
// than a sparse matrix.
inline constexpr std::string_view kScipyIsArray = "scipy_is_array";
// Attribute of the array 'data' of a sparse .npz whose arrays were kept as plain
// arrays: "csr", "bsr" ...
inline constexpr std::string_view kScipyFormat = "scipy_format";

// InputOptions::memory_limit bounds the memory of all arrays while they are converted from Fortran
// order; larger ones take several passes. An array that can be read front to back only (from a
// pipe, or deflated) is held as a whole: refused if it exceeds half of the limit. The limit also
// applies to a sparse matrix that has to be sorted.
// Errors of these functions name the tensor, and in a folder the file; errors of Finish name the
// file. Malformed input is kDataLoss. Arrays that are not tensors (object, structured, string,
// date, long double) are kUnimplemented: OpenNpy refuses them; the other functions list them with
// format "npy." and their dtype, and CheckReadable returns the error.

// One array, from a file or a pipe. Bytes after the array are an error (for a pipe, of Finish).
// numpy ignores them, but they are either damage or a second array that would be lost.
StatusOr<std::unique_ptr<TensorSource>> OpenNpy(std::shared_ptr<ByteSource> bytes,
                                                std::string object_name,
                                                const InputOptions& options = {});

// The arrays of an archive, in their order in the archive, named by their entries without ".npy".
// Names are kept as they are, even '../x', as no file is ever written under them. A scipy sparse
// matrix (csr, csc, coo) becomes one object named `stem`: csc is converted to csr; columns are
// sorted within each row; duplicate entries are kept, as scipy's files do not say that they are
// summed; coo keeps its order. CRCs are computed while bytes are read; Finish reads an entry again
// only if the ranges that were read do not cover it exactly once.
StatusOr<std::unique_ptr<TensorSource>> OpenNpz(std::shared_ptr<ByteSource> bytes,
                                                const std::string& stem,
                                                const InputOptions& options = {});

// All *.npy files directly in the folder, sorted by name, each named by its stem.
StatusOr<std::unique_ptr<TensorSource>> OpenNpyFolder(const std::string& path,
                                                      const InputOptions& options = {});

// ---- writing ------------------------------------------------------------------------------------

// Plans an .npy file of one dense object, with the header that numpy.save writes. Element types
// unknown to numpy (bf16, f8_*, packed types) become '|V' of their width, and the layout has a
// warning. kUnimplemented if the object is no array. Errors name the tensor.
StatusOr<FileLayout> PlanNpy(const TensorSource& source, std::uint32_t object);

// Warnings, at most two lines, about losses in .npy and .npz files: types unknown to numpy, and
// attributes. PlanNpy and PlanNpz add these lines to their own warnings.
std::vector<std::string> NpyLosses(const TensorSource& source,
                                   std::span<const std::uint32_t> objects);

// Plans an .npz archive: stored entries NAME.npy in the order given, CRCs after the data, zip64
// where needed, no timestamps. A sparse object must be the only object; its archive can be read by
// scipy.sparse.load_npz.
StatusOr<FileLayout> PlanNpz(const TensorSource& source, std::span<const std::uint32_t> objects);

}  // namespace zt
