// zt.convert.torch — PyTorch's checkpoints (.pt, .pth, .bin) as tensor sources. Pickles are
// parsed, never executed.
export module zt.convert.torch;

import zt.std;
import zt.convert.shards;
import zt.convert.zip;
import zt.core;
import zt.source;

export namespace zt {

// The element type of a torch dtype ("bfloat16", "long") or of a storage class ("BFloat16").
// nullopt if zTensor has none.
std::optional<ElementType> ParseTorchDtype(std::string_view name);

// True if a file that begins with `head` (64 bytes suffice) is a pickle: a legacy checkpoint, pickles
// and storages one after the other, as torch before 1.6 wrote it; or a plain one, as detectron2 and
// Paddle (.pdparams) write, whose arrays of numpy are read.
bool LooksLikeTorchStream(std::span<const std::byte> head);
// True if a zip archive is a checkpoint, or another kind of torch file that OpenTorch
// refuses with advice.
bool HoldsTorch(const ZipArchive& archive);

// Opens a checkpoint of either kind; a legacy one may come from a pipe. A tensor's name is its
// path in the tree of dicts and lists, joined with dots; if the checkpoint is a single tensor,
// `stem`. Numbers, strings, bools and lists of these become attributes of the file, under
// their paths; those set on a tensor become its attributes. One warning lists all other values.
// Tensors that are the same view of the same storage have one identity. A tensor whose name is not
// UTF-8, or another's, is listed under a name of its own and cannot be read.
// Memory: what the pickle describes takes at most 64 bytes for each byte of the file, and 64 MiB.
// Tensors that are transposed in parts hold at most half of InputOptions::memory_limit
// together. A storage that is deflated or comes from a pipe, and has to be held as a whole, may
// have at most half of it.
// Errors: kUnimplemented, with advice, for TorchScript and other kinds of files, and on reading
// quantized tensors and objects of other classes that hold tensors; kDataLoss for malformed input.
StatusOr<std::unique_ptr<TensorSource>> OpenTorch(std::shared_ptr<ByteSource> bytes,
                                                  const std::string& stem,
                                                  const InputOptions& options = {});

// True if a folder is a checkpoint of torch.distributed.checkpoint: it has a file ".metadata".
StatusOr<bool> LooksLikeDcpFolder(const std::string& path, Store& store);

// Opens a folder. The tensors of a distributed checkpoint are assembled from chunks in any of its
// files; its other values become attributes, or tensors if they hold some. kDataLoss if chunks
// overlap or do not cover their tensor, kUnimplemented if chunks are transformed. In any other
// folder the shards are opened as OpenShards does: those of a *.bin.index.json (which `path` may
// name), else every *.bin file. `other` opens those of another format.
StatusOr<std::unique_ptr<TensorSource>> OpenTorchFolder(const std::string& path,
                                                        const InputOptions& options = {},
                                                        OpenOther other = {});

}  // namespace zt
