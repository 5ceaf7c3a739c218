"""leave_quarantine: entries go back to their queue, or are dropped."""

from __future__ import annotations

from typing import Any

import pytest

from limpyd_jobs import Job, Queue, Worker
from limpyd_jobs.query import JobFilter, leave_quarantine, quarantine_entries

pytestmark = pytest.mark.usefixtures("redis_client")


class Letter(Job):
    namespace = "leave-quarantine"
    queue_name = "letters"

    def run(self, queue: Any) -> None:
        raise KeyError("no address")


def test_entries_leave_quarantine() -> None:
    job = Letter.add_job("letter")
    queue = Queue.get_queue("letters")
    queue.waiting.delete()
    queue.quarantine.rpush("no ident", job.ident, "no ident")
    entries = quarantine_entries()
    assert [(each.queue, each.entry) for each in entries] == [
        ("letters", "no ident"),
        ("letters", job.ident),
        ("letters", "no ident"),
    ]
    assert leave_quarantine([entries[1]]) == 1
    assert queue.waiting.lrange(0, -1) == [job.ident]
    assert leave_quarantine([entries[1]]) == 0
    assert leave_quarantine(quarantine_entries("letters"), drop=True) == 2
    assert quarantine_entries() == []
    Worker("letters", max_loops=1, logger_level=60).run()
    assert JobFilter(status="error").count().number == 1
