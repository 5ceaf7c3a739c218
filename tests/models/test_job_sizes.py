"""A class may refuse jobs that are too large, and large ones are named."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import redis
from limpyd import fields

from limpyd_jobs import Argument, Job
from limpyd_jobs.check import check
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.records import sizes
from limpyd_jobs.scripts import jobs as jobs_script

pytestmark = pytest.mark.usefixtures("redis_client")


class Report(Job):
    namespace = "sizes"
    queue_name = "q"
    max_job_bytes = 100
    text = fields.InstanceHashField()
    tags = fields.ListField()
    details = Argument(json, default=None)


class Odd(Job):
    """It has something of its own that is named as ours."""

    namespace = "sizes"
    queue_name = "q"
    max_job_bytes = "theirs"  # type: ignore[assignment]
    text = fields.InstanceHashField()


class OwnField(Job):
    namespace = "sizes"
    queue_name = "q"
    max_job_bytes = fields.InstanceHashField()  # type: ignore[assignment]


# "identifier", "a" and "text" take 15 bytes.
FITS = "x" * 85


def test_names_and_values_of_all_fields_count() -> None:
    assert Report.add_job("a", text=FITS).text.hget() == FITS
    with pytest.raises(ValueError, match=r"A Report has at most 100 bytes \(max_job_bytes\), not 101: its 'text' has"):
        Report.add_job("a", text=FITS + "x")


@pytest.mark.parametrize(
    "given",
    [
        {"identifier": "a" * 100},
        {"text": "é" * 50},
        {"tags": ["x" * 30] * 3},
        {"details": {"a": ["x" * 90]}},
    ],
)
def test_a_larger_job_is_refused_and_nothing_is_written(redis_client: redis.Redis, given: dict[str, Any]) -> None:
    job = {"identifier": "a", **given}
    for add in (lambda: Report.add_job(**job), lambda: Report.add_jobs([job])):
        with pytest.raises(ValueError, match="max_job_bytes"):
            add()
    assert redis_client.keys("sizes:*") == []


def test_what_an_application_names_so_is_its_own() -> None:
    assert Odd.add_job("a", text="x" * 1000).max_job_bytes == "theirs"
    assert OwnField.add_job("a", max_job_bytes="x" * 1000).max_job_bytes.hget() == "x" * 1000


def test_it_costs_no_command(commands: Callable[[], AbstractContextManager[Any]]) -> None:
    Report.add_job("a")
    with commands() as sent:
        Report.add_job("b")
    assert len(sent) == 1


def test_the_check_and_info_warn_of_large_ones_and_say_how_far_that_is_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sizes, "SAMPLE", 3)
    large = [Odd.add_job(f"large {number}", text="x" * 2_000_000) for number in range(5)]
    (warning,) = check(database=BaseJobsModel.database, pause=0).warnings
    assert warning.startswith(
        "3 jobs of test_job_sizes.Odd take more than 1.0 MB each (3 of 5 jobs were looked at), the largest one 2."
    )
    assert any(job.ident in warning for job in large)
    for argv, told in (([], "warning: 3 jobs of test_job_sizes.Odd"), (["--json"], '"warnings": [')):
        monkeypatch.setattr(sys, "argv", ["limpyd-jobs", "info", *argv])
        with pytest.raises(SystemExit) as end:
            jobs_script.main()
        assert (end.value.code, told in capsys.readouterr().out) == (0, True)
