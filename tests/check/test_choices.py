"""What a repair leaves alone unless it is told what to do: it counts them, offers what can be done, and does it."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from invariants import contents
from looking import check

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker
from limpyd_jobs.check import Report


class Parcel(Job):
    namespace = "choosing"
    queue_name = "q"

    def run(self, queue: Queue) -> None:
        if self._cached_identifier == "bad":
            raise ValueError("on purpose")


class Letter(Job):
    """Of no queue of its own."""

    namespace = "choosing"


def of_kind(report: Report, kind: str) -> Any:
    (found,) = [finding for finding in report.findings if finding.kind == kind]
    return found


@pytest.mark.usefixtures("redis_client")
def test_the_status_of_a_job_in_a_queue_that_is_none_is_told() -> None:
    Parcel.add_job("waits").status.hset("lost")
    assert of_kind(check(pause=0), "no status").problem == "its status is 'lost', which is not a status"


@pytest.mark.usefixtures("redis_client")
def test_a_job_that_was_never_queued_and_has_no_status_is_at_rest() -> None:
    job = Parcel(identifier="made by hand")
    assert check(repair=True, unknown_status="requeue", pause=0).findings == []
    assert job.status.hget() is None


class TestUnknownStatus:
    @pytest.fixture(autouse=True)
    def job(self, redis_client: redis.Redis) -> Job:
        job = Parcel.add_job("bad")
        Parcel.add_job("good")
        Worker("q", max_loops=2, terminate_gracefuly=False).run()
        job.status.hset("lost")
        return job

    def test_is_left_alone_and_told_with_what_can_be_done(self, job: Job, redis_client: redis.Redis) -> None:
        before = contents(redis_client)
        report = check(repair=True, pause=0)
        found = of_kind(report, "unknown status")
        assert (found.subject, found.problem) == (
            job.ident,
            "is in no queue, and its status is 'lost', which is not a status",
        )
        assert (found.repairable, found.repaired) == (False, False)
        assert found.option == "--unknown-status=requeue|delete"
        choices = "--unknown-status=requeue, or --unknown-status=delete"
        assert f"with --repair {choices}" in report.as_table()
        assert f"1 found, 0 repaired, 1 with {choices} only: " in report.as_table()
        assert contents(redis_client) == before

    @pytest.mark.parametrize(("choice", "told"), [("requeue", "put at the end of its list"), ("delete", "deleted")])
    def test_what_would_be_done_is_told(self, redis_client: redis.Redis, choice: str, told: str) -> None:
        before = contents(redis_client)
        report = check(unknown_status=choice, pause=0)
        assert of_kind(report, "unknown status").repair == told
        assert f"with --repair: {told}" in report.as_table()
        assert contents(redis_client) == before

    def test_is_requeued(self, job: Job) -> None:
        assert check(repair=True, unknown_status="requeue", pause=0).left == []
        assert job.status.hget() == STATUSES.WAITING
        assert check(pause=0).findings == []
        Worker("q", max_loops=1, terminate_gracefuly=False).run()
        assert job.status.hget() == STATUSES.ERROR

    def test_is_deleted(self, job: Job) -> None:
        pk = job.pk.get()
        assert check(repair=True, unknown_status="delete", pause=0).left == []
        assert not Parcel.exists(pk=pk)
        assert len(Error.collection()) == 1
        assert check(pause=0).findings == []


class TestUnresolved:
    IDENTS = ("nowhere.Gone:1", "nowhere.Gone:2", "elsewhere.Lost:3")

    @pytest.fixture(autouse=True)
    def key(self, redis_client: redis.Redis) -> str:
        Parcel.add_job("good")
        key = f"jobs:queue:{Queue.get_queue('q').pk.get()}"
        redis_client.lpush(f"{key}:waiting", *self.IDENTS[:2])
        redis_client.zadd(f"{key}:delayed", {self.IDENTS[2]: 1})
        return key

    def test_jobs_are_left_alone_counted_and_told_with_what_can_be_done(
        self, key: str, redis_client: redis.Redis
    ) -> None:
        before = contents(redis_client)
        report = check(repair=True, pause=0)
        found = {finding.subject: finding for finding in report.findings}
        assert found.keys() == {"nowhere.Gone", "elsewhere.Lost"}
        assert found["nowhere.Gone"].problem.startswith(
            "2 jobs of this class stand in queues, but it cannot be imported: "
        )
        assert {finding.option for finding in report.left} == {"--unresolved=quarantine|delete"}
        table, choices = report.as_table(), "--unresolved=quarantine, or --unresolved=delete"
        assert f"2 found, 0 repaired, 2 with {choices} only: " in table
        assert table.count(f"try --pythonpath and --job-modules first; else with --repair {choices}") == 2
        assert "|" not in table
        assert contents(redis_client) == before

    @pytest.mark.parametrize("choice", ["quarantine", "delete"])
    def test_what_would_be_done_is_told(self, redis_client: redis.Redis, choice: str) -> None:
        before = contents(redis_client)
        report = check(unresolved=choice, pause=0)
        assert all(finding.repairable and not finding.option for finding in report.findings)
        assert "2 found, 0 repaired: " in report.as_table()
        assert contents(redis_client) == before

    @pytest.mark.parametrize(("choice", "kept"), [("quarantine", set(IDENTS)), ("delete", set())])
    def test_jobs_are_taken_out_of_the_queues(self, key: str, choice: str, kept: set[str]) -> None:
        assert check(repair=True, unresolved=choice, pause=0).left == []
        queue = Queue.get_queue("q")
        assert queue.waiting.llen() == 1
        assert queue.delayed.zcard() == 0
        assert set(queue.quarantine.lmembers()) == kept
        assert check(pause=0).findings == []

    def test_a_job_that_a_process_runs_is_left_to_them(self, key: str, redis_client: redis.Redis) -> None:
        redis_client.zadd(f"{key}:_running", {"nowhere.Gone:7": 4102444799, "nowhere.Gone:8": 1})
        (left,) = check(repair=True, unresolved="delete", pause=0).left
        assert (left.kind, left.problem[:32]) == ("unknown class runs", "1 jobs of this class are being r")
        assert redis_client.zrange(f"{key}:_running", 0, -1) == ["nowhere.Gone:7"]

    def test_in_no_queue_jobs_are_kept_or_deleted_with_it(self, key: str, redis_client: redis.Redis) -> None:
        redis_client.rename(f"{key}:delayed", "jobs:queue:77:delayed")
        Queue.get_queue("nameless")
        redis_client.rpush("jobs:queue:2:waiting", "nowhere.Gone:9")
        redis_client.hdel("jobs:queue:2:hash", "name")
        redis_client.delete("jobs:queue:name:nameless")
        left = {finding.kind: finding for finding in check(repair=True, unresolved="quarantine", pause=0).left}
        assert left.keys() == {"no queue, but unknown jobs", "no name, but unknown jobs"}
        assert {finding.option for finding in left.values()} == {"--unresolved=delete"}
        assert check(repair=True, unresolved="delete", pause=0).left == []
        assert check(pause=0).findings == []


@pytest.mark.parametrize(
    ("command", "kind"),
    [("hdel jobs:queue:2:hash name", "no name, but live jobs"), ("del jobs:queue:2:hash", "no queue, but live jobs")],
    ids=["name", "record"],
)
def test_jobs_of_a_queue_that_is_not_known_stay_until_it_has_a_name(
    redis_client: redis.Redis, command: str, kind: str
) -> None:
    Queue.get_queue("another")
    jobs = [Letter.add_job("a", queue_name="letters"), Letter.add_job("b", queue_name="letters", delayed_for=3600)]
    Queue.get_queue("a third")
    redis_client.execute_command(*command.split())
    redis_client.sadd("jobs:queue:name:other", "2")  # two names
    for _ in range(2):
        left = {finding.kind for finding in check(repair=True, unresolved="delete", pause=0).left}
        assert kind in left
        assert redis_client.lrange("jobs:queue:2:waiting", 0, -1) == [jobs[0].ident]
    redis_client.hset("jobs:queue:2:hash", "name", "letters")
    assert check(repair=True, pause=0).left == []
    assert check(pause=0).findings == []
    assert Queue.count_jobs("letters") == (1, 1)


@pytest.mark.parametrize("choice", [{"unresolved": "requeue"}, {"unknown_status": "quarantine"}, {"unresolved": ""}])
@pytest.mark.usefixtures("redis_client")
def test_another_word_is_refused(choice: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"must be one of leave, \w+, delete, not"):
        check(pause=0, **choice)
