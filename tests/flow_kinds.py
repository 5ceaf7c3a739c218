"""The jobs of the tests of flows."""

from __future__ import annotations

from typing import Any

from limpyd import fields

from limpyd_jobs import Error, Job, Queue, Retry, current_job, job


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


MODELS = (Page, Report, Stubborn, Numbered, add.job_class, total.job_class, Queue, Error)
