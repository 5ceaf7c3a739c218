"""Why a parked job does not begin: which limit, who holds it, and when it may."""

from __future__ import annotations

from typing import Any

import pytest
from limpyd import fields

from limpyd_jobs import Job, Limit, Worker
from limpyd_jobs.query import explain_job, rest_limit, resume_limit, set_limit

pytestmark = pytest.mark.usefixtures("redis_client")


class Dig(Job):
    namespace = "digging"
    queue_name = "q"
    place_name = fields.InstanceHashField()
    limits = [Limit("place_name", name="place", concurrency=1, rate="1/h", burst=2)]

    def run(self, queue: Any) -> None:
        pass


def reasons(job: Job) -> dict[str, str]:
    return {reason.code: reason.text for reason in explain_job(job.ident).reasons}


def look() -> None:
    """Let a worker look for a job: it parks those that may not begin."""
    Worker("q", max_loops=1, timeout=0.1, max_duration=0.3, logger_level=60).run()


def test_the_limit_is_named_and_who_holds_it_and_when_it_is_free() -> None:
    holder, job, last = (Dig.add_job(place_name="here") for _ in range(3))
    with holder.claim(owner="me"):
        look()
        assert reasons(job)["limit_full"] == f"1 of 1 jobs of place=here run: {holder.ident}, by me."
        assert reasons(last)["parked_before"] == "1 job waits for the same limits before it."
        rest_limit(Dig, "place", "here", 100)
        assert reasons(job)["limit_rests"].startswith("The limit place=here rests for ")
        rest_limit(Dig, "place", "here")
        assert reasons(job)["limit_paused"].endswith(f"limpyd-jobs limits resume {Dig.get_model_repr()} place=here")
        resume_limit(Dig, "place", "here")
        set_limit(Dig, "place", concurrency=0)
        assert reasons(job)["limit_zero"].startswith(
            "The limit place=here is 0: no job of it begins until that is more: limpyd-jobs limits set "
        )
        set_limit(Dig, "place", concurrency=5)
        assert reasons(job)["parked"].startswith("It was parked for a limit that has room now")
    look()
    assert reasons(last)["limit_rate"].startswith("The rate of place=here is used up: the next job may begin in ")


class Turn(Job):
    namespace = "digging"
    queue_name = "q"
    tenant = fields.InstanceHashField()
    limits = [Limit("tenant", fair=True, concurrency=5), Limit(name="one", concurrency=1)]

    def run(self, queue: Any) -> None:
        pass


def test_its_place_in_the_turn_is_said() -> None:
    holder, *jobs = (Turn.add_job(tenant=tenant) for tenant in "xabc")
    with holder.claim(owner="me"):
        look()
        said = [reasons(job).get("parked_turn", "") for job in jobs]
    assert sorted(said) == ["", "1 other key has its turn before it.", "2 other keys have their turns before it."]


class Heavy(Job):
    namespace = "digging"
    queue_name = "heavy"
    kilos = fields.InstanceHashField()
    limits = [Limit(name="crane", rate="100/h", weight="kilos")]


def test_why_a_job_failed_before_it_began_is_said() -> None:
    job = Heavy.add_job(kilos="101")
    Worker("heavy", max_loops=1, timeout=0.1, max_duration=0.3, logger_level=60).run()
    assert "its weight of 101 is above the 100 that" in reasons(job)["error"]
