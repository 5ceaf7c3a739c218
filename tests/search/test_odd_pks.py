"""Jobs whose pks are not the numbers that they are for all others."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from reading import limpyd_jobs

from limpyd_jobs import Job
from limpyd_jobs.check import check
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.query import JobFilter

PATH = f"{__name__}.Note"


class Note(Job):
    namespace = "odd-pks"
    queue_name = "notes"

    def run(self, queue: Any) -> None:
        """Nothing."""


@pytest.mark.parametrize("pk", ["9" * 5000, "9" * 19, "²", "007"])
def test_a_pk_that_is_not_a_number_is_told(redis_client: redis.Redis, pk: str) -> None:
    Note.add_job("good")
    redis_client.sadd("odd-pks:note:collection", pk)
    redis_client.hset(f"odd-pks:note:{pk}:hash", mapping={"status": "w", "identifier": "strange", "queued": "1"})
    for place in ("waiting", "_quarantine"):
        redis_client.rpush(f"jobs:queue:1:{place}", f"{PATH}:{pk}")
    for place in ("delayed", "_running"):
        redis_client.zadd(f"jobs:queue:1:{place}", {f"{PATH}:{pk}": 1})
    assert "odd pk" in {
        each.kind for each in check(database=BaseJobsModel.database, pause=0).findings if each.subject == pk
    }
    asked = JobFilter(Note, "priority<5")
    assert ([job.identifier for job in asked.page().found], asked.unseen) == (["good"], 1)
    assert (str(asked.count()), asked.unseen) == ("≥ 1", 1)
    assert asked.cancel_all().reasons == {"the pk is not a number": 1}
    for command in ("list", "count", "export"):
        _, out, told = limpyd_jobs("jobs", command, "priority<5")
        assert "strange" not in out
        assert "not looked at: 1 job, because the pk is not a number" in told


@pytest.mark.parametrize("counter", ["1", "999999999999999999"])
def test_a_pk_of_many_digits_is_found(redis_client: redis.Redis, counter: str) -> None:
    Note.add_job("first")
    redis_client.set("odd-pks:note:max_pk", "1234567890123455")
    pk = Note.add_job("late").pk.get()
    redis_client.set("odd-pks:note:max_pk", counter)
    asked = JobFilter(Note, "priority<5")
    assert [job.ident for job in asked.page().found] == [f"{PATH}:{pk}", f"{PATH}:1"]
    assert (asked.count(), asked.unseen) == ((2, True), 0)
    assert [job.identifier for job in JobFilter(Note, f"pk={pk}").page().found] == ["late"]
    assert asked.cancel_all().done == 2
