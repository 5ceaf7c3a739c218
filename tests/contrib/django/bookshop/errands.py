"""Jobs that go through the outbox."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from limpyd import fields

from bookshop.models import Book
from limpyd_jobs import Argument, Flow, Job, Queue, current_job, job


class ErrandQueue(Queue):
    namespace = "errands"


class Errand(Job):
    namespace = "errands"
    queue_name = "errands"
    price = Argument(Decimal, default=Decimal(0))
    day = Argument(date, default=date(2026, 1, 1))
    books = Argument(list[Book], default=[])
    words = fields.ListField()
    note = fields.InstanceHashField()

    def run(self, queue: Queue) -> None:
        self.get_connection().rpush("errands done", self.identifier.hget())


class Translated(Errand):
    """Has an `add_job` of its own, as applications do."""

    @classmethod
    def add_job(cls, shop: Any, *args: Any, **kwargs: Any) -> Any:
        super().add_job(f"to {shop['name']}", *args, **kwargs)


class Refused(Errand):
    """Is refused when it is added, not when it is written."""

    @classmethod
    def add_job(cls, *args: Any, **kwargs: Any) -> Any:
        raise ValueError("no such errand\nat all")


class Unique(Errand):
    serial = fields.InstanceHashField(unique=True)


@job(queue="errands")
def fetch(place: str, price: Decimal = Decimal(1)) -> str:
    return f"{price} at {place}"


@job(queue="errands")
def tour(places: list[str]) -> None:
    """Add a flow."""
    flow = Flow("tour")
    stops = [flow.add(fetch.prepare(place)) for place in places]
    flow.add(fetch.prepare("home"), after=stops)
    current_job().spawn(flow)
