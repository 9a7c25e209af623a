"""receive_deltas.py FOLDER: follows the files of publish_deltas.py, and changes its weights in memory to each.

It begins with the newest. A delta then costs what changed; its base is what lies in memory, and no file.
"""
import pathlib
import sys

import numpy
import ztstream


class Receiver:
    """The weights of the newest step that was seen."""

    def __init__(self):
        self.state, self.step = None, 0

    def follow(self, folder):
        """Takes what is new; the number of files that were read."""
        fresh = [path for path in sorted(folder.glob("step-*.zt")) if int(path.stem[5:]) > self.step]
        for path in fresh[-1:] if self.state is None else fresh:
            if self.state is None:
                with ztstream.open(path) as file:  # with the bases beside it
                    self.state = file.numpy(copy=True)
            else:
                with ztstream.open(path, base=None) as file:  # the arrays stay where they are
                    file.update_(self.state)
            self.step = int(path.stem[5:])
        return len(fresh)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: " + __doc__.partition(":")[0])
    receiver = Receiver()
    receiver.follow(pathlib.Path(sys.argv[1]))
    print(f"step {receiver.step}: norm {float(numpy.linalg.norm(receiver.state['weight'])):.6f}")
