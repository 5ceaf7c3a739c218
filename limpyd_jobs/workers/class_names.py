"""The names of job classes in messages, of those queues that have jobs of several."""

from __future__ import annotations

from collections import defaultdict


class ClassNames:
    """The paths of the job classes that a worker met, by the name of the queue."""

    def __init__(self) -> None:
        self._met: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, queue_name: str, path: str) -> None:
        """There is a job of a class in a queue."""
        self._met[queue_name].add(path)

    def mark(self, queue_name: str, path: str) -> str:
        """Return what to put at the end of a message on a job: its class in brackets, nothing if there is no other one.

        It is the name of the class, or its whole path if another one has the same name.
        """
        paths = self._met.get(queue_name, ())
        if len(paths) < 2:
            return ""
        name = path.rpartition(".")[2]
        is_clear = sum(other.rpartition(".")[2] == name for other in paths) < 2
        return f" ({name if is_clear else path})"
