"""The signals that a worker heeds, and their handlers."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from traceback import walk_tb
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, cast
from weakref import WeakSet

# The signals that ask for the end. The last one is handled only if no other code handles it: nohup lets it be ignored.
ENDS = INTERRUPT, TERMINATE, HANG_UP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP

# The signals that ask for a report, and to be quiet; also handled only if no other code handles them.
DUMP, QUIET = signal.SIGUSR1, signal.SIGUSR2

Handler = Callable[[int, FrameType | None], Any]

_with_taken: WeakSet[Handlers] = WeakSet()


class Handlers:
    """Handlers of signals that are taken over, and given back.

    Python allows that in the main thread only. In another thread, nothing is done.
    """

    def __init__(self) -> None:
        self._taken: dict[int, tuple[Any, Handler]] = {}

    def take(self, handler: Handler, *numbers: int) -> None:
        """Let a function handle some signals."""
        for number in numbers if is_in_main_thread() else ():
            before = signal.signal(number, handler)
            self._taken.setdefault(number, (before, handler))
            _with_taken.add(self)

    @property
    def taken(self) -> list[int]:
        """The signals that are taken over."""
        return list(self._taken)

    def take_unhandled(self, handler: Handler, *numbers: int) -> None:
        """Let a function handle some signals, but only the ones that would end the process."""
        self.take(handler, *(number for number in numbers if signal.getsignal(number) == signal.SIG_DFL))

    def mark_interrupts(self) -> None:
        """Let `is_by_signal` know a `KeyboardInterrupt` of Python's own handlers, which are in no traceback."""
        for number in ENDS:
            if signal.getsignal(number) is signal.default_int_handler:
                self.take(_default_int_handler, number)

    def send(self, number: signal.Signals) -> bool:
        """Let the main thread handle a signal as if it came now, if it is taken over; return whether it is.

        Any thread may do so.
        """
        main, taken = threading.main_thread().ident, self._taken.get(number)
        if main is None or taken is None or signal.getsignal(number) != taken[1]:
            return False
        signal.pthread_kill(main, number)
        return True

    def restore(self) -> None:
        """Give the signals back to their earlier handlers, except signals that other code has taken over."""
        while self._taken and is_in_main_thread():
            number, (before, handler) = self._taken.popitem()
            if signal.getsignal(number) == handler:
                signal.signal(number, signal.SIG_DFL if before is None else before)


def _default_int_handler(number: int, frame: FrameType | None) -> None:
    signal.default_int_handler(number, frame)


def is_by_signal(interrupt: KeyboardInterrupt) -> bool:
    """Whether a handler of a signal raised it, and no other code: then the handler is in its traceback, or in that of
    an exception before it."""
    codes = {code for number in ENDS if (code := _code_of(signal.getsignal(number)))}
    error, seen = cast("BaseException | None", interrupt), set[int]()
    while error is not None and id(error) not in seen:
        if any(frame.f_code in codes for frame, _ in walk_tb(error.__traceback__)):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _code_of(handler: Any) -> CodeType | None:
    function = handler if isinstance(handler, (FunctionType, MethodType)) else type(handler).__call__
    return getattr(function, "__code__", None)


class _Forking(threading.local):
    """Lets a process that the code of a job forks have the handlers that this one would have without a worker: else no
    signal ends it, such as those of ``Process.terminate()`` and of a ``multiprocessing.Pool`` that ends.

    A signal that comes in between has to wait: Python forgets those that a child gets before it is set up.
    """

    mask: set[signal.Signals] | None = None  # of this thread, before it forks

    def begin(self) -> None:
        numbers = {number for handlers in list(_with_taken) for number in handlers.taken}
        if numbers:
            self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # type: ignore[assignment]

    def end(self) -> None:
        if self.mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
            self.mask = None

    def end_in_child(self) -> None:
        for handlers in list(_with_taken):
            handlers.restore()
        self.end()


_forking = _Forking()
os.register_at_fork(before=_forking.begin, after_in_parent=_forking.end, after_in_child=_forking.end_in_child)


def is_in_main_thread() -> bool:
    """Whether this thread is the one that may change handlers."""
    return threading.current_thread() is threading.main_thread()


def has_terminal() -> bool:
    """Whether the process belongs to a terminal, where Ctrl-C may be pressed."""
    return any(map(os.isatty, (0, 1, 2)))
