"""delete_errors: the errors that meet some conditions are deleted, with their indexes; their jobs stay."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from limpyd_jobs import Error, Job, NotAudited, Worker
from limpyd_jobs.query import ErrorFilter, JobFilter
from limpyd_jobs.records import audit

pytestmark = pytest.mark.usefixtures("redis_client")


class Letter(Job):
    namespace = "delete-errors"
    queue_name = "letters"

    def run(self, queue: Any) -> None:
        raise (KeyError if self.identifier.hget() == "odd" else ValueError)("no address")


@pytest.fixture(autouse=True)
def _errors() -> None:
    Letter.add_jobs(["1", "2", "odd", "4"])
    Worker("letters", max_loops=4, logger_level=60).run()


def test_those_of_a_filter_are_deleted_and_nothing_remains_of_them(redis_client: redis.Redis) -> None:
    asked = ErrorFilter("type=ValueError")
    assert asked.delete_all(dry_run=True) == (3, 0, 0, {})
    assert ErrorFilter().count().number == 4
    assert asked.delete_all() == (3, 0, 0, {})
    assert [error.type for error in ErrorFilter().page().found] == ["KeyError"]
    assert JobFilter("status=error").count().number == 4
    (entry,) = audit.last_entries(redis_client, 5)
    assert (entry["verb"], entry["filter"], entry["done"]) == ("delete errors", "type=ValueError", "3")
    ErrorFilter().delete_all()
    assert [key for key in redis_client.keys("jobs:error:*") if key != "jobs:error:max_pk"] == []


def test_it_is_noted_step_by_step(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limpyd_jobs.search.walk.CHANGES_PER_STEP", 2)
    told: list[str] = []
    ErrorFilter().delete_all(progress=lambda *_: told.append(audit.last_entries(redis_client, 1)[0]["done"]))
    assert told == ["2", "4"]


def test_without_an_entry_nothing_is_deleted(redis_client: redis.Redis) -> None:
    redis_client.set(audit.KEY, "x")
    with pytest.raises(NotAudited):
        ErrorFilter().delete_all()
    assert ErrorFilter().delete_all(unaudited=True).done == 4


def test_a_model_with_its_own_way_is_asked(redis_client: redis.Redis) -> None:
    class Own(Error):
        namespace = "delete-errors"
        deleted = 0

        def delete(self) -> Any:
            type(self).deleted += 1
            return super().delete()

    Own.add_error("letters", Letter.get(identifier="1"), KeyError("x"))
    assert ErrorFilter(error_model=Own).delete_all() == (1, 0, 0, {})
    assert Own.deleted == 1
