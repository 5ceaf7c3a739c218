"""A board of postings, which the tests of claims claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from all_scripts import ALL_SCRIPTS

from limpyd_jobs import (
    AlreadyClaimed,
    Claim,
    Error,
    Job,
    Queue,
    Retry,
)

SCRIPTS = {script.sha: script.name for script in ALL_SCRIPTS}


class Posting(Job):
    namespace = "claiming"
    queue_name = "board"

    def run(self, queue: Queue) -> str:
        return "done"


class Stubborn(Posting):
    namespace = "claiming"
    default_retry_policy = Retry(times=1, delay=1000, priority_delta=2)


class Homeless(Job):
    namespace = "claiming"


class Complaint(Error):
    namespace = "claiming"


def board(priority: int = 0) -> Queue:
    return Queue.get_queue("board", priority)


def lapse(priority: int = 0) -> None:
    """Let the leases in the queue lapse."""
    queue = board(priority)
    queue.running.zadd(dict.fromkeys(queue.running.zmembers(), 1))


def take_over(job: Job, lapse: Callable[[], None]) -> Claim:
    """Claim a job for ``other`` whose lease lapses, however often its holder renews it meanwhile."""
    while True:
        lapse()
        try:
            return job.claim("other")
        except AlreadyClaimed:
            continue


def errors() -> list[Any]:
    return list(Error.collection().instances())


def names(sent: Any) -> list[str]:
    """The names of the scripts among some commands."""
    return [SCRIPTS[words[1]] for words in (each.split() for each in sent) if words[0] == "EVALSHA"]
