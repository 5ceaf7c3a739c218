"""Finding and changing the jobs of all shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.actions import Tally
from limpyd_jobs.search.found import Count, Facets
from limpyd_jobs.search.jobs import JobFilter


class Seen(NamedTuple):
    """What is known of all shards together.

    Attributes
    ----------
    value: any
        What the shards answered: what the method of `JobFilter` returns, of all of them together.
    unseen: dict of int to str
        Why those did not whose Redis cannot be used, by their number. What is in them is not part of the value.
    """

    value: Any
    unseen: Mapping[int, str]


class ShardsFilter:
    """The jobs of all shards that meet some conditions.

    Its methods are those of `limpyd_jobs.query.JobFilter`, with the same arguments. All shards are asked at once. One
    that cannot be used is named in the answer; the others go on. One that has no class with a field that is asked for
    has no such job.
    """

    def __init__(
        self,
        each: Callable[[Callable[[JobsDatabase], Any], tuple[type[Exception], ...]], Seen],
        number: int,
        words: tuple[Any, ...],
        conditions: Mapping[str, Any],
    ) -> None:
        self._each, self._number, self._words, self._conditions = each, number, words, conditions

    def _ask(self, together: Callable[[Iterable[Any]], Any], verb: str, *args: Any, **how: Any) -> Seen:
        def ask(database: JobsDatabase) -> Any:
            return getattr(JobFilter(*self._words, database=database, **self._conditions), verb)(*args, **how)

        found, unseen = self._each(ask, (ValueError,))
        return Seen(together(found.values()), unseen)

    def count(self, **how: Any) -> Seen:
        """Count the jobs: see `JobFilter.count`."""
        return self._ask(Count.sum, "count", **how)

    def facets(self, field: str, most: int = 50, **how: Any) -> Seen:
        """Count the jobs by the values of a field: see `JobFilter.facets`."""
        return self._ask(partial(Facets.sum, most=most), "facets", field, most, **how)

    def jobs(self, most: int = 100) -> Seen:
        """Return the jobs that were added last, the newest first.

        The ident of a job says neither its shard, nor is it the only one: each shard counts its jobs by itself. To get
        an object, ask the class of the shard, ``shards.on(Photo, shards.place_of(job.identifier))``.
        """

        def together(pages: Iterable[Any]) -> list[Any]:
            jobs = (job for page in pages for job in page.found)
            return sorted(jobs, key=lambda job: job.added or "", reverse=True)[:most]

        return self._ask(together, "page", most)

    def requeue_all(self, *args: Any, rate: float | None = None, **how: Any) -> Seen:
        """Put the jobs that are in error back in a queue: see `JobFilter.requeue_all`. A rate is that of all shards."""
        return self._ask(Tally.sum, "requeue_all", *args, rate=rate and rate / self._number, **how)

    def cancel_all(self, **how: Any) -> Seen:
        """Cancel the jobs: see `JobFilter.cancel_all`."""
        return self._ask(Tally.sum, "cancel_all", **how)

    def delete_all(self, **how: Any) -> Seen:
        """Delete the jobs that do not run: see `JobFilter.delete_all`."""
        return self._ask(Tally.sum, "delete_all", **how)

    def move_all(self, *args: Any, **how: Any) -> Seen:
        """Move the jobs to another queue: see `JobFilter.move_all`."""
        return self._ask(Tally.sum, "move_all", *args, **how)

    def delay_all(self, *args: Any, **how: Any) -> Seen:
        """Delay the jobs that wait or are delayed: see `JobFilter.delay_all`."""
        return self._ask(Tally.sum, "delay_all", *args, **how)

    def promote_all(self, **how: Any) -> Seen:
        """Let the delayed jobs wait, to be run now: see `JobFilter.promote_all`."""
        return self._ask(Tally.sum, "promote_all", **how)
