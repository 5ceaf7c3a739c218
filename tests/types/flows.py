"""Flows, signals, limits and output as an application has them. Both checkers take each line but those marked as
wrong."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Never, assert_type

from limpyd_jobs import (
    Argument,
    Flow,
    FlowNode,
    Job,
    JobFailed,
    Limit,
    Queue,
    asend_signal,
    chain,
    current_job,
    job,
    send_signal,
    typed,
)
from limpyd_jobs.flows import NewNode, SignalOutcome
from limpyd_jobs.models.following.output import Chunk
from limpyd_jobs.query import JobFilter, limits_of, rest_limit, set_limit


@job(queue="pages", kill_after=30, keep_output=60, notify_changes=True, limits=[Limit(name="provider", concurrency=50)])
def page(number: Annotated[int, Limit(concurrency=2)]) -> int:
    assert_type(current_job().results(), dict[str, Any])
    assert_type(current_job().children(), list[FlowNode])
    return number


@page.on_exhausted
def give_up(this: Job, error: JobFailed) -> None:
    assert_type(error.traceback, str)


@typed
class Report(Job):
    queue_name = "reports"
    title: Argument[str] = Argument(str)
    limits = [Limit("title", rate="10/s", weight=2)]

    def run(self, queue: Queue) -> str:
        assert_type(self.results(), dict[str, Any])
        assert_type(self.children_results(), dict[str, Any])
        assert_type(self.children_results("pages"), dict[str, Any])
        assert_type(self.parents(), list[FlowNode])
        assert_type(self.wait_for("approval", timeout=timedelta(days=3)), Any)
        self.spawn(page.prepare(1), Report.prepare(title="a"), name="pages", on_error="run")
        self.settle("title", 5)
        self.emit({"delta": "Hel"}, "lo")
        self.wait_for(5)  # wrong
        self.wait_for("approval", timeout="long")  # wrong
        self.spawn(page.prepare("a"))  # wrong
        self.spawn(page.prepare(1), on_error="stop")  # wrong
        self.children_results(5)  # wrong
        self.settle("title")  # wrong
        self.settle("title", "five")  # wrong
        self.results()[5]  # wrong
        self.emit(delta="Hel")  # wrong
        return self.title.value()

    def rested(self) -> None:
        if self.title.value():
            self.rest("title")  # wrong
        assert_type(self.rest("title", seconds=30), Never)


class Calls(Job):
    queue_name = "reports"

    async def run(self, queue: Queue) -> None:
        assert_type(await self.await_for("approval"), Any)
        assert_type(await self.aresults(), dict[str, Any])
        await self.aspawn(page.prepare(1))
        await self.asettle("title", 5)
        await self.aemit("a")
        async for chunk in self.aoutput():
            assert_type(chunk, Chunk)
        assert_type((await asend_signal("report:7", "approval")).upper(), str)
        async with Flow("report:7") as flow:
            flow.add(page.prepare(1))
        assert_type(await flow.aresult(), Any)
        await self.await_for("approval", timeout="long")  # wrong
        await asend_signal(5, "approval")  # wrong


with Flow("report:7", on_error="fail", wait_at_most=3600) as flow:
    pages = [flow.add(page.prepare(number)) for number in range(9)]
    report = flow.add(Report.prepare(title="Sales"), after=pages, on_error="run", wait_at_most=timedelta(hours=1))
    flow.add(Report.prepare(title="Sales"), after=report, name="again")
    flow.add(page.prepare("a"))  # wrong
    flow.add(Report.prepare(titel="Sales"))  # wrong
    flow.add(Report.prepare(title="Sales"), after=5)  # wrong
    flow.add(Report.prepare(title="Sales"), on_error="stop")  # wrong
    flow.add(page)  # wrong

assert_type(report, NewNode)
assert_type(flow.result(timeout=60), Any)
assert_type(flow.nodes(), list[FlowNode])
assert_type(flow.nodes()[0].state, str)
assert_type(flow.nodes()[0].ident, str)
assert_type(flow.cancel(), bool)
assert_type(Flow.find("report:7"), Flow)
assert_type(chain(page.prepare(1), Report.prepare(title="Sales")), Flow)
assert_type(send_signal(flow, "approval", {"by": "ann"}), SignalOutcome)
assert_type(send_signal(page.add(1), "approval"), SignalOutcome)
assert_type(send_signal("myapp.Report:1", "approval"), SignalOutcome)
assert_type(Report.add(title="a").children(), list[FlowNode])
for each in Report.add(title="a").output(after="1-2", timeout=5):
    assert_type(each.id, str)
    assert_type(each.value, Any)
    assert_type(each.run, int)
    print(each.valeu)  # wrong
assert_type(JobFilter(page), JobFilter[Job])
assert_type(JobFilter(page.job_class), JobFilter[Job])
assert_type(limits_of(page)[0].label, str)
assert_type(limits_of(Report)[0].taken, int)
set_limit(page, "number", "5", concurrency=3)
rest_limit(Report, "title", seconds=5)
Flow(5)  # wrong
Flow("report:7", on_error="stop")  # wrong
Flow("report:7", wait_at_most="long")  # wrong
flow.result(timeout="long")  # wrong
flow.nodes()[0].stat  # wrong # noqa: B018
chain("page")  # wrong
send_signal(flow)  # wrong
send_signal(flow, 5)  # wrong
JobFilter(send_signal)  # wrong
limits_of("page")  # wrong
set_limit(page, 5)  # wrong
Limit("title", concurency=5)  # wrong
Limit("title", concurrency="many")  # wrong
Limit("title", concurrency=1, on_limit="skip")  # wrong
job(kill_after="soon")  # wrong
job(limits=["title"])  # wrong
