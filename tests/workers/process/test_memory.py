"""A worker whose process has too much memory in use ends, and another one goes on."""

from __future__ import annotations

from typing import Any

import pytest
from cases import each
from running import Collector, messages, work, worker_of

from limpyd_jobs import ConfigurationException, Job, Queue, Worker
from limpyd_jobs.texts import read_size

pytestmark = pytest.mark.usefixtures("redis_client")

TOO_LITTLE = 1  # byte
ENOUGH = "1000GB"


class Task(Job):
    namespace = "memory"
    queue_name = "queue"


@pytest.mark.parametrize("prefetch", [1, 3])
def test_a_worker_with_too_much_memory_in_use_finishes_its_job_and_ends(
    prefetch: int, log: pytest.LogCaptureFixture, collector: Collector
) -> None:
    Task.add_jobs(["a", "b", "c"])
    worker = work(callback=collector, max_memory=TOO_LITTLE, max_loops=10, prefetch=prefetch)
    assert collector.identifiers == ["a"]
    assert Queue.count_waiting_jobs("queue") == 2
    assert not worker._run_state.is_done  # so the parent of a pool starts another one
    (line,) = (line for line in messages(log) if "memory" in line)
    assert line.startswith("Run terminated, with 1 loops")
    assert "of memory in use, more than max_memory=1 bytes" in line


def test_others_go_on(collector: Collector) -> None:
    Task.add_jobs(["a", "b"])
    work(callback=collector, max_memory=ENOUGH, max_loops=2)
    assert collector.identifiers == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("512MB", 512_000_000), ("512Mi", 2**29), ("1.5 GiB", 3 * 2**29), ("10k", 10_000), ("1gb", 10**9)],
)
def test_a_size_may_be_written_as_people_do(text: str, size: int) -> None:
    assert read_size(text) == Worker("queue", max_memory=text)._settings.max_memory == size


@each("value", ["", "0", "-1MB", "much", "1e9", 0, -1, 1.5, True, "9" * 30 + "MB"])
def test_another_size_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationException, match="max_memory must be a number of bytes, or a text such as '512MB'"):
        worker_of(max_memory=value)
