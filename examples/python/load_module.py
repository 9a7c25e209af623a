"""load_module.py CHECKPOINT: the tensors of a checkpoint of any format in a torch module, with a parameter for each."""
import sys

import torch
import ztstream


class Holder(torch.nn.Module):
    """A module with these tensors. Your own takes load_state_dict(f.torch()) instead."""

    def __init__(self, state):
        super().__init__()
        for name, tensor in state.items():
            self.register_buffer(name.replace(".", "__"), tensor)


def main(path):
    with ztstream.open(path) as f:
        dense = [name for name, tensor in f.items() if tensor.is_dense]
        module = Holder(f.torch(dense, device="cuda" if torch.cuda.is_available() else "cpu"))
    print(f"{len(dense)} tensors, {sum(each.numel() for each in module.buffers())} parameters")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: " + __doc__.partition(":")[0])
    main(sys.argv[1])
