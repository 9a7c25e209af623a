"""tensor_parallel.py CHECKPOINT RANK COUNT: the part of each matrix that one of COUNT ranks holds; nothing else is kept."""
import sys

import ztstream


def mine(path, rank, count):
    """Rows of each matrix, and columns of those whose inputs are cut; the whole of what is no matrix."""
    wanted = {}
    with ztstream.open(path) as f:
        for name, tensor in f.items():
            dim = int(name.endswith(("o_proj.weight", "down_proj.weight")))
            size = tensor.shape[dim] // count if tensor.ndim == 2 else 0
            cut = slice(rank * size, (rank + 1) * size)
            wanted[name] = ... if tensor.ndim != 2 else (slice(None), cut) if dim else cut
        return f.numpy(wanted)  # f.torch(wanted, device="cuda") for torch


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: " + __doc__.partition(":")[0])
    for tensor, array in mine(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])).items():
        print(tensor, array.shape)
