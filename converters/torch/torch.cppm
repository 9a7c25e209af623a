// zt.convert.torch — PyTorch's checkpoints (.pt, .pth, .bin) as tensor sources. No code of theirs is run.
export module zt.convert.torch;

import zt.std;
import zt.convert.zip;
import zt.core;
import zt.source;

export namespace zt {

// The element type of a torch dtype by its name, "bfloat16" or "long"; of a storage class, "BFloat16". Nothing where
// zTensor has none.
std::optional<ElementType> ParseTorchDtype(std::string_view name);

// True where a file that begins with `head` (64 bytes suffice) is a checkpoint of the legacy kind, a row of pickles
// and storages, as torch before 1.6 wrote it.
bool LooksLikeTorchStream(std::span<const std::byte> head);
// True where a zip archive is a checkpoint, or another file of torch's that OpenTorch refuses with a word.
bool HoldsTorch(const ZipArchive& archive);

// The tensors of a checkpoint, of either kind; the legacy one also from a pipe. Each is named by its path in the tree
// of dicts and lists, joined with dots; a checkpoint that is one tensor names it `stem`. Numbers, texts, flags and lists
// of these become attributes of the file under their paths; what is neither is named in one warning. Tensors that are
// the same view of the same storage have one identity. InputOptions::memory_limit is twice what tensors may hold together
// while they are transposed in parts, and twice what a storage may have that has to be held: from a pipe, or deflated. kUnimplemented for objects of other classes that hold tensors,
// quantized tensors (when they are kept), TorchScript and other kinds of files,
// each with what to do; kDataLoss for what is malformed.
StatusOr<std::unique_ptr<TensorSource>> OpenTorch(std::shared_ptr<ByteSource> bytes,
                                                  const std::string& stem,
                                                  const InputOptions& options = {});

// True where a folder is a checkpoint of torch.distributed.checkpoint: it has a file ".metadata".
bool LooksLikeDcpFolder(const std::string& path);

// A folder. A distributed checkpoint's tensors are put together from chunks, whichever of the folder's files they lie
// in; kDataLoss where chunks overlap or do not cover their tensor, kUnimplemented where they are transformed. Otherwise
// the shards are opened as OpenShards does, with a *.bin.index.json (which `path` may name), or every *.bin file.
StatusOr<std::unique_ptr<TensorSource>> OpenTorchFolder(const std::string& path,
                                                        const InputOptions& options = {});

}  // namespace zt
