"""A queue that no worker could serve is not made; one that version 2 made is used, and named by the check."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import redis

from limpyd_jobs import Job, Queue
from limpyd_jobs.check import check
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.query import JobFilter
from limpyd_jobs.scripts import jobs as jobs_script

pytestmark = pytest.mark.usefixtures("redis_client")

NAMES = [" mails", "mails ", "mails\n", "\tmails", "mails\u3000", " "]
WAYS: dict[str, Callable[[str], Any]] = {
    "add_job": lambda name: Job.add_job("a", name),
    "add_job delayed": lambda name: Job.add_job("a", name, delayed_for=60),
    "add_jobs": lambda name: Job.add_jobs(["a", "b"], name),
    "get_queue": lambda name: Queue.get_queue(name),
}


def stored_by_version_2(client: redis.Redis, name: str, priority: int = 0) -> Queue:
    """A queue as version 2 makes it, of any name."""
    queue = Queue(name="mails", priority=priority)
    queue.name.hset(name)
    return queue


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_new_queue_of_such_a_name_is_refused_and_nothing_is_written(
    redis_client: redis.Redis, way: Callable[[str], Any]
) -> None:
    for name in NAMES:
        with pytest.raises(ValueError, match="No worker serves a queue whose name has white space at its ends"):
            way(name)
    assert not redis_client.keys()


def test_a_job_is_not_moved_there() -> None:
    job = Job.add_job("a", "mails")
    with pytest.raises(ValueError, match="No worker serves"):
        job.enqueue_or_delay(" mails")
    with pytest.raises(ValueError, match="No worker serves"):
        JobFilter("queue=mails").move_all(queue_name=" mails")
    assert Queue.get_queue("mails").waiting.lmembers() == [job.ident]


def test_one_that_exists_is_used(redis_client: redis.Redis) -> None:
    queue = stored_by_version_2(redis_client, " mails")
    assert Queue.get_queue(" mails").pk.get() == queue.pk.get()
    Job.add_job("a", " mails")
    Job.add_jobs(["b"], " mails")
    assert queue.waiting.llen() == 2
    with pytest.raises(ValueError, match="No worker serves"):
        Job.add_job("c", " mails", priority=3)


def test_others_cost_no_command_more(commands: Callable[[], AbstractContextManager[Any]]) -> None:
    Job.add_job("a", "mails")
    with commands() as sent:
        Job.add_job("b", "mails")
    assert len(sent) == 1


def test_the_check_names_it_and_the_command_that_moves_its_jobs(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored_by_version_2(redis_client, " mails")
    job = Job.add_job("a", " mails")
    (found,) = check(database=BaseJobsModel.database, pause=0).findings
    assert (found.kind, found.repair) == ("unservable name", "")
    command = shlex.split(found.problem.partition("Try: ")[2])
    assert command == ["limpyd-jobs", "jobs", "move", "queue= mails", "--queue=mails", "--force"]
    monkeypatch.setattr(sys, "argv", [*command, "--yes"])
    with pytest.raises(SystemExit) as end:
        jobs_script.main()
    assert end.value.code == 0, capsys.readouterr()
    assert Queue.get_queue("mails").waiting.lmembers() == [job.ident]


def test_the_check_shows_a_name_that_a_terminal_cannot_show(redis_client: redis.Redis) -> None:
    stored_by_version_2(redis_client, "mails\n")
    (found,) = check(database=BaseJobsModel.database, pause=0).findings
    assert found.problem.endswith(r"Try: limpyd-jobs jobs move $'queue=mails\n' --queue=mails --force")
    assert found.problem.isprintable()
