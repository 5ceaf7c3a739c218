"""The jobs of the tests of flows."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from limpyd import fields

from limpyd_jobs import Cancel, Error, Job, Limit, Queue, Requeue, Retry, SignalTimeout, ValueField, current_job, job


class Page(Job):
    """A job that does as its field says."""

    namespace = "flows"
    queue_name = "pages"
    number = fields.InstanceHashField()
    does = fields.InstanceHashField(default="succeed")

    def run(self, queue: Queue) -> Any:
        if self.does.hget() == "fail":
            raise ValueError("no paper")
        return int(self.number.hget() or 0)


class Report(Job):
    """A job of another class, in another queue, which returns what it was given."""

    namespace = "flows"
    queue_name = "reports"

    def run(self, queue: Queue) -> Any:
        return self.results()


class Stubborn(Page):
    """A job that is tried again once."""

    default_retry_policy = Retry(times=1, delay=0)


class Exclusive(Page):
    """A job of which one runs at once: one too many is dropped."""

    limits = (Limit(name="exclusive", concurrency=1, on_limit="drop"),)


class Numbered(Page):
    """A job with a unique field."""

    serial = fields.InstanceHashField(unique=True)


class Tagged(Page):
    """A job with a field outside of its hash."""

    tags = fields.SetField()


class Placed(Page):
    """A job with its own way to a queue."""

    def enqueue_or_delay(self, *args: Any, **kwargs: Any) -> None:
        super().enqueue_or_delay(*args, **kwargs)


class Translated(Page):
    """A job with its own way to be added."""

    @classmethod
    def add_job(cls, *args: Any, **kwargs: Any) -> Any:
        return super().add_job(*args, **kwargs)


@job(queue="pages")
def total() -> int:
    """Add up what came before."""
    return sum(current_job().results().values())


@job(queue="pages")
def add(one: int, other: int) -> int:
    return one + other


class Asking(Job):
    """A job that waits for a signal, and returns it. What it did before is noted."""

    namespace = "flows"
    queue_name = "asking"
    signal = fields.InstanceHashField(default="approval")
    within = fields.InstanceHashField()
    did = fields.InstanceHashField(default="")
    answer = ValueField(json)

    def run(self, queue: Queue) -> Any:
        with self.step("before") as step:
            if step.is_new:
                self.did.hset(self.did.hget() + "before ")
        try:
            answer = self.wait_for(self.signal.hget(), timeout=self._timeout())
        except SignalTimeout:
            answer = "in vain"
        finally:
            self.did.hset(self.did.hget() + "run ")
        self.answer.hset(answer)
        return answer

    def _timeout(self) -> float | None:
        seconds = self.within.hget()
        return float(seconds) if seconds else None


class Seated(Asking):
    """One that waits for a signal, of which one runs at a time."""

    limits = (Limit("signal", concurrency=1),)


class Dropped(Asking):
    """One that waits for a signal; one too many is dropped."""

    limits = (Limit("signal", name="dropped", concurrency=1, on_limit="drop"),)


class Newest(Asking):
    """One that waits for a signal; of those that may not begin, only the newest is kept."""

    limits = (Limit("signal", name="newest", concurrency=1, on_limit="newest"),)


class Spawning(Job):
    """A job that spawns pages, some of which fail, and returns what they returned."""

    namespace = "flows"
    queue_name = "spawning"
    pages = fields.InstanceHashField(default=3)
    failing = fields.InstanceHashField(default=0)
    on_error = fields.InstanceHashField(default="fail")
    answer = ValueField(json)

    def run(self, queue: Queue) -> Any:
        number, failing = int(self.pages.hget()), int(self.failing.hget())
        calls = [Page.prepare(number=each, does="fail" if each < failing else "succeed") for each in range(number)]
        self.spawn(*calls, on_error=self.on_error.hget())
        results = self.children_results()
        self.answer.hset(results)
        return sum(results.values())


class Replaced(Spawning):
    """One that spawns pages, of which the newest takes the place of the one that runs."""

    limits = (Limit("on_error", name="replaced", concurrency=1, on_limit="replace"),)


@job(queue="asking")
def ask(name: str) -> Any:
    return current_job().wait_for(name)


@job(queue="asking")
async def ask_later(name: str) -> Any:
    return await current_job().await_for(name)


@job(queue="asking")
async def ask_both(one: str, other: str, at_once: bool = True) -> Any:
    asking = current_job()
    if at_once:
        return await asyncio.gather(asking.await_for(one), asking.await_for(other))
    return [await asking.await_for(one), await asking.await_for(other)]


@job(queue="asking")
async def ask_in_a_group(name: str) -> Any:
    async with asyncio.TaskGroup() as group:
        beside = group.create_task(asyncio.sleep(0))
        task = group.create_task(current_job().await_for(name))
    return beside.result() or task.result()


@job(queue="asking")
async def give_up_in_a_group(error: str) -> None:
    async def give_up() -> None:
        raise {"cancel": Cancel("no use"), "requeue": Requeue(delayed_for=1000)}.get(error) or ValueError(error)

    async with asyncio.TaskGroup() as group:
        group.create_task(give_up())


MODELS = (
    *(Asking, Seated, Dropped, Newest, Spawning, Replaced, ask.job_class, ask_later.job_class, ask_both.job_class),
    *(ask_in_a_group.job_class, give_up_in_a_group.job_class),
    *(Page, Report, Stubborn, Numbered, add.job_class, total.job_class, Queue, Error),
)
