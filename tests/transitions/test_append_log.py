"""append_log: a line is added to the log of a job."""

from __future__ import annotations

import pytest
import redis

from limpyd_jobs import Job

pytestmark = pytest.mark.usefixtures("redis_client")


class Pages(Job):
    namespace = "append-log"
    queue_name = "pages"


def test_the_log_has_the_last_lines_with_their_dates() -> None:
    job = Pages.add_job("all")
    for number in range(130):
        job.log(f"line {number}\n\x1b[31m")
    lines = job.read_log()
    assert len(lines) == 100
    assert lines[0].endswith(" line 30\\n\\x1b[31m")
    assert lines[0][:4].isdecimal()


def test_a_long_line_is_cut() -> None:
    job = Pages.add_job("all")
    job.log("x" * 5000)
    assert len(job.read_log()[0]) < 1100


def test_a_deleted_job_gets_none(redis_client: redis.Redis) -> None:
    job = Pages.add_job("all")
    other = Pages.get(job.pk.get())
    job.delete()
    other.log("line")
    assert redis_client.keys("append-log:pages:*:_log") == []
