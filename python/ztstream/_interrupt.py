"""Long calls that Ctrl-C ends: the one place where what a signal handler raises meets work that may not be left half done.

Only the main thread runs signal handlers, between any two of its steps. So what must not be torn apart runs in a thread of its
own, which nothing interrupts, and the main thread waits for it. Should the main thread be interrupted again and again, and stop
waiting, then the work still ends by itself: what it uses belongs to it until then.

A thread of the library that calls Python when the interpreter is gone ends the process: the interpreter waits for all that may.
"""
import _thread
import atexit
import functools
import os
import signal
import threading
import weakref

_PATIENCE = 0.1  # seconds that work which may be left has to end
_SETTLED = 1.0  # and a thread, to return from the last function that the library calls
_running = set()
_outputs = weakref.WeakSet()  # to file objects, for which threads of the library run between its calls
_own = threading.local()  # of threads that are begun here
_ending = False


class _Call:
    """Work in a thread of its own, or in that of its caller."""

    def __init__(self, work, foreign, cancel=None):
        self.work, self.foreign, self.cancel = work, foreign, cancel
        self.started, self.ended, self.result, self.error = [], False, None, None
        self.taken = {}  # whether the thread does the work, or its caller was interrupted before the thread began
        self.lock = _thread.allocate_lock()  # held until it has ended
        self.lock.acquire()

    def run(self):
        """The thread."""
        _own.call = self
        try:
            if self.taken.setdefault("by", "thread") == "thread":
                self.result = self.work()
        except BaseException as raised:  # in this thread, which has the library's message
            self.error = raised
        self._end()
        del self  # the traceback of the error has this frame

    def start(self):
        """Begins the thread. Ctrl-C comes before or after."""
        try:
            in_one_step(functools.partial(_running.add, self), functools.partial(_thread.start_new_thread, self.run, ()),
                        functools.partial(self.started.append, True))
        except BaseException:
            if not self.started:  # there are no more threads
                _running.discard(self)
            raise

    def here(self):
        """In a thread of the caller's, which no interrupt meets, and which ends when the interpreter does."""
        _running.add(self)
        try:
            if not _ending:
                return self.work()
        finally:
            self._end()
            if _ending:
                raise SystemExit from None

    def _end(self):
        self.work = self.cancel = None  # and all that they use
        _running.discard(self)
        self.ended = True
        self.lock.release()

    def wait(self, seconds=-1):
        """Until it has ended, or for some time."""
        if not self.ended and self.lock.acquire(True, seconds):
            self.lock.release()

    def stopped(self, cancel, leave):
        """Ends it, and waits for that. False if that has to be done again, since another interrupt came."""
        try:
            if self.taken.setdefault("by", "caller") == "thread" and not self.ended:
                if cancel is not None:
                    cancel()
                self.wait(_PATIENCE if leave else -1)
            return True
        except BaseException:
            return leave


def interruptibly(work, cancel=None, *, leave=False, foreign=False):
    """What `work` returns or raises. What a signal handler raises meanwhile calls `cancel`, which makes the work end soon, and is
    raised when it has ended.

    leave: it is raised soon even where the work does not end, as a server that does not answer lets it.
    foreign: true as long as the work may call functions in Python. The interpreter waits for that before it ends.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return work() if foreign is False or hasattr(_own, "call") else _Call(work, foreign, cancel).here()
    call = _Call(work, foreign)
    try:
        call.start()
        while not call.ended:
            call.wait(_PATIENCE)  # a signal that came just before the wait does not end it
    except BaseException:
        while not call.stopped(cancel, leave):
            pass
        raise
    try:
        if call.error is not None:
            raise call.error
        return call.result
    finally:
        del call, work, cancel  # likewise


def begun(work):
    """Work that goes on while the caller does: `ended`, wait(seconds). The interpreter waits for it before it ends. (What
    interrupts the start of a threading.Thread may leave a lock of that module held for good.)"""
    call = _Call(work, True)
    call.start()
    return call


def in_one_step(*calls):
    """What functools.partials of functions in C return, called one after the other in one step of Python: what a signal handler
    raises comes before or after, not between. (`with lock:` has such places, in Python 3.9 and 3.14.)"""
    return list(map(functools.partial.__call__, calls))


def _before_the_end():
    """What was left, and saves in the background, end first; calls of other threads are cancelled, and outputs that nobody ended
    are given up. Ctrl-C, again, does not wait for that; what other handlers raise is too late."""
    global _ending
    while True:
        try:
            _ending = True
            calling = [call for call in list(_running) if call.foreign]
            if (calling or _outputs) and threading.get_ident() == threading.main_thread().ident:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
            for call in calling:
                cancel = call.cancel
                if cancel is not None:
                    cancel()
                call.wait(_PATIENCE)
            if calling:
                continue
            for call in list(_running):
                call.wait(_PATIENCE if call.foreign is False else _SETTLED)
            for output in list(_outputs):
                output.give_up()
            return
        except BaseException:
            pass


atexit.register(_before_the_end)
atexit.register(_before_the_end)  # again, should an interrupt come before the first step
os.register_at_fork(after_in_child=_running.clear)
