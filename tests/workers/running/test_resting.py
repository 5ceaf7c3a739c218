"""The code of a job says what it used of a limit, and lets it rest."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import format_datetime
from typing import Any

import pytest
import redis
from limpyd import fields
from running import work

from limpyd_jobs import Job, Limit, LimpydJobsException, current_job, dates
from limpyd_jobs.models.limited import seconds_of
from limpyd_jobs.query import limits_of

pytestmark = pytest.mark.usefixtures("redis_client")

told: list[Any] = []
code: list[Callable[[Any], Any]] = []


class Chat(Job):
    namespace = "chats"
    queue_name = "queue"
    model = fields.InstanceHashField()
    limits = [Limit("model", rate="1/h", weight=5, burst=10)]

    def run(self, queue: Any) -> Any:
        return code[0](self)


class AwaitedChat(Chat):
    async def run(self, queue: Any) -> None:
        await code[0](self)


def use(what: Callable[[Any], Any]) -> None:
    code[:] = [what]


def hours_used(job_class: type[Job]) -> int:
    (found,) = [each for each in limits_of(job_class) if each.value]
    return round((found.free_in or 0) / 3600)


def test_what_was_used_is_settled() -> None:
    use(lambda job: job.settle("model", 30))
    job = Chat.add_job(model="m")
    work(callback=None)
    assert job.status.hget() == "s"
    Chat.add_job(model="m")
    work(callback=None, timeout=0.1, max_duration=1)
    assert hours_used(Chat) == 21


def test_a_coroutine_settles_too() -> None:
    async def settle(job: Any) -> None:
        await job.asettle("model", 2)
        told.append(current_job() == job)

    use(settle)
    job = AwaitedChat.add_job(model="m")
    work(callback=None)
    assert job.status.hget() == "s"
    assert told.pop()


@pytest.mark.parametrize("job_class", [Chat, AwaitedChat])
def test_a_job_that_rests_goes_back_to_its_place_and_no_other_begins(
    job_class: type[Chat], redis_client: redis.Redis
) -> None:
    use(lambda job: job.arest("model", "1000") if job_class is AwaitedChat else job.rest("model", "1000"))
    jobs = [job_class.add_job(model="m") for _ in range(2)]
    work(callback=None, max_loops=2, timeout=0.1, max_duration=1)
    assert [job.hmget("status", "tries") for job in jobs] == [["w", None], ["w", None]]
    (found,) = [each for each in limits_of(job_class) if each.value]
    assert found.rests_for > 900
    assert found.parked + redis_client.llen("jobs:queue:1:waiting") == 2


def test_what_is_wrong_is_an_error_of_the_job() -> None:
    use(lambda job: job.settle("tokens", 1))
    job = Chat.add_job(model="m")
    work(callback=None)
    assert job.status.hget() == "e"
    with pytest.raises(LimpydJobsException, match="does not run here"):
        job.settle("model", 1)
    with pytest.raises(ValueError, match="from 0"):
        job.settle("model", -1)


def test_seconds_may_be_those_of_a_header() -> None:
    in_a_minute = format_datetime(dates.utcnow().replace(microsecond=0), usegmt=False)
    assert seconds_of("120") == 120.0
    assert 0 <= seconds_of(in_a_minute) < 5
    for wrong in ("soon", -1, float("nan"), None):
        with pytest.raises((TypeError, ValueError)):
            seconds_of(wrong)  # type: ignore[arg-type]
