"""What people do with flows: making them, reading what became of them, and steering their jobs by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
from cases import each
from flow_kinds import Page, Placed, Report, Tagged, Translated, add, total
from running import work
from servers import RedisServer

from limpyd_jobs import (
    STATUSES,
    ConfigurationException,
    Error,
    Flow,
    JobCanceled,
    JobFailed,
    JobGone,
    LimpydJobsException,
    Queue,
    ResultTimeout,
    chain,
)
from limpyd_jobs.classes.binding import bound
from limpyd_jobs.records.flows import numbers_in
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.workers.maintenance.tasks import Pruner

pytestmark = pytest.mark.usefixtures("redis_client")


def run(number: int, **options: Any) -> None:
    work("pages,reports", max_loops=number, callback=None, **options)


def states(flow: Flow) -> list[str]:
    return [node.state for node in flow.nodes()]


class TestResults:
    def test_what_jobs_returned_is_there_for_those_after_them_and_for_others(self) -> None:
        with Flow() as flow:
            pages = [flow.add(Page.prepare(number=number), name=f"page {number}") for number in (4, 5)]
            failing = flow.add(Page.prepare(number=6, does="fail"))
            report = flow.add(Report.prepare(), after=[*pages, failing], on_error="run")
        run(4, prefetch=2)
        assert flow.result(timeout=0) == {"page 4": 4, "page 5": 5}
        assert report.job.results() == {"page 4": 4, "page 5": 5}
        assert [(node.name, node.status) for node in report.job.children()] == [
            *[("page 4", "s"), ("page 5", "s"), ("Page", "e")],
        ]
        assert [node.ident for node in pages[0].job.parents()] == [report.job.ident]

    def test_one_of_several_last_jobs_is_found_by_its_name(self) -> None:
        with Flow() as flow:
            flow.add(add.prepare(1, 2), name="one")
            flow.add(add.prepare(3, 4), name="other")
        run(2)
        assert flow.result(0) == {"one": 3, "other": 7}

    def test_functions_read_what_came_before(self) -> None:
        with Flow() as flow:
            flow.add(total.prepare(), after=[flow.add(add.prepare(1, 2)), flow.add(add.prepare(3, 4))])
        run(3)
        assert flow.result(0) == 10

    def test_a_chain_runs_one_after_the_other(self) -> None:
        flow = chain(add.prepare(1, 2), total.prepare(), total.prepare(), name="sum")
        run(3)
        assert Flow.find("sum").result(0) == 3
        assert flow.state() == ("ended", 0, 0, 3, "")

    def test_a_failure_is_raised(self) -> None:
        flow = chain(add.prepare(1, 2), Page.prepare(does="fail"))
        run(2)
        with pytest.raises(JobFailed, match="no paper"):
            flow.result(0)

    def test_a_job_that_was_canceled_says_why(self) -> None:
        flow = chain(Page.prepare(does="fail"), Report.prepare())
        run(1)
        with pytest.raises(JobCanceled, match=r"Report, flow_kinds\.Report:1, was canceled: Page failed"):
            flow.result(0)

    def test_a_last_job_that_was_deleted_is_an_error_unless_it_had_succeeded(self) -> None:
        with Flow() as flow:
            nodes = [flow.add(Page.prepare(number=number)) for number in (1, 2)]
        run(1)
        nodes[0].job.delete()
        nodes[1].job.delete()
        with pytest.raises(JobGone, match=r"^flow_kinds\.Page:2 does not exist anymore$"):
            flow.result(0)
        with Flow() as flow:
            node = flow.add(Page.prepare(number=3))
        run(1)
        node.job.delete()
        assert flow.result(0) == 3

    def test_one_that_goes_on_has_none_yet(self) -> None:
        flow = chain(Page.prepare())
        with pytest.raises(ResultTimeout, match=r"has not ended after 0\.01 seconds"):
            flow.result(0.01)
        assert not flow.wait(0)

    def test_what_a_job_of_no_flow_reads_is_nothing(self) -> None:
        job = Page.add_job()
        assert (job.results(), job.children(), job.parents()) == ({}, [], [])


def test_under_asyncio_all_is_the_same() -> None:
    async def make() -> Flow:
        async with Flow("async") as flow:
            flow.add(Report.prepare(), after=[flow.add(Page.prepare(number=number)) for number in (1, 2)])
        assert (await flow.astate()).open == 3
        return flow

    async def read(flow: Flow) -> None:
        report = flow.nodes()[2]
        assert await flow.aresult(10) == {"Page": 1, "Page 2": 2}
        job = Report.get_from_ident(report.ident)
        assert await job.aresults() == {"Page": 1, "Page 2": 2}
        assert [node.name for node in await job.achildren()] == ["Page", "Page 2"]
        assert await job.aparents() == []
        assert not await flow.acancel()

    flow = asyncio.run(make())
    run(3)
    asyncio.run(read(flow))


def test_jobs_without_a_name_are_counted_by_their_class_past_the_names_that_are_given() -> None:
    flow = Flow()
    names = [
        flow.add(call.prepare(), name=name).name
        for call, name in ((Page, "Page 3"), (Page, None), (Report, None), (Page, None), (Page, None), (Report, None))
    ]
    assert names == ["Page 3", "Page", "Report", "Page 2", "Page 4", "Report 2"]


class TestMistakes:
    @each(
        ("call", "kind", "message"),
        [
            (Page, TypeError, "A node is a prepared call"),
            (Page.add_job, TypeError, "A node is a prepared call"),
            (lambda: Tagged.prepare(tags={"a"}), ConfigurationException, "its field 'tags' is not written by the step"),
            (Placed.prepare, ConfigurationException, "its own way to put a job in a queue"),
            (Translated.prepare, ConfigurationException, "it has an add_job of its own"),
            (lambda: Page.prepare(on_duplicate="replace"), TypeError, "on_duplicate has no meaning in a flow"),
        ],
    )
    def test_what_cannot_be_in_a_flow_is_refused_with_one_line(
        self, call: Callable[[], Any], kind: type[Exception], message: str
    ) -> None:
        node = call if call in (Page, Page.add_job) else call()
        with pytest.raises(kind, match=message) as caught:
            Flow().add(node)
        assert "\n" not in str(caught.value)

    @each(
        ("options", "kind", "message"),
        [
            ({"on_error": "ignore"}, ValueError, "on_error must be one of 'fail', 'run', 'cancel', not 'ignore'"),
            ({"name": ""}, ValueError, "The name of a node must be a printable text"),
            ({"name": 7}, TypeError, "The name of a node must be a text, not 7"),
            ({"name": "taken"}, ValueError, "The flow has a node of the name 'taken' already"),
            (
                {"wait_at_most": "soon"},
                TypeError,
                "wait_at_most must be a number of seconds or a timedelta",
            ),
            ({"wait_at_most": -3}, ValueError, "wait_at_most must be from 0 to .* seconds, not -3"),
            ({"wait_at_most": 0}, ValueError, "wait_at_most must be more than 0 seconds, not 0"),
            (
                {"after": Page},
                TypeError,
                r"after takes nodes, which flow.add\(…\) of the same flow returned, not <class",
            ),
            ({"after": "Page"}, TypeError, "of the same flow returned, not 'Page'"),
            ({"after": Page.prepare()}, TypeError, "of the same flow returned, not .*Page"),
            ({"after": ["first"]}, TypeError, "of the same flow returned, not 'first'"),
        ],
    )
    def test_a_wrong_argument_is_refused(self, options: dict[str, Any], kind: type[Exception], message: str) -> None:
        flow = Flow()
        flow.add(Page.prepare(), name="taken")
        with pytest.raises(kind, match=message):
            flow.add(Page.prepare(), **options)

    def test_two_jobs_of_one_identifier_are_refused(self) -> None:
        message = "'Page' and 'Page 2' are one job of .*Page, with the identifier 'first': leave one of them out"
        flow = Flow()
        for call in (Page.prepare("first"), Report.prepare("first"), Page.prepare("first")):
            flow.add(call)
        with pytest.raises(ValueError, match=message):
            flow.make()
        assert len(Page.collection()) == 0

    def test_a_node_of_another_flow_is_refused(self) -> None:
        other = Flow().add(Page.prepare())
        with pytest.raises(ValueError, match="is a node of another flow"):
            Flow().add(Page.prepare(), after=other)

    def test_a_job_of_another_database_is_refused(self, redis_server: RedisServer) -> None:
        elsewhere = bound(Page, JobsDatabase(unix_socket_path=redis_server.socket, db=3))
        flow = Flow()
        flow.add(Page.prepare())
        with pytest.raises(ConfigurationException, match="different databases"):
            flow.add(elsewhere.prepare())

    def test_an_empty_flow_one_that_is_made_and_one_that_is_not_there_are_refused(self) -> None:
        with pytest.raises(LimpydJobsException, match="The flow has no jobs"):
            Flow().make()
        flow = chain(Page.prepare())
        with pytest.raises(LimpydJobsException, match="is made already: nothing can be added"):
            flow.add(Page.prepare())
        with pytest.raises(LimpydJobsException, match="is not made yet"):
            Flow().state()
        with pytest.raises(LimpydJobsException, match="There is no flow 'nightly', or no longer"):
            Flow.find("nightly")

    def test_nothing_is_added_if_the_block_fails(self) -> None:
        def fail() -> None:
            with Flow() as flow:
                flow.add(Page.prepare())
                raise KeyError("later")

        with pytest.raises(KeyError):
            fail()
        assert len(Page.collection()) == 0


class TestByHand:
    """What verbs do to a job that waits for others."""

    def flow(self) -> Flow:
        return chain(Page.prepare(), Page.prepare(identifier="mine"))

    def test_who_puts_it_in_its_queue_lets_it_run_now(self) -> None:
        flow = self.flow()
        flow._nodes[1].job.enqueue_or_delay("pages", 0)
        assert states(flow) == ["waiting", "waiting"]
        run(2)
        assert flow.state()[:3] == ("ended", 0, 0)

    def test_moved_to_another_queue_with_many_it_still_waits(self) -> None:
        flow = self.flow()
        Page.collection().move_all("elsewhere")
        assert states(flow) == ["waiting", "waiting for others"]
        work("elsewhere", max_loops=2)
        assert flow.state()[:3] == ("ended", 0, 0)

    def test_promoted_with_many_it_still_waits(self) -> None:
        flow = self.flow()
        assert Page.collection().promote_all().reasons["waits for other jobs"] == 1
        assert states(flow) == ["waiting", "waiting for others"]

    def test_added_again_with_a_higher_priority_it_still_waits(self) -> None:
        flow = self.flow()
        again = Page.add_job("mine", priority=5, prepend=True)
        assert again.add_outcome == "existing"
        assert states(flow) == ["waiting", "waiting for others"]

    def test_a_node_in_its_queue_that_is_replaced_is_still_that_node(self) -> None:
        with Flow() as flow:
            first = flow.add(Page.prepare(identifier="first", number=1))
            late = flow.add(Page.prepare(identifier="late", number=1, delayed_for=timedelta(days=1)))
            flow.add(Report.prepare(), after=[first, late])
        for identifier, number in (("first", 2), ("late", 3)):
            assert Page.add_job(identifier, number=number, on_duplicate="replace").add_outcome == "replaced"
        run(3)
        assert flow.result(timeout=0) == {"Page": 2, "Page 2": 3}

    def test_the_last_edit_of_a_job_that_waits_wins_and_it_still_waits(self) -> None:
        flow = self.flow()
        assert Page.add_job("mine", number=7, on_duplicate="replace").add_outcome == "replaced"
        assert states(flow) == ["waiting", "waiting for others"]
        run(2)
        assert flow.result(0) == 7

    def test_with_another_priority_it_still_waits(self) -> None:
        flow = self.flow()
        Page.collection(identifier="mine").move_all(priority=7)
        assert states(flow) == ["waiting", "waiting for others"]
        run(2)
        assert flow.state()[:3] == ("ended", 0, 0)

    def test_delayed_by_hand_it_keeps_that_date(self) -> None:
        flow = self.flow()
        Page.collection(identifier="mine").delay_all(delayed_for=timedelta(days=1))
        run(1)
        assert states(flow) == ["success", "delayed"]

    def test_deleted_ends_leave_the_others_as_they_are(self) -> None:
        flow = self.flow()
        run(2)
        Page.collection().delete_all()
        assert states(flow) == ["deleted", "deleted"]
        assert flow.state()[:3] == ("ended", 0, 0)

    def test_a_failed_job_that_retention_deletes_ends_nothing_twice(self) -> None:
        flow = chain(Page.prepare(does="fail"), Report.prepare())
        run(1)
        Pruner(Queue, Error, keep_errors=0).prune([flow._nodes[0].job.queue_key.hget()])
        assert states(flow) == ["deleted", "canceled"]
        assert flow.state()[:3] == ("ended", 0, 2)


class TestDeadlines:
    def test_once_it_has_passed_a_job_runs_with_what_there_is(self) -> None:
        with Flow(wait_at_most=0.05) as flow:
            page = flow.add(Page.prepare(number=1))
            late = flow.add(Page.prepare(number=2))
            report = flow.add(Report.prepare(), after=[page, late])
        page.job.claim("me").succeed()
        work("reports", max_loops=1, timeout=5, callback=None)
        assert report.job.status.hget() == STATUSES.SUCCESS
        assert states(flow) == ["success", "waiting", "success"]
        late.job.claim("me").succeed()
        assert flow.result(0) == {"Page": None}

    def test_a_failure_before_it_still_cancels(self) -> None:
        with Flow(wait_at_most=60) as flow:
            page = flow.add(Page.prepare(does="fail"))
            flow.add(Report.prepare(), after=[page, flow.add(Page.prepare())])
        run(1)
        assert states(flow) == ["error", "waiting", "canceled"]


def test_a_job_that_failed_and_is_put_back_revives_what_was_canceled_because_of_it(redis_client: redis.Redis) -> None:
    flow = chain(Page.prepare(does="fail"), Report.prepare(), Report.prepare(), name="again")
    page = flow._nodes[0].job
    run(1)
    assert redis_client.ttl("limpyd-jobs:flows:name:again") > 0
    page.does.hset("succeed")
    page.requeue()
    assert redis_client.ttl("limpyd-jobs:flows:name:again") == -1
    run(3)
    assert states(flow) == ["success"] * 3
    assert redis_client.ttl(f"limpyd-jobs:flow:{flow.id}:nodes") > 0
    assert Queue.count_delayed_jobs("reports") == 0


def test_why_a_job_waits_is_explained() -> None:
    with Flow("report:7", wait_at_most=3600) as flow:
        pages = [flow.add(Page.prepare()) for _ in range(7)]
        report = flow.add(Report.prepare(), after=pages)
    pages[0].job.claim("me").succeed()
    (reason,) = (each for each in report.job.explain().reasons if each.code == "waits_for_jobs")
    added, until = report.job.hmget("added", "delayed_until")
    assert reason.text == (
        f"It waits for 6 of the 7 jobs of its flow, report:7, since {added} (UTC): Page 2 (waiting), Page 3 (waiting), "
        f"Page 4 (waiting), Page 5 (waiting), Page 6 (waiting), …. It runs at {until} (UTC) at the latest."
    )
    pages[1].job.cancel()
    assert "It was canceled: Page 2 was canceled." in [reason.text for reason in report.job.explain().reasons]


WRITTEN_TO: dict[str, tuple[str, Callable[[Flow], object]]] = {
    "find": ("", lambda flow: Flow.find("report:7")),
    "state": ("", Flow.state),
    "state of what is open": (":open", Flow.state),
    "nodes": (":nodes", Flow.nodes),
    "cancel": ("", Flow.cancel),
    "requeue": (":todo", Flow.requeue),
    "wait": ("", Flow.wait),
    "result": ("", Flow.result),
    "children of a job": (":nodes", lambda flow: flow._nodes[1].job.children()),
    "parents of a job": (":nodes", lambda flow: flow._nodes[0].job.parents()),
    "results for a job": (":results", lambda flow: flow._nodes[1].job.results()),
}


@each("verb", WRITTEN_TO)
def test_what_another_program_wrote_to_is_said(verb: str, redis_client: redis.Redis) -> None:
    redis_client.flushall()
    part, call = WRITTEN_TO[verb]
    flow = chain(Page.prepare(), Page.prepare(), name="report:7")
    key = f"limpyd-jobs:flow:{flow.id}{part}"
    redis_client.delete(key)
    redis_client.set(key, "x")
    with pytest.raises(LimpydJobsException, match="cannot be read: another program wrote to keys of flows"):
        call(flow)


def test_entries_that_another_program_wrote_are_passed_over(redis_client: redis.Redis) -> None:
    flow = chain(Page.prepare(), Page.prepare())
    key = f"limpyd-jobs:flow:{flow.id}"
    redis_client.hset(
        f"{key}:nodes", mapping={"x": "flows:page:1 x", "-1": "y", "9" * 5000: "z", "٣": "flows:page:1 w"}
    )
    redis_client.zadd(f"{key}:after", {"2:x": 0, "2:": 0})
    assert [node.number for node in flow.nodes()] == [1, 2]
    reasons = Page.get_from_ident(flow.nodes()[1].ident).explain().reasons
    assert reasons[0].text.startswith("It waits for 3 of the 1 jobs of its flow")
    for text in ("{", "[]", "null", "{}", "[" * 100_000):
        redis_client.hset("limpyd-jobs:flows:classes", Page._name, text)
        assert [node.ident for node in flow.nodes()] == ["flows:page:1", "flows:page:2"]
    redis_client.flushall()


def test_ranges_that_another_program_wrote_take_no_more_memory_than_the_largest_flow() -> None:
    for text in (",".join(["1-99999"] * 20), "1-99999999", ",".join(["7"] * 200_000)):
        assert len(numbers_in(text)) == 100_000
    assert numbers_in("3,7-10,9-8") == ["3", "7", "8", "9", "10"]


def test_classes_of_flows_that_another_program_wrote_to_are_said(redis_client: redis.Redis) -> None:
    flow = chain(Page.prepare())
    redis_client.delete("limpyd-jobs:flows:classes")
    redis_client.set("limpyd-jobs:flows:classes", "x")
    with pytest.raises(LimpydJobsException, match="cannot be read"):
        flow.nodes()
