"""What is done with all the jobs of a collection."""

from __future__ import annotations

from typing import Any

import pytest
from limpyd import fields
from limpyd.contrib.indexes import NumberRangeIndex

from limpyd_jobs import STATUSES, Argument, Job, Queue, Worker
from limpyd_jobs.query import Tally

pytestmark = pytest.mark.usefixtures("redis_client")


class Coin(Job):
    namespace = "collections"
    queue_name = "coins"

    face = Argument(indexable=True)
    year = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex])

    def run(self, queue: Any) -> None:
        raise ValueError("on purpose")


@pytest.fixture(autouse=True)
def _jobs() -> None:
    for number in range(6):
        Coin.add_job(f"coin {number}", face="head" if number % 2 else "tail", year=2000 + number)


def fail_all() -> None:
    Worker("coins", max_loops=6, logger_level=60).run()


def test_those_that_failed_are_requeued() -> None:
    fail_all()
    assert Coin.collection(status=STATUSES.ERROR, face="head").requeue_all(dry_run=True) == Tally(3, 0, 0, {})
    assert Coin.collection(status=STATUSES.ERROR, face="head").requeue_all() == Tally(3, 0, 0, {})
    assert Coin.collection(status=STATUSES.WAITING).requeue_all() == Tally(0, 3, 0, {"not in error": 3})
    assert Queue.count_waiting_jobs("coins") == 3
    assert len(Coin.collection(status=STATUSES.ERROR)) == 3


def test_each_verb_takes_what_that_of_a_filter_takes() -> None:
    assert Coin.collection(face="head").delay_all(60).done == 3
    assert Coin.collection(status=STATUSES.DELAYED).promote_all().done == 3
    assert Coin.collection(face="tail").move_all("purse", priority=3).done == 3
    assert Queue.count_waiting_jobs("purse") == 3
    assert Coin.collection().cancel_all().done == 6
    assert Coin.collection(status=STATUSES.CANCELED).delete_all().done == 6
    assert len(Coin.collection()) == 0


@pytest.mark.parametrize(
    ("filters", "number"),
    [
        ({"year__gte": 2004}, 2),
        ({"year__gte": 2001, "face": "head"}, 3),
        ({"face__in": ["head", "edge"]}, 3),
        ({"pk": 2}, 1),
        ({"pk": 99}, 0),
        ({"face": "edge"}, 0),
    ],
)
def test_any_filter_of_limpyd_is_heeded(filters: dict[str, Any], number: int) -> None:
    assert Coin.collection(**filters).cancel_all(dry_run=True).done == number
    assert Coin.collection(**filters).cancel_all().done == number
    assert len(Coin.collection(status=STATUSES.CANCELED)) == number


def test_so_are_intersections_and_what_is_asked_for_later() -> None:
    assert Coin.collection().intersect({"2", "3"}).filter(face="head").cancel_all().done == 1
    assert Coin.collection(face="head").instances().sort(by="year").cancel_all().done == 2


def test_the_fields_are_looked_at_again() -> None:
    some = Coin.collection(face="tail", year__gte=2002)
    found = some._filter()
    Coin.get(3).status.hset(STATUSES.SUCCESS)
    Coin.get(5).delete()
    assert found.only
    assert [sorted(pks) for pks in found.only.pks.values()] == [[3, 5]]
    assert found.cancel_all() == Tally(0, 1, 0, {"ended": 1})
