"""from_pretrained.py FOLDER: a module of torch from weights and config.json (its "sizes"), of a folder or the .zt file made of it."""
import json
import sys

import torch
import ztstream


def from_pretrained(path):
    """The weights are the module's without a copy: those that are raw lie in the pages of the file."""
    with ztstream.open(path) as f:
        sizes = json.loads(f.files()["config.json"].tobytes())["sizes"]
        with torch.device("meta"):
            model = torch.nn.Sequential(*(torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])))
        model.load_state_dict(f.torch(), assign=True)
    return model


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: " + __doc__.partition(":")[0])
    print(from_pretrained(sys.argv[1]))
