"""The ring: loading by few buffers of bounded size. All cores fill one while another is copied to where the tensors are, on a device."""
import itertools
import math
from collections.abc import Mapping

from . import _c, _types
from ._errors import ArgumentError
from ._slices import Torch, sliced

BUFFERS = 3
SIZE = 64 << 20  # bytes of each
_GRAIN = 4 << 20  # tensors are cut at multiples of it, as their frames are, and few frames are decoded twice
_ALIGNED = 16  # bytes, in a buffer: every type is
_SLAB = 256  # and in a slab: as allocators of devices align

_FLOATS = ("f64", "f32", "f16", "bf16")


def _cut(wanted, size):
    """What each buffer holds in turn: lists of (part, target, first byte of the part, bytes, place in the buffer)."""
    held, at = [], 0
    for part, width, target in wanted:
        grain = _GRAIN if size >= _GRAIN else width
        begin = 0
        while begin < part._bytes:
            at = -(-at // _ALIGNED) * _ALIGNED
            left, room = part._bytes - begin, size - at
            count = left if left <= room else max(room // grain * grain, 0)
            if count:
                held.append((part, target, begin, count, at))
                begin, at = begin + count, at + count
            else:
                yield held
                held, at = [], 0
    if held:
        yield held


def fill(file, wanted, device, progress=None):
    """Reads [(part, bytes of an element, target)] in the order of the file, and has the device put them into their targets.

    device: buffer(bytes) is (memory, its address); direct(target, first byte) an address where no buffer is needed, or None;
        put(memory, place, bytes, target, first byte) begins to copy; mark() is what wait(mark) takes, which returns when all that
        began before it has ended, false where it has ended already; finish() is called however this ends.
    progress: a function of the bytes that were read and of those of all; what it raises ends this.
    """
    wanted = sorted((each for each in wanted if each[0]._bytes), key=lambda each: (each[0]._path, each[0]._offset))
    total, done = sum(part._bytes for part, _, _ in wanted), 0
    size = max([min(SIZE, total + _ALIGNED * len(wanted)), *(width for _, width, _ in wanted)])
    ring, mark = [], None
    try:
        for number, pieces in enumerate(_cut(wanted, size)):
            if not ring or mark and len(ring) < BUFFERS:  # where all was copied already, one is enough
                ring.append([device.buffer(size), None])
            turn = ring[number % len(ring)]
            (memory, address), mark = turn
            if mark is not None:
                device.wait(mark)
            direct = [device.direct(target, begin) for _, target, begin, _, _ in pieces]
            file._read([(part._object, part._number, begin, count, there or address + at, (memory, target))
                        for there, (part, target, begin, count, at) in zip(direct, pieces)], None)
            for there, (_, target, begin, count, at) in zip(direct, pieces):
                if there is None:
                    device.put(memory, at, count, target, begin)
            turn[1] = mark = device.mark()
            done += sum(piece[3] for piece in pieces)
            if progress is not None:
                progress(done, total)
    finally:
        device.finish()


class _Devices:
    """Of torch: those on which the targets are, which are (a flat tensor, the type in the file)."""

    def __init__(self, torch, tensors):
        self._torch = torch
        self._cuda = {each.device for each in tensors if each.device.type == "cuda"}

    def buffer(self, size):
        memory = self._torch.empty(size, dtype=self._torch.uint8, device="cpu", pin_memory=bool(self._cuda))
        return memory, memory.data_ptr()

    def direct(self, target, begin):
        """Memory of the CPU that has the type of the file."""
        flat, _ = target
        return flat.data_ptr() + begin if flat.device.type == "cpu" and flat.dtype == self._torch.uint8 else None

    def put(self, memory, at, count, target, begin):
        """On the stream on which a caller uses the tensors, so that what it does with them, and their end, comes later."""
        flat, kind = target
        piece = memory[at:at + count]
        if flat.dtype != self._torch.uint8:  # on the device in its own type first: to be copied by the device is what is pinned for
            width = kind.itemsize
            piece, begin, count = piece.view(kind).to(flat.device, non_blocking=True), begin // width, count // width
        flat[begin:begin + count].copy_(piece, non_blocking=True)

    def mark(self):
        marks = []
        for device in self._cuda:
            marks.append(self._torch.cuda.Event())
            marks[-1].record(self._torch.cuda.current_stream(device))
        return marks

    def wait(self, marks):
        for mark in marks:
            mark.synchronize()

    def finish(self):
        for device in self._cuda:
            self._torch.cuda.current_stream(device).synchronize()


class _Place:
    """Where a part goes, of what type and shape: into memory that is made, or that is there."""

    def __init__(self, part, shape, dtype, there=None):
        part._check()
        self.part, self.shape, self.tensor = part, tuple(shape), there
        self.width = _types.width_of(part.dtype, part.storage)
        self.kind = part._named(_types.torch_dtype)
        self.dtype = dtype if self._becomes(dtype, there is not None) else self.kind

    def _becomes(self, dtype, must):
        """Whether numbers become those of another type, as Tensor.to makes them. Codes do not, and integers stay what they are."""
        if dtype in (None, self.kind):
            return False
        ours, theirs = self.part.dtype, _types.of_torch(dtype) or dtype
        numbers = ours in _FLOATS and theirs in _FLOATS
        if not numbers and (must or ours[:2] in ("f8", "f6", "f4")):
            raise ArgumentError(f"{self.part._file._name}: tensor {self.part._name!r}: {ours} does not become {theirs}"
                                + "; dequantize= makes numbers of quantized tensors" * (ours[0] == "f"), self.part._file._name,
                                self.part._name)
        return numbers

    @property
    def nbytes(self):
        return math.prod(self.shape) * _types.find(_types.of_torch(self.dtype))[1]

    def target(self, torch):
        """What fill() takes; and where that is not the tensor, since its elements lie in another order, what is copied to it then."""
        tensor, plain = self.tensor.detach(), not self.tensor.is_conj() and not self.tensor.is_neg()
        filled = tensor if plain and tensor.is_contiguous() else torch.empty(self.shape, dtype=self.dtype, device=tensor.device)
        flat = filled.reshape(-1)
        return ((self.part, self.width, (flat if self.dtype != self.kind else flat.view(torch.uint8), self.kind)),
                None if filled is tensor else (tensor, filled))


def _there(tensor, into):
    """The place of a tensor that is filled."""
    name, why = tensor._name, "it is no tensor of torch"
    if hasattr(into, "untyped_storage"):
        why = _types.without_values(into)
        if why is None and tuple(into.shape) != tensor.shape:
            why = f"it has the shape {list(into.shape)}, and the tensor {list(tensor.shape)}"
    if why is not None:
        raise ArgumentError(f"what is filled with {name!r}: {why}", None, name)
    return _Place(tensor, into.shape, into.dtype, into)


def _load(torch, file, places, device, slab=False, progress=None):
    """Makes what is not there, and fills all."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ArgumentError(f"torch has no device {str(device)!r} here: {str(error).splitlines()[0]}") from None
    made = [each for each in places if each.tensor is None]
    sizes = [-(-each.nbytes // _SLAB) * _SLAB for each in made]
    memory = torch.empty(sum(sizes), dtype=torch.uint8, device=device).split(sizes) if slab else ()
    for each, place_in in itertools.zip_longest(made, memory):
        each.tensor = (torch.empty(each.shape, dtype=each.dtype, device=device) if place_in is None else
                       place_in[:each.nbytes].view(each.dtype).reshape(each.shape))
    filled = [each for each in places if each.tensor.device.type != "meta"]
    targets = [each.target(torch) for each in filled]
    fill(file, [target for target, _ in targets], _Devices(torch, [each.tensor for each in filled]), progress)
    for tensor, copied in filter(None, (later for _, later in targets)):
        tensor.copy_(copied)


def one(part, device):
    """A part on a device."""
    import torch
    place = _Place(part, part.shape, None)
    _load(torch, part._file, [place], device)
    return place.tensor


def load(file, names, device, dtype=None, out=None, slab=False, progress=None):
    """{name: tensor} on a device, see File.torch."""
    import torch
    if dtype is not None:
        found = _types.find(_types.named(dtype)) or (dtype, 0)
        if found[0] not in _FLOATS:
            raise ArgumentError(f"dtype is a type of floating-point numbers, f64, f32, f16 or bf16, not {found[0]}")
        dtype = _types.torch_dtype(found[0])
    if isinstance(names, Mapping):
        if out is not None or slab:
            raise ArgumentError("parts of tensors are not read into tensors that are there, nor into a slab")
        state = sliced(file, {name: (file[name], index) for name, index in names.items()}, Torch())
        return {name: part.to(device, dtype if part.dtype.is_floating_point else None) for name, part in state.items()}
    places, state = {}, {}

    def place(part, shape, dtype):
        """Names that share their bytes share their memory."""
        key = part if part._offset == _c.UNKNOWN else (part._path, part._offset, part._length, part._dtype, tuple(shape))
        if key not in places:
            places[key] = _Place(part, shape, dtype)
        return places[key]

    for name in file._matched(out if names is None and out is not None else names):
        tensor = file[name]
        if out is not None:
            if name not in out:
                raise ArgumentError(f"nothing is there for {name!r}", None, name)
            state[name] = places[name] = _there(tensor, out[name])
        elif tensor.is_dense:
            state[name] = place(tensor, tensor.shape, dtype)
        else:
            state[name] = {role: place(part, part.shape, None) for role, part in tensor.parts.items()}
    _load(torch, file, list(places.values()), device, slab, progress)
    return {name: {role: part.tensor for role, part in each.items()} if isinstance(each, dict) else each.tensor
            for name, each in state.items()}
