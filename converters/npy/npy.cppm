// zt.convert.npy — numpy's files as tensor sources: .npy, .npz, folders of .npy, scipy's sparse .npz.
export module zt.convert.npy;

import zt.std;
import zt.convert.layout;
import zt.core;
import zt.source;

export namespace zt {

// True where a file that begins with `head` (8 bytes suffice) is an .npy array.
bool LooksLikeNpy(std::span<const std::byte> head);

// The attribute, true, of an object that was one of scipy's sparse arrays of two dimensions, not a matrix.
inline constexpr std::string_view kScipyIsArray = "scipy_is_array";
// The attribute of the array 'data' of a sparse .npz whose arrays were kept as they are: "csr", "bsr" ...
inline constexpr std::string_view kScipyFormat = "scipy_format";

// InputOptions::memory_limit is for what all arrays hold while they are transposed from Fortran order, in several passes where
// they are larger; those that cannot be read twice (pipes, deflated entries) are refused where one takes more than half of it.
// It is also for a sparse matrix that has to be sorted, which is refused beyond it.
// Errors of these functions name the tensor, and in a folder the file; those of Finish name the file. What is malformed
// is kDataLoss. Arrays that are not tensors (object, structured, string, date, long double) are kUnimplemented: OpenNpy
// refuses them, the others list them with the format "npy." and their dtype,
// and CheckReadable says why they cannot be read.

// One array, from a file or a pipe. Bytes after it are an error, on a pipe reported by Finish:
// numpy ignores them, but they are either damage or a second array that would be lost.
StatusOr<std::unique_ptr<TensorSource>> OpenNpy(std::shared_ptr<ByteSource> bytes,
                                                std::string object_name,
                                                const InputOptions& options = {});

// The arrays of an archive in the order they lie in it, each named by its entry without ".npy";
// names are kept as they are, '../x' included, for nothing is ever written under them. A scipy
// sparse matrix (csr, csc, coo) is one object named `stem` instead: csc becomes csr, columns ascend
// within a row, entries given twice stay (scipy's files do not say that they are summed), coo keeps
// its order. CRCs are checked as the bytes pass by; Finish reads again only what was read in pieces
// that do not add up.
StatusOr<std::unique_ptr<TensorSource>> OpenNpz(std::shared_ptr<ByteSource> bytes,
                                                const std::string& stem,
                                                const InputOptions& options = {});

// Every *.npy directly in the folder, sorted by name, each named by its stem. Other files are named
// in a warning.
StatusOr<std::unique_ptr<TensorSource>> OpenNpyFolder(const std::string& path,
                                                      const InputOptions& options = {});

// ---- writing -------------------------------------------------------------------------------------------------

// Plans an .npy file of one dense object, with the header that numpy.save writes. Elements that numpy has no name for
// (bf16, f8_*, packed types) are '|V' of their width, which a warning of the layout says. kUnimplemented where the
// object is not an array; errors name the tensor.
StatusOr<FileLayout> PlanNpy(const TensorSource& source, std::uint32_t object);

// What .npy and .npz files of these objects do not keep, in at most two lines: types that numpy has no name for, and
// attributes. PlanNpy and PlanNpz say it of their own file.
std::vector<std::string> NpyLosses(const TensorSource& source,
                                   std::span<const std::uint32_t> objects);

// Plans an .npz archive: stored entries NAME.npy in the order given, CRCs behind the data, zip64 where needed, no
// timestamps. A sparse object must be the only one and becomes an archive that scipy.sparse.load_npz reads.
StatusOr<FileLayout> PlanNpz(const TensorSource& source, std::span<const std::uint32_t> objects);

}  // namespace zt
