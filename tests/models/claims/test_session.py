"""Claims that last as long as a process, or what it calls a session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from cases import each
from invariants import violations
from postings import take_over
from running import work
from servers import RedisServer, wait_until

from limpyd_jobs import STATUSES, AlreadyClaimed, Error, Job, JobGone, LimpydJobsException, Presence, Queue, Session
from limpyd_jobs.redis.database import JobsDatabase

pytestmark = pytest.mark.usefixtures("redis_client", "consistent")


class Parcel(Job):
    namespace = "sessions"
    queue_name = "parcels"


@pytest.fixture
def consistent(redis_client: redis.Redis) -> Iterator[None]:
    yield
    assert violations(redis_client, Parcel, Queue, Error) == []


def status(job: Parcel) -> Any:
    return job.status.hget()


def lease_end(job: Parcel) -> float:
    return float(Queue.get_queue("parcels").running.zscore(job.ident) or 0)


def lapse() -> None:
    running = Queue.get_queue("parcels").running
    running.zadd(dict.fromkeys(running.zmembers(), 1))


class TestAClaim:
    def test_of_a_job_that_was_deleted_is_not_held(self) -> None:
        with Session[Parcel]() as session:
            job = Parcel.add_job("a")
            session.claim(job)
            job.delete()
            session.let_lapse(job)
            assert session.held(job) is None
            with pytest.raises(JobGone):
                session.claim(job)
            none: Any = "a"
            with pytest.raises(TypeError, match="Only a job can be claimed, not 'a'"):
                session.claim(none)

    def test_is_renewed_as_long_as_the_session_is_open(self) -> None:
        job = Parcel.add_job("a")
        with Session[Parcel](lease=0.2) as session:
            claim = session.claim(job, "ann")
            first = lease_end(job)
            wait_until(lambda: lease_end(job) > first)
            wait_until(lambda: session.held(job) is claim)  # at once, unless this process was stopped for long
            wait_until(lambda: job.claim_owner() == "ann")

    def test_that_was_renewed_for_less_is_renewed_for_the_lease_of_the_session(self) -> None:
        job = Parcel.add_job("a")
        with Session[Parcel](lease=600) as session:
            claim = session.claim(job)
            claim.renew(5)
            short = lease_end(job)
            session._beat()
            assert lease_end(job) > short + 500
            assert claim.lease == 600

    def test_that_was_renewed_for_longer_is_left_alone_meanwhile(self) -> None:
        job = Parcel.add_job("a")
        with Session[Parcel](lease=10) as session:
            session.claim(job).renew(600)
            long = lease_end(job)
            session._beat()
            assert lease_end(job) == long

    def test_is_renewed_with_all_others_in_one_round_trip(self, commands: Any, jobs_database: JobsDatabase) -> None:
        other = Parcel.bound_to(jobs_database, "others")  # its jobs have the same idents
        with Session[Parcel](lease=600) as session:
            claims = [session.claim(job_class.add_job(name)) for job_class in (Parcel, other) for name in "abc"]
            for claim in claims:
                claim.renew(5)
            claims[1].succeed()
            take_over(Parcel.get(claims[2].job.pk.get()), lapse).release()
            with commands() as sent:
                session._beat()
            assert len(sent) == 2  # one for each class
            assert [claim.lease for claim in claims] == [600, 5, 5, 600, 600, 600]
            assert (claims[2].is_lost, session.held(claims[2].job)) == (True, None)
            assert lease_end(claims[0].job) > 500

    def test_is_released_so_that_the_oldest_is_the_first(self) -> None:
        jobs = [Parcel.add_job(str(number)) for number in range(12)]
        with Session[Parcel]() as session:
            for job in jobs[3:] + jobs[:3]:
                session.claim(job)
        assert Queue.get_queue("parcels").waiting.lmembers() == [job.ident for job in jobs]

    def test_is_released_at_the_end(self) -> None:
        jobs = [Parcel.add_job(name) for name in "abc"]
        with Session[Parcel]() as session:
            claims = [session.claim(job) for job in jobs]
            claims[1].succeed()
        assert [status(job) for job in jobs] == ["w", "s", "w"]
        assert jobs[0].tries.hget() is None
        assert session.held(jobs[0]) is None

    def test_is_renewed_no_more_once_it_may_lapse(self) -> None:
        with Session[Parcel](lease=0.2) as session:
            let, kept = Parcel.add_job("a"), Parcel.add_job("b")
            claim = session.claim(let)
            session.claim(kept)
            session.let_lapse(let)
            wait_until(lambda: session.held(let) is None)
            assert claim.is_lost
            wait_until(lambda: session.held(kept))
            session.let_lapse(Parcel.add_job("c"))  # which is not claimed

    def test_with_a_lease_of_its_own_is_neither_renewed_nor_released(self) -> None:
        job, other = Parcel.add_job("a"), Parcel.add_job("b")
        with Session[Parcel](lease=0.1) as session:
            claim, renewed = session.claim(job, lease=600), session.claim(other)
            end, first = lease_end(job), lease_end(other)
            wait_until(lambda: lease_end(other) > first)
            assert lease_end(job) == end
            assert session.held(job) is claim
            assert renewed.lease == 0.1
        assert (status(job), status(other)) == ("r", "w")
        claim.succeed()

    def test_that_was_ended_is_held_no_more(self) -> None:
        job = Parcel.add_job("a")
        with Session[Parcel](lease=0.1) as session:
            session.claim(job).succeed()
            assert session.held(job) is None
            wait_until(lambda: not session._claims)  # nor kept in memory

    def test_that_lapsed_is_forgotten(self) -> None:
        with Session[Parcel](lease=0.2) as session:
            session.claim(Parcel.add_job("a"), lease=0.1)
            kept = session.claim(Parcel.add_job("b"), lease=500)
            wait_until(lambda: [*session._claims.values()] == [kept])
            lapse()
            work("parcels", max_loops=2)

    def test_that_another_process_took_is_held_no_more(self) -> None:
        job = Parcel.add_job("a")
        with Session[Parcel](lease=0.2) as session:
            session.claim(job)
            other = take_over(Parcel.get(job.pk.get()), lapse)
            wait_until(lambda: session.held(job) is None)
        other.succeed()
        assert status(job) == STATUSES.SUCCESS

    def test_goes_on_once_redis_answers_again(
        self, jobs_database: JobsDatabase, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        job = Parcel.add_job("a")
        with Session[Parcel](lease=0.2) as session:
            claim = session.claim(job)
            jobs_database.connect(unix_socket_path="/no/such/socket")
            wait_until(lambda: session.held(job) is None and "is not renewed yet" in caplog.text)
            jobs_database.connect(unix_socket_path=redis_server.socket)
            wait_until(lambda: session.held(job) is claim)
        assert status(job) == STATUSES.WAITING

    def test_is_refused_as_any(self) -> None:
        job = Parcel.add_job("a")
        with Session[Parcel]() as one, Session[Parcel]() as another:
            one.claim(job, "ann")
            with pytest.raises(AlreadyClaimed, match="ann"):
                another.claim(Parcel.get(job.pk.get()), "bob")
            assert another.held(job) is None


class TestTheSession:
    def test_may_be_opened_and_closed_again(self) -> None:
        job, session = Parcel.add_job("a"), Session[Parcel]()
        for _ in range(2):
            session.open()
            session.open()
            session.claim(job)
            session.close()
            session.close()
            assert status(job) == STATUSES.WAITING

    def test_that_is_not_open_claims_nothing(self) -> None:
        job = Parcel.add_job("a")
        with pytest.raises(LimpydJobsException, match=r"call open\(\)"):
            Session[Parcel]().claim(job)
        with pytest.raises(LimpydJobsException, match=r"call open\(\)"):
            Session[Parcel]().register(Presence, "courier")
        assert status(job) == STATUSES.WAITING
        assert Presence.alive() == []

    def test_that_is_closed_by_another_thread_keeps_no_claim(self, monkeypatch: pytest.MonkeyPatch) -> None:
        session, job, claim_job = Session[Parcel](), Parcel.add_job("a"), Parcel.claim

        def claim_late(job: Parcel, *args: Any, **options: Any) -> Any:
            claim = claim_job(job, *args, **options)
            session.close()
            return claim

        monkeypatch.setattr(Parcel, "claim", claim_late)
        session.open()
        with pytest.raises(LimpydJobsException, match="was closed"):
            session.claim(job)
        assert status(job) == STATUSES.WAITING
        assert session.held(job) is None

    def test_that_is_closed_by_another_thread_keeps_no_presence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        session, register = Session[Parcel](), Presence.register

        def register_late(*args: Any, **details: Any) -> Any:
            presence = register(*args, **details)
            session.close()
            return presence

        monkeypatch.setattr(Presence, "register", register_late)
        session.open()
        with pytest.raises(LimpydJobsException, match="was closed"):
            session.register(Presence, "courier")
        assert Presence.alive() == []

    def test_releases_all_others_if_one_is_lost_while_it_is_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        jobs, session = [Parcel.add_job(name) for name in "abc"], Session[Parcel]()
        session.open()
        claims = [session.claim(job) for job in jobs]
        releases = [claim.release for claim in claims]

        def release(number: int) -> None:
            releases[number]()
            session._beat()  # one that is under way

        for number, claim in enumerate(claims):
            monkeypatch.setattr(claim, "release", lambda number=number: release(number))
        jobs[1].delete()
        session.close()
        session._beat()
        assert [status(job) for job in (jobs[0], jobs[2])] == ["w", "w"]

    @each("lease", [0, -1, float("nan"), True, "30", None])
    def test_of_no_time_is_refused(self, lease: Any) -> None:
        with pytest.raises(ValueError, match="lease"):
            Session(lease)

    def test_keeps_the_presences_too(self) -> None:
        with Session[Parcel]() as session:
            session.register(Presence, "courier", "ann", van=7)
            assert [(alive.name, alive.details) for alive in Presence.alive("courier")] == [("ann", {"van": 7})]
        assert Presence.alive("courier") == []

    def test_is_not_that_of_a_forked_process(self) -> None:
        job, other = Parcel.add_job("a"), Parcel.add_job("b")
        with Session[Parcel](lease=0.2) as session:
            claim = session.claim(job, "parent")
            session.register(Presence, "courier", "parent")
            pid = os.fork()
            if pid == 0:
                ok = session.held(job) is None and session.is_open
                session.claim(other, "child")
                first = lease_end(other)
                wait_until(lambda: lease_end(other) > first)
                session.close()
                os._exit(0 if ok else 1)
            assert os.waitpid(pid, 0)[1] == 0
            assert (status(job), status(other)) == ("r", "w")
            assert session.held(job) is claim
            assert [alive.name for alive in Presence.alive("courier")] == ["parent"]
