"""A process that puts jobs that go on where they were back in their queue: some after a success, all after an error.

It asks the servers themselves, and nothing is done to it, so it knows what became of what it did. On SIGTERM it leaves
successes alone.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from time import monotonic
from typing import Any

from chaos_jobs import GO_ON
from chaos_marks import marks, name_of
from redis.exceptions import RedisError

from limpyd_jobs import LimpydJobsException
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.statuses import STATUSES

PAUSE = 0.2  # seconds

# How many of the successes that it sees are to run again, and how often each job does so at most.
SHARE, MOST = 0.5, 4

_leaves_successes = False


class Requeuer:
    def __init__(self, urls: list[str]) -> None:
        databases = [JobsDatabase(url=url) for url in urls]
        self._classes = [job_class.bound_to(database) for database in databases for job_class in GO_ON]
        self._seen: Counter[str] = Counter()  # the successes of each job
        self._is_unsure: set[str] = set()

    def run(self) -> None:
        while True:
            for job_class in self._classes:
                try:
                    self._look(job_class)
                except RedisError:  # it was killed, and comes back
                    time.sleep(PAUSE)
            time.sleep(PAUSE)

    def _look(self, job_class: Any) -> None:
        for pk in list(job_class.collection(status=STATUSES.ERROR)):
            self._put_back(job_class(pk), is_success=False)
        for pk in [] if _leaves_successes else list(job_class.collection(status=STATUSES.SUCCESS)):
            name = name_of(job := job_class(pk))
            if self._seen[name] < MOST and random.random() < SHARE:
                self._seen[name] += 1
                self._put_back(job, is_success=True)

    def _put_back(self, job: Any, *, is_success: bool) -> None:
        name, at = name_of(job), monotonic()
        # A job that maybe began anew may not go on next time: then nobody could tell what its runs have to do.
        restart = is_success or name in self._is_unsure or random.random() < 0.5
        try:
            if is_success:
                job.enqueue_or_delay()
            else:
                job.requeue(restart=restart)
        except LimpydJobsException:  # another job of its identifier is queued, or its worker put it back
            self._seen[name] += MOST
        except RedisError:
            self._is_unsure.add(name)
            marks().write("requeue", ident=name, at=at, success=is_success, restart=restart, sure=False)
        else:
            self._is_unsure.discard(name)
            marks().write("requeue", ident=name, at=at, success=is_success, restart=restart, sure=True)


def _leave_successes(*_: object) -> None:
    global _leaves_successes
    _leaves_successes = True


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave_successes)
    Requeuer(sys.argv[1:]).run()
