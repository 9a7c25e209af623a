"""notebook.py CHECKPOINT: what somebody asks a checkpoint of in a notebook, a cell after the other."""
import sys

import ztstream

if len(sys.argv) < 2:
    sys.exit("usage: " + __doc__.partition(":")[0])

# %% What is in it? A notebook shows a table where `f` is the last line of a cell, and completes f["...
f = ztstream.open(sys.argv[1])
print(f)
largest = max(f.values(), key=lambda tensor: tensor.nbytes)

# %% Which values has a part of it?
print(largest, largest[0].mean())

# %% What if the name is wrong?
try:
    f[largest.name[:-1]]
except KeyError as error:
    print(error)
