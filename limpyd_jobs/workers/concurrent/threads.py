"""Threads that do not hold up the end of the process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any


class DaemonThreads(ThreadPoolExecutor):
    """Runs functions in threads, at most so many at once; each thread is started when it is first needed.

    Python waits for the threads of other executors before a process ends, even for those that never end. An event loop
    takes only an executor of that type.
    """

    def __init__(self, most: int, name: str) -> None:
        super().__init__(most)
        self._most, self._name = most, name
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._lock, self._started, self._unfinished = Lock(), 0, 0

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            self._unfinished += 1
            if self._started < min(self._unfinished, self._most):
                self._started += 1
                name = f"{self._name}-{self._started}"
                Thread(target=self._run, name=name, daemon=True).start()
        self._tasks.put((future, lambda: function(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """Let the threads end once they have nothing to do. It never waits."""
        for _ in range(self._started):
            self._tasks.put(None)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, function = task
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)
            with self._lock:
                self._unfinished -= 1
            del task, future, function
