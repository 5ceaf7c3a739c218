"""From the class paths that are stored with jobs to classes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Generic, TypeVar

from limpyd_jobs.utils import import_class

T = TypeVar("T")


def resolve(path: str, base: type[T]) -> type[T]:
    """Return the class of a path, which must be one of the subclasses of `base`, or `base` itself.

    Raises
    ------
    ValueError
        If it is not the path of a class, or of something else.
    ImportError, AttributeError
        If there is no such module, or no such class in it.
    """
    found: Any = import_class(path)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{path!r} is not a subclass of {base.__name__}")
    return found


class JobClasses(Generic[T]):
    """The job classes met lately by this process; at first, some of those that are imported. A script is told of them,
    as it changes jobs before it is known what class they are of.

    Parameters
    ----------
    base: type
        The class that all of them inherit from.
    limit: int
        How many to remember at the most.
    """

    def __init__(self, base: type[T], limit: int = 16) -> None:
        self.base = base
        self.limit = limit
        self._met: dict[str, type[T]] = {}

    @property
    def known(self) -> Mapping[str, type[T]]:
        """The classes by their path. The mapping is never changed, but replaced, so threads may share it."""
        if not self._met:
            self._met = {path_of(cls): cls for cls in islice(_concrete(self.base), self.limit)}
        return self._met

    def all(self) -> list[type[T]]:
        """Return the classes this process knows of: those that are imported, and those it has met."""
        return list(dict.fromkeys([*_concrete(self.base), *self._met.values()]))

    def meet(self, path: str) -> type[T]:
        """Resolve a path, and remember the class. See `resolve` for the exceptions."""
        cls = self.known.get(path)
        if cls is None:
            cls = self._resolve(path)
            # The path may be an old one of a class that was moved.
            paths = dict.fromkeys((path, path_of(cls)), cls)
            others = [(known, other) for known, other in self.known.items() if known not in paths]
            self._met = {**dict(others[len(paths) - self.limit :]), **paths}
        return cls

    def _resolve(self, path: str) -> type[T]:
        try:
            return resolve(path, self.base)
        except SystemExit as error:
            raise ImportError(f"The module of {path!r} ends the program when it is imported") from error


def path_of(cls: type) -> str:
    """Return the path of a class: its module and its name."""
    return f"{cls.__module__}.{cls.__name__}"


def _concrete(base: type[T]) -> Any:
    """The class and its subclasses, all that are imported, without the abstract ones."""
    if not getattr(base, "abstract", False):
        yield base
    for cls in base.__subclasses__():
        yield from _concrete(cls)
