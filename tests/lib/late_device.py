"""late_device.py — a device for the ring of the Python package that copies as late as it may: what is put into a buffer too early is
what it copies. It needs no numpy and no torch."""
import ctypes


class LateDevice:
    """Targets are bytearrays. `buffers`: the sizes of those that were asked for."""

    def __init__(self):
        self.buffers, self.finished, self._waiting, self._marks = [], 0, [], 0

    def buffer(self, size):
        """Memory, and its address."""
        self.buffers.append(size)
        memory = (ctypes.c_ubyte * size)()
        return memory, ctypes.addressof(memory)

    def direct(self, target, begin):
        """All goes through buffers."""

    def put(self, memory, at, count, target, begin):
        """Copies later."""
        if not 0 < count <= len(memory) - at:
            raise AssertionError(f"{count} bytes at {at} of a buffer of {len(memory)}")
        self._waiting.append((memory, at, count, target, begin))

    def mark(self):
        """After what was put so far."""
        self._marks += 1
        self._waiting.append(self._marks)
        return self._marks

    def wait(self, mark):
        """Copies what was put before the mark, and no more."""
        while self._waiting:
            each = self._waiting.pop(0)
            if each == mark:
                return
            self._copy(each)

    def _copy(self, each):
        if not isinstance(each, int):
            memory, at, count, target, begin = each
            target[begin:begin + count] = bytes(memory)[at:at + count] if len(memory) < 1 << 16 else memoryview(memory)[at:at + count]

    def finish(self):
        """Copies the rest."""
        self.finished += 1
        while self._waiting:
            self._copy(self._waiting.pop(0))
