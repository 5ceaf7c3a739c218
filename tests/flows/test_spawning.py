"""Jobs that add others while they run, and go on once these have ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
from cases import each
from flow_kinds import Page, Replaced, Report, Spawning, Tagged
from running import work

from limpyd_jobs import (
    STATUSES,
    ConfigurationException,
    Flow,
    Job,
    JobFailed,
    LimpydJobsException,
    chain,
    transitions,
)
from limpyd_jobs.exceptions import JobInterrupted
from limpyd_jobs.models.calls import building
from limpyd_jobs.redis.calls import send

pytestmark = pytest.mark.usefixtures("redis_client")


def run(number: int = 1, queues: str = "spawning", **options: Any) -> None:
    work(queues, max_loops=number, callback=None, **options)


def a_spawning_job(**fields: Any) -> Spawning:
    job = Spawning.add_job(**fields)
    run()
    assert job.hmget("status", "tries", "start") == [STATUSES.DELAYED, None, None]
    return job


def one_that_fails_after_it_spawned(**fields: Any) -> Spawning:
    job = Spawning.add_job(**fields)
    claim = job.claim("me")
    with pytest.raises(JobInterrupted):
        job.run(None)
    claim.fail(ValueError("no"))
    return job


def flow_of(job: Job) -> Flow:
    return Flow.find(job.waits.hget().partition("children ")[2].partition("\n")[0])


def tend(client: redis.Redis, flow: Flow) -> None:
    send(transitions.tend_flow(client, flow.id))


class TestSpawning:
    def test_a_job_goes_on_once_the_last_one_has_ended(self) -> None:
        job = a_spawning_job()
        run(2, "pages")
        assert job.status.hget() == STATUSES.DELAYED
        run(1, "pages")
        assert job.status.hget() == STATUSES.WAITING
        run()
        assert job.answer.value() == {"Page": 0, "Page 2": 1, "Page 3": 2}
        assert job.hmget("status", "tries", "_waits") == [STATUSES.SUCCESS, "1", None]

    def test_what_was_spawned_before_is_not_spawned_again(self) -> None:
        job = a_spawning_job()
        for _ in range(2):
            job.enqueue_or_delay()
            run()
            assert job.status.hget() == STATUSES.DELAYED
        assert len(Page.collection()) == 3

    def test_ends_that_come_while_the_job_is_about_to_wait_are_not_missed(self) -> None:
        job = Spawning.add_job()
        with job.claim("me"):
            try:
                job.run(None)
            finally:
                run(3, "pages")
        assert job.status.hget() == STATUSES.WAITING

    def test_a_failure_is_raised_and_once_it_is_mended_the_job_goes_on(self) -> None:
        job = a_spawning_job(failing=1)
        flow = flow_of(job)
        run(3, "pages")
        with job.claim("me") as claim:
            with pytest.raises(JobFailed, match="no paper"):
                job.run(None)
            claim.fail(ValueError("a page failed"))
        Page.get_from_ident(flow.nodes()[0].ident).does.hset("succeed")
        flow.requeue()
        run(1, "pages")
        job.requeue()
        run()
        assert job.answer.value() == {"Page": 0, "Page 2": 1, "Page 3": 2}

    def test_with_run_it_gets_what_the_others_returned(self) -> None:
        job = a_spawning_job(failing=2, on_error="run")
        run(3, "pages")
        run()
        assert job.answer.value() == {"Page 3": 2}
        assert [node.state for node in job.children()] == ["error", "error", "success"]

    def test_with_cancel_the_first_failure_cancels_the_others(self) -> None:
        job = a_spawning_job(failing=1, on_error="cancel")
        flow = flow_of(job)
        run(1, "pages")
        assert [node.state for node in flow.nodes()] == ["error", "canceled", "canceled"]
        assert flow.nodes()[1].reason == "Page failed"
        with job.claim("me") as claim:
            with pytest.raises(JobFailed):
                job.run(None)
            claim.release()

    def test_a_job_that_is_canceled_takes_them_along(self) -> None:
        job = a_spawning_job(pages=120)
        flow, running = flow_of(job), Page.get(1)
        claim = running.claim("me")
        job.cancel()
        states = [node.state for node in flow.nodes()]
        assert states == ["canceled"] * 120
        assert flow.state().canceled == "the job that spawned it was canceled"
        claim.cancel()
        assert flow.state().state == "ended"

    @each("verb", ["cancel", "restart"])
    def test_it_takes_along_what_was_put_back_after_a_failure_had_canceled_the_others(self, verb: str) -> None:
        made = a_spawning_job if verb == "cancel" else one_that_fails_after_it_spawned
        job = made(failing=1, on_error="cancel")
        failed, runs_on, _ = (Page.get_from_ident(node.ident) for node in flow_of(job).nodes())
        claim = runs_on.claim("me")
        failed.claim("me").fail(ValueError("no paper"))
        failed.requeue()
        if verb == "cancel":
            job.cancel()
        else:
            job.requeue(restart=True)
        assert failed.status.hget() == STATUSES.CANCELED
        claim.cancel()

    def test_a_job_that_begins_anew_spawns_anew(self) -> None:
        job = a_spawning_job()
        run(3, "pages")
        job.claim("me").fail(ValueError("no"))
        job.requeue(restart=True)
        run()
        assert (job.status.hget(), len(Page.collection())) == (STATUSES.DELAYED, 6)

    @each("many", [False, True])
    def test_what_is_left_of_what_it_spawned_before_is_canceled_then(self, many: bool) -> None:
        job = one_that_fails_after_it_spawned(pages=120)
        before = flow_of(job)
        running = Page.get_from_ident(before.nodes()[0].ident).claim("me")
        if many:
            assert Spawning.collection(status=STATUSES.ERROR).requeue_all(restart=True).done == 1
        else:
            job.requeue(restart=True)
        assert {node.state for node in before.nodes()} == {"canceled"}
        assert before.state()[:2] == ("running", 1)
        run()
        assert flow_of(job).id != before.id
        running.cancel()
        assert before.state() == ("ended", 0, 120, 120, "the job that spawned it begins anew")
        assert job.status.hget() == STATUSES.DELAYED  # for the new ones
        assert flow_of(job).state()[:2] == ("running", 120)

    def test_another_requeue_lets_it_go_on_with_them(self) -> None:
        job = one_that_fails_after_it_spawned()
        flow = flow_of(job)
        job.requeue()
        run()
        assert (flow_of(job).id, flow.state()[:2]) == (flow.id, ("running", 3))

    def test_a_node_of_a_flow_may_spawn(self) -> None:
        flow = chain(Spawning.prepare(), Report.prepare())
        run()
        assert [node.state for node in flow.nodes()] == ["waiting for its children", "waiting for others"]
        run(3, "pages")
        run()
        run(1, "reports")
        assert flow.result(0) == {"Spawning": 3}

    def test_canceling_its_flow_cancels_them(self) -> None:
        flow = chain(Spawning.prepare(), Report.prepare())
        run()
        flow.cancel()
        assert {job.status.hget() for job in Page.collection().instances()} == {STATUSES.CANCELED}

    def test_it_may_spawn_several_times_by_other_names(self) -> None:
        job = Spawning.add_job()
        with job.claim("me") as claim:
            job.spawn(Page.prepare(number=1), name="one")
            job.spawn(Page.prepare(number=2), Page.prepare(number=3), name="other")
            run(3, "pages")
            assert job.children_results("one") == {"Page": 1}
            assert job.children_results("other") == {"Page": 2, "Page 2": 3}
            claim.succeed()

    def test_a_second_spawn_by_the_name_of_one_of_the_same_run_is_an_error(self) -> None:
        job = Spawning.add_job()
        for run in (1, 2):
            with job.claim("me") as claim:
                job.spawn(Page.prepare(number=1))
                with pytest.raises(RuntimeError, match=r"^'spawn' was spawned before .*, or give each its own name$"):
                    job.spawn(Page.prepare(number=2))
                claim.release()
            assert len(Page.collection()) == 1, run

    def test_a_spawn_that_was_refused_may_be_tried_again_by_its_name(self) -> None:
        queued = Page.add_job("one")
        job = Spawning.add_job()
        with job.claim("me") as claim:
            with pytest.raises(LimpydJobsException):
                job.spawn(Page.prepare("one"))
            queued.delete()
            job.spawn(Page.prepare("one"))
            claim.release()
        assert len(Page.collection()) == 1

    def test_coroutines_spawn_too(self) -> None:
        async def use(job: Job) -> Any:
            await job.aspawn(Page.prepare(number=7))
            with pytest.raises(JobInterrupted, match="waits for the jobs that it spawned"):
                await job.achildren_results()
            run(1, "pages")
            return await job.achildren_results()

        job = Spawning.add_job()
        with job.claim("me") as claim:
            assert asyncio.run(use(job)) == {"Page": 7}
            claim.succeed()

    def test_many_are_made_in_steps_of_which_the_last_one_lets_them_begin(self) -> None:
        job = a_spawning_job(pages=150)
        run(150, "pages", prefetch=50)
        run()
        assert job.answer.value() == {"Page": 0, **{f"Page {number + 1}": number for number in range(1, 150)}}

    def test_what_cannot_be_spawned_is_refused_and_nothing_is_added(self) -> None:
        job = Spawning.add_job()
        with pytest.raises(LimpydJobsException, match="does not run here"):
            job.spawn(Page.prepare())
        with job.claim("me") as claim:
            with pytest.raises(ValueError, match="nothing to spawn"):
                job.spawn()
            with pytest.raises(TypeError, match="prepared call"):
                job.spawn(Page)
            with pytest.raises(ConfigurationException):
                job.spawn(Page.prepare(), Tagged.prepare(tags={"a"}))
            with pytest.raises(LimpydJobsException, match="has spawned nothing by the name 'spawn'"):
                job.children_results()
            claim.release()
        assert len(Page.collection()) == 0


class TestInterrupted:
    """Whoever spawns dies in between, or loses its claim."""

    def half_made(self, job: Spawning, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make a first step, and die."""
        with monkeypatch.context() as patch:
            patch.setattr(building, "_calls", lambda plan, calls=building._calls: [*calls(plan)][:1])
            calls = [Page.prepare(f"page {number}") for number in range(120)]
            job.spawn(*calls)

    def test_one_that_died_between_two_steps_spawns_all_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        job = Spawning.add_job()
        with job.claim("me") as claim:
            self.half_made(job, monkeypatch)
            claim.release()
        with job.claim("me") as claim:
            job.spawn(*(Page.prepare(f"page {number}") for number in range(119)))
            claim.release()
        assert len(Page.collection(status=STATUSES.WAITING)) == len(Page.collection()) == 119

    def test_one_that_a_worker_dropped_meanwhile_is_made_anew(
        self, monkeypatch: pytest.MonkeyPatch, redis_client: redis.Redis
    ) -> None:
        job = Spawning.add_job()
        with job.claim("me") as claim:
            self.half_made(job, monkeypatch)
            (flow,) = redis_client.zrange("limpyd-jobs:flows:building", 0, -1)
            while send(transitions.drop_flow(redis_client, flow)):
                pass
            assert len(Page.collection()) == 0
            claim.release()
        with job.claim("me") as claim:
            job.spawn(Page.prepare("page 1"))
            claim.release()
        assert len(Page.collection()) == 1

    def test_who_lost_the_claim_adds_nothing(self) -> None:
        job = Spawning.add_job()
        with job.claim("me") as claim:
            vars(job)["_held_token"] = "lapsed@me"
            with pytest.raises(LimpydJobsException, match="lost its claim"):
                job.spawn(Page.prepare())
            claim.release()
        assert len(Page.collection()) == 0


class TestKeys:
    def test_they_are_kept_until_the_job_has_ended(self, redis_client: redis.Redis) -> None:
        job = a_spawning_job()
        flow = flow_of(job)
        run(3, "pages")
        tend(redis_client, flow)
        assert redis_client.ttl(f"limpyd-jobs:flow:{flow.id}:results") == -1
        run()
        tend(redis_client, flow)
        assert 0 < redis_client.ttl(f"limpyd-jobs:flow:{flow.id}:results") <= 86400
        assert redis_client.zscore("limpyd-jobs:flows:live", flow.id) is None

    def test_a_job_that_its_last_child_could_not_place_is_placed_by_a_worker(self, redis_client: redis.Redis) -> None:
        job = a_spawning_job()
        flow, key = flow_of(job), f"{job.queue_key.hget()}:waiting"
        redis_client.set(key, "text")
        run(3, "pages")
        redis_client.delete(key)
        assert (job.status.hget(), flow.state().state) == (STATUSES.DELAYED, "ended")
        tend(redis_client, flow)
        assert job.status.hget() == STATUSES.WAITING

    def test_children_of_a_job_that_was_canceled_otherwise_are_canceled_by_a_worker(
        self, redis_client: redis.Redis
    ) -> None:
        job = a_spawning_job()
        flow = flow_of(job)
        job.status.hset(STATUSES.CANCELED)
        tend(redis_client, flow)
        assert flow.state().canceled
        job.delete()

    def test_what_other_programs_write_does_no_harm(self, redis_client: redis.Redis) -> None:
        for text in ("[1]", "garbage", '{"spawn":5}', '{"spawn":"making zz"}'):
            job = Spawning.add_job()
            job.spawned.hset(text)
            assert job.children() == []
            run()
            assert job.status.hget() == STATUSES.DELAYED
            job.cancel()


def test_what_a_job_spawned_is_canceled_once_a_newer_one_takes_its_place() -> None:
    job = Replaced.add_job()
    with job.claim("me") as claim:
        job.spawn(Page.prepare())
        Replaced.add_job()
        Report.add_job()
        run(1, "spawning,reports")  # the report, as the newer one may not begin yet
        claim.cancel()
    [page] = Page.collection().instances()
    assert page.status.hget() == STATUSES.CANCELED


def test_it_is_explained() -> None:
    job = a_spawning_job()
    (reason,) = job.explain().reasons[:1]
    assert reason.code == "waits_for_children"
    assert reason.command == f"limpyd-jobs flows show {flow_of(job).id}"


class TestFlows:
    def a_flow(self, job: Spawning, **options: Any) -> Flow:
        flow = Flow("night", **options)
        pages = [
            flow.add(Page.prepare(number=number, does="fail" if number == 1 else "succeed")) for number in range(3)
        ]
        flow.add(Report.prepare(), after=pages, on_error="run")
        job.spawn(flow, on_error="run")
        return flow

    def test_a_flow_is_spawned_once_and_goes_on_after_its_spawner(self) -> None:
        job = Spawning.add_job()
        for _ in range(2):
            claim = job.claim("me")
            self.a_flow(job)
            claim.release()
        job.claim("me").succeed()
        run(4, "pages,reports", logger_level=60)
        assert Flow.find("night").result(0) == {"Page": 0, "Page 3": 2}
        assert len(Page.collection()) == 3

    def test_its_results_come_once_it_has_ended_also_if_it_is_held(self) -> None:
        other, job = chain(Page.prepare(number=7), one_at_a_time="night"), Spawning.add_job()

        def wait() -> dict[str, Any]:
            with job.claim("me"):
                self.a_flow(job, one_at_a_time="night")
                return job.children_results()
            return {}

        assert wait() == {}
        assert (job.status.hget(), Flow.find("night").state().state) == (STATUSES.DELAYED, "held")
        run(5, "pages,reports", logger_level=60)
        assert other.result(0) == 7
        assert job.status.hget() == STATUSES.WAITING
        assert wait() == {"Page": 0, "Page 3": 2, "Report": {"Page": 0, "Page 3": 2}}

    def test_one_that_is_held_is_canceled_with_its_spawner(self) -> None:
        chain(Page.prepare(), one_at_a_time="night")
        job = Spawning.add_job()
        with job.claim("me"):
            self.a_flow(job, one_at_a_time="night")
            job.children_results()
        job.cancel()
        assert Flow.find("night").state()[:2] == ("ended", 0)

    def test_a_job_cannot_wait_for_one_that_is_held_until_its_own_flow_has_ended(self) -> None:
        outer = chain(Spawning.prepare(), one_at_a_time="night")
        job = outer._nodes[0].job
        with job.claim("me"):
            job.spawn(Spawning.prepare(), name="other")
            (child,) = Spawning.collection().filter(status=STATUSES.WAITING).instances()
            with child.claim("me"):
                for waiting, number in ((job, 1), (child, 2)):
                    inner = Flow(f"inner {number}", one_at_a_time="night")
                    inner.add(Page.prepare())
                    waiting.spawn(inner)
                    with pytest.raises(LimpydJobsException, match="held by one_at_a_time"):
                        waiting.children_results()
        assert (outer.state().state, Flow.find("inner 1").state().state) == ("ended", "running")

    def test_an_empty_one_is_refused(self) -> None:
        job = Spawning.add_job()
        with job.claim("me"), pytest.raises(LimpydJobsException, match="has no jobs"):
            job.spawn(Flow())
