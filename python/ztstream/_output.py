"""Outputs: a zts_writer, of a path or of a file object, with what it uses until it is freed."""
import ctypes
import operator
import os
import threading
from ctypes import byref, sizeof
from functools import partial

from . import _c
from ._errors import ArgumentError, InputOutputError, MisuseError
from ._interrupt import _outputs, in_one_step, interruptibly
from ._reader import is_url

_LONG = 4 << 20  # bytes that may take long to write to a file
_LONG_OF_OBJECT = 64 << 10  # and to a file object


class _FileSink:
    """What threads of the library call to write to a file object."""

    def __init__(self, out, name):
        self.out, self.name, self.written, self.raised = out, name, 0, []

    def append(self, data, size, _):
        """Writes bytes."""
        try:
            left = ctypes.string_at(data, size)
            while left:
                left = left[self._write(left):]
            return 0
        except BaseException as error:  # nothing passes through C
            return self._failed(error)

    def _write(self, data):
        said = self.out.write(data)
        taken = operator.index(said) if hasattr(said, "__index__") else 0
        if not 0 < taken <= len(data):
            raise InputOutputError(f"{self.name}: write() of {len(data)} bytes has returned {said!r}; a file object returns how many "
                                   "it has taken, at least one", self.name)
        self.written += taken
        return taken

    def finish(self, total, _):
        """Ends the file."""
        try:
            if self.written != total:
                raise InputOutputError(f"{self.name}: {self.written} of {total} bytes were written", self.name)
            if hasattr(self.out, "flush"):
                self.out.flush()
            return 0
        except BaseException as error:
            return self._failed(error)

    def _failed(self, error):
        self.raised.append(error)
        return _c.errno_of(error)


class Output(_c.Handle):
    """A zts_writer. One call at a time uses it, in a thread that nothing interrupts where that may take long."""

    def __init__(self, out):
        super().__init__(_c.c.writer_free)
        self._pid = os.getpid()
        self._lock = threading.Lock()  # held while the library runs
        self._kept = []
        self._sink = None
        if isinstance(out, (str, os.PathLike)):
            self.name = os.fspath(out)
            if "\0" in self.name:
                raise ArgumentError("a path holds a zero byte")
        elif hasattr(out, "write"):
            self.name = str(getattr(out, "name", "file object"))
            self._sink = _FileSink(out, self.name)
        else:
            raise TypeError(f"what is written to is a path or a file object, not {type(out).__name__}")

    def open(self, options):
        """Opens it."""
        if self._sink is None:
            self._run(lambda: self._check(_c.c.writer_open(os.fsencode(self.name), byref(options), self.out)), is_url(self.name), self._cancel)
            return
        if options.threads < 2:  # so that no function of the file object runs in the thread of the caller, which may be interrupted
            options.threads = max(2, len(os.sched_getaffinity(0)) if options.threads == 0 else 2)
        self._struct = _c.Sink(size=sizeof(_c.Sink), name=os.fsencode(self.name), append=_c.Append(self._sink.append),
                               finish=_c.Finish(self._sink.finish))
        _outputs.add(self)
        self._run(lambda: self._check(_c.c.writer_open_sink(byref(self._struct), byref(options), self.out)), True, self._cancel)

    def call(self, function, *arguments, nbytes=0, kept=None):
        """A function of the library that returns a status, and takes long with so many bytes; it uses what is `kept` until a flush."""
        if self._pid != os.getpid():
            raise MisuseError(f"{self.name}: the writer can only be used in the process that opened it", self.name)
        if self._lock.locked():
            raise MisuseError(f"{self.name}: another call is under way; one thread at a time uses a writer", self.name)

        flushed = len(self._kept) if function is _c.c.writer_flush else 0
        steps = [partial(self._lock.acquire), partial(self._kept.append, kept), partial(function, self, *arguments),
                 partial(self._lock.release)]
        if kept is None:
            del steps[1]
        self._run(lambda: self._check(in_one_step(*steps)[-2]), nbytes >= (_LONG if self._sink is None else _LONG_OF_OBJECT),
                  self._cancel)
        del self._kept[:flushed]

    def end(self):
        """Frees it when no call uses it any more. The output of one that was not finished is removed."""
        if self._pid == os.getpid():
            self._run(self.give_up, True, None)

    def give_up(self):
        """The same in this thread."""
        if self._pid != os.getpid():
            return
        if self._lock.locked():
            self._cancel()
        in_one_step(partial(self._lock.acquire), partial(setattr, self, "_as_parameter_", None),
                    partial(self.close),  # ends the threads that read what is kept
                    partial(self._kept.clear), partial(self._lock.release))
        _outputs.discard(self)

    def _run(self, work, long, cancel):
        if not long:
            return work()
        foreign = self._sink is not None
        return interruptibly(work, cancel, leave=foreign, foreign=foreign)

    def _cancel(self):
        if self._as_parameter_:
            _c.c.writer_cancel(self)

    def _check(self, status):
        if status and self._sink is not None and self._sink.raised:
            raise self._sink.raised[0]
        _c.check(status)
