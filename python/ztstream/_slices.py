"""Slices: which bytes of a tensor an index asks for, and reading those of many tensors with few calls."""
import math
import operator

from . import _types

_GAP = 1 << 20  # bytes between two runs from which they are read alone: whole frames lie between them
_BAND = 16 << 20  # bytes of a band of rows that is read for its columns
_BANDS = 64 << 20  # of all bands that are read with one call


def _dims(each):
    """How many dimensions a part of an index takes."""
    if each is None or isinstance(each, bool):
        return 0
    return each.ndim if str(getattr(each, "dtype", "")).endswith("bool") else 1


class Box:
    """What an index of numpy asks for of a tensor: from `low` to `high` of each dimension. `rest` is the index within that."""

    def __init__(self, shape, index):
        given = index if isinstance(index, tuple) else (index,)
        left = len(shape) - sum(_dims(each) for each in given if each is not Ellipsis)
        self.low, self.high, rest = [], [], []
        for each in given:
            at = len(self.low)
            if each is Ellipsis:
                self._take(shape, max(left, 0))
            elif isinstance(each, slice) and at < len(shape):
                begin, end, step = each.indices(shape[at])
                last = begin + (len(range(begin, end, step)) - 1) * step
                some = bool(len(range(begin, end, step)))
                self.low.append(min(begin, last) if some else 0)
                self.high.append(max(begin, last) + 1 if some else 0)
                each = slice(None, None, step)
            elif _dims(each) == 1 and hasattr(each, "__index__") and not getattr(each, "ndim", 0) and at < len(shape):
                number = operator.index(each)
                if not -shape[at] <= number < shape[at]:
                    raise IndexError(f"index {number} is out of range of dimension {at}, which has {shape[at]}")
                self.low.append(number % shape[at])
                self.high.append(number % shape[at] + 1)
                each = 0
            else:  # an array of indices, a mask: numpy or torch looks at them
                self._take(shape, _dims(each))
            rest.append(each)
        self._take(shape, len(shape) - len(self.low))
        self.shape = tuple(high - low for low, high in zip(self.low, self.high))
        self.rest = tuple(rest)

    def _take(self, shape, count):
        at = len(self.low)
        self.low += [0] * len(shape[at:at + count])
        self.high += shape[at:at + count]

    def runs(self, shape, width):
        """(bytes of a run, from one to the next in a band, [(offset, runs) of each band])."""
        cut = max((i for i, size in enumerate(shape) if self.shape[i] != size), default=0)  # beyond it all is whole
        inner = [math.prod(shape[i + 1:]) * width for i in range(len(shape))]
        if not shape or not math.prod(self.shape):
            return math.prod(self.shape) * width, 0, [(0, 1)]
        run = self.shape[cut] * inner[cut]
        offsets = [self.low[cut] * inner[cut]]
        if cut == 0:
            return run, 0, [(offsets[0], 1)]
        for i in range(cut - 1):
            offsets = [at + j * inner[i] for at in offsets for j in range(self.low[i], self.high[i])]
        first = self.low[cut - 1] * inner[cut - 1]
        return run, inner[cut - 1], [(at + first, self.shape[cut - 1]) for at in sorted(offsets)]


class Numpy:
    """How slices become arrays of numpy."""

    def __init__(self):
        import numpy
        self.copied = numpy.array
        self.memory = lambda count: numpy.empty(count, "u1")
        self.address = lambda memory: memory.ctypes.data
        self.kind = lambda tensor: tensor.numpy_dtype
        self.whole = lambda tensor: tensor.numpy()


class Torch:
    """And tensors of torch, those of one call in pages of their own."""

    def __init__(self):
        import torch
        places = {}
        self.copied = torch.clone
        self.memory = lambda count: torch.empty(count, dtype=torch.uint8, device="cpu")
        self.address = torch.Tensor.data_ptr
        self.kind = lambda tensor: tensor._named(_types.torch_dtype)
        self.whole = lambda tensor: tensor._torch(places, False)


def sliced(file, wanted, framework, copy=False):
    """{key: array} of {key: (tensor, index)}."""
    out, boxes = {}, {}
    for key, (tensor, index) in wanted.items():
        tensor._check()
        kind = framework.kind(tensor)
        if tensor._pages() is not None:
            part = framework.whole(tensor)[index]
            out[key] = framework.copied(part) if copy else part
            continue
        box = Box(tensor.shape, index)
        width = _types.width_of(tensor.dtype, tensor.storage)
        out[key] = boxes[key] = framework.memory(math.prod(box.shape) * width), box, kind
    _read(file, [(wanted[key][0], box, memory) for key, (memory, box, _) in boxes.items()], framework)
    for key, (memory, box, kind) in boxes.items():
        out[key] = memory.view(kind).reshape(box.shape)[box.rest]
    return out


def _read(file, wanted, framework):
    """Reads [(part, box, memory)], the memory as bytes.

    Runs that lie far apart are read alone. Where they lie close together, as columns do, whole bands of rows are read, once, and
    no more of them than a bounded memory holds.
    """
    direct, bands, scratch, size = [], [], None, 0

    def flush():
        if direct:
            file._read(direct, None)
        for count, run, pitch, place, memory, at in bands:
            rows = scratch[place:place + count * pitch].reshape(count, pitch)
            memory[at:at + count * run].reshape(count, run)[:] = rows[:, :run]
        direct.clear()
        bands.clear()

    for part, box, memory in wanted:
        if not len(memory):
            continue
        shape = part.shape
        run, pitch, places = box.runs(shape, part.nbytes // math.prod(shape))
        at = 0
        for offset, count in places:
            if count == 1 or pitch == run or pitch - run >= _GAP or pitch > _BAND:
                each = run * count if pitch == run else run
                for i in range(0, count, each // run):
                    direct.append((part._object, part._number, offset + i * pitch, each, framework.address(memory) + at, memory))
                    at += each
                continue
            if scratch is None:
                scratch = framework.memory(_BANDS)
            most = _BAND // pitch or 1
            for i in range(0, count, most):
                rows = min(most, count - i)
                if size + rows * pitch > _BANDS:
                    flush()
                    size = 0
                direct.append((part._object, part._number, offset + i * pitch, (rows - 1) * pitch + run,
                               framework.address(scratch) + size, scratch))
                bands.append((rows, run, pitch, size, memory, at))
                at += rows * run
                size += rows * pitch
    flush()
