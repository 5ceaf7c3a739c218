"""Steps of a job that are done once."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from limpyd_jobs.exceptions import CursorLost
from limpyd_jobs.models.continuing.cursors import Cursors
from limpyd_jobs.texts import one_line
from limpyd_jobs.threads import in_own_thread

logger = logging.getLogger("limpyd-jobs")


class Step:
    """A step of a job, for a ``with`` block, or an ``async with``: see `Job.step`.

    Attributes
    ----------
    name: str
    """

    def __init__(self, cursors: Cursors, name: str) -> None:
        self.name = name
        self._cursors = cursors
        self._was_done = self._is_asked = False

    @property
    def is_new(self) -> bool:
        """Whether the step is not done yet: False if an earlier run came to its end."""
        self._is_asked = True
        return not self._was_done

    def __enter__(self) -> Self:
        found = self._cursors.begin(self.name)
        if found and found.kind != "done":
            self._cursors.end(self.name)
            raise CursorLost(
                f"The step {self.name!r} was a loop before: put the job back with restart=True, or name it otherwise"
            )
        self._was_done = found is not None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ends(error):
            self._cursors.keep()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ends(error):
            await in_own_thread(self._cursors.keep)

    def _ends(self, error: BaseException | None) -> bool:
        """Note the end of the block; return whether its end is to be kept. The job may have to give way then."""
        self._cursors.end(self.name)
        if error is not None:
            return False
        if not self._was_done:
            self._cursors.finish(self.name)
        elif not self._is_asked:
            logger.warning(f"The step {one_line(self.name)!r} was done before, and ran again: ask step.is_new")
        self._cursors.check()
        return not self._was_done
