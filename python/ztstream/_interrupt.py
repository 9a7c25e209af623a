"""Long calls that Ctrl-C ends: the one place where what a signal handler raises meets work that may not be left half done.

Only the main thread runs signal handlers, between any two of its steps. So what must not be torn apart runs in a thread of its
own, which nothing interrupts, and the main thread waits for it. Should the main thread be interrupted again and again, and stop
waiting, then the work still ends by itself: what it uses belongs to it until then.
"""
import _thread
import atexit
import functools
import os
import signal
import threading

_PATIENCE = 0.1  # seconds that work which may be left has to end
_running = set()


class _Call:
    """Work in a thread of its own."""

    def __init__(self, work, foreign):
        self.work, self.foreign, self.ended, self.result, self.error = work, foreign, False, None, None
        self.taken = {}  # whether the thread does the work, or its caller was interrupted before the thread began
        self.lock = _thread.allocate_lock()  # held until it has ended
        self.lock.acquire()

    def run(self):
        """The thread."""
        if self.taken.setdefault("by", "thread") != "thread":
            return
        _running.add(self)
        try:
            self.result = self.work()
        except BaseException as raised:  # in this thread, which has the library's message
            self.error = raised
        self.work = None  # and all that it uses
        _running.discard(self)
        self.ended = True
        self.lock.release()
        del self  # the traceback of the error has this frame

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
    foreign: the work calls functions of the caller. Where it was left, the interpreter waits for it before it ends.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return work()
    call = _Call(work, foreign)
    try:
        _thread.start_new_thread(call.run, ())
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
    try:
        in_one_step(functools.partial(_running.add, call), functools.partial(_thread.start_new_thread, call.run, ()))
    except RuntimeError:  # there are no more threads
        _running.discard(call)
        raise
    return call


def in_one_step(*calls):
    """What functools.partials of functions in C return, called one after the other in one step of Python: what a signal handler
    raises comes before or after, not between. (`with lock:` has such places, in Python 3.9 and 3.14.)"""
    return list(map(functools.partial.__call__, calls))


@atexit.register
def _wait_for_left():
    """A thread that calls Python when the interpreter is gone ends the process: what was left ends first. Ctrl-C, again, does not
    wait for that."""
    for call in list(_running):
        if call.foreign and threading.get_ident() == threading.main_thread().ident:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        call.wait(-1 if call.foreign else _PATIENCE)


os.register_at_fork(after_in_child=_running.clear)
