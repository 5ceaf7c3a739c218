"""Jobs of which the application overrides nothing go straight; late overrides are seen all the same."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import redis
from running import work, worker_of

from limpyd_jobs import STATUSES, Job, Queue, Worker
from limpyd_jobs.workers import worker as face

# How jobs are run: one after the other, with others claimed ahead, several at once.
KINDS: list[dict[str, Any]] = [{}, {"prefetch": 10}, {"concurrency": 5}, {"concurrency": 2, "prefetch": 10}]

pytestmark = pytest.mark.usefixtures("redis_client")

told: list[str] = []
during_run: list[Callable[[Job], object]] = []


class Parcel(Job):
    namespace = "straight"
    queue_name = "queue"

    def run(self, queue: Queue) -> None:
        for each in during_run:
            each(self)


class Unmakeable(Parcel):
    """An application may do so, though nothing of a job is known when its object is made."""

    broken = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.broken and not (args or kwargs):
            raise ValueError("no object of it can be made")


class Odd(Parcel):
    """Each second object has a method of its own."""

    made = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        Odd.made += 1
        if not Odd.made % 2:
            self.on_started = note("on_started")


@pytest.fixture(autouse=True)
def _nothing_during_a_run() -> None:
    told.clear()
    during_run.clear()


def statuses() -> list[str | None]:
    return [job.status.hget() for job in Parcel.collection().instances()]


def note(name: str) -> Callable[..., None]:
    return lambda *_: told.append(name)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_no_method_of_the_worker_is_called_on_the_way(kind: dict[str, Any]) -> None:
    Parcel.add_jobs([str(number) for number in range(20)])
    called: set[str] = set()

    def trace(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename == face.__file__:
            called.add(frame.f_code.co_name)

    worker = worker_of(callback=None, max_loops=20, **kind)
    sys.setprofile(trace)
    try:
        worker.run()
    finally:
        sys.setprofile(None)
    assert statuses() == [STATUSES.SUCCESS] * 20
    assert not [name for name in called if name.startswith(("job_", "get_", "wait_", "execute"))]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("name", ["job_success", "job_success_message"])
def test_what_a_running_job_overrides_on_the_worker_is_called_for_it(name: str, kind: dict[str, Any]) -> None:
    job = Parcel.add_job("first")
    worker = worker_of(callback=None, **kind)
    during_run.append(lambda _: setattr(worker, name, lambda *_: told.append(name) or "overridden"))
    worker.run()
    assert told == [name]
    assert job.status.hget() == (STATUSES.SUCCESS if name == "job_success_message" else STATUSES.RUNNING)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_a_running_job_overrides_on_the_class_of_the_worker_is_called_for_it(
    kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Parcel.add_job("first")
    worker = worker_of(callback=None, **kind)
    during_run.append(lambda _: monkeypatch.setattr(type(worker), "job_success", note("job_success")))
    worker.run()
    assert (told, job.status.hget()) == (["job_success"], STATUSES.RUNNING)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_from_then_on_the_next_jobs_go_by_the_hooks(kind: dict[str, Any]) -> None:
    worker = worker_of(callback=None, max_loops=6, **kind)
    Parcel.add_job("first")
    during_run.append(lambda _: setattr(worker, "job_started", note("job_started")))
    during_run.append(lambda job: job.identifier.hget() == "first" and Parcel.add_jobs(list("abcde")))
    worker.run()
    assert told == ["job_started"] * 5
    assert statuses() == [STATUSES.SUCCESS] * 6


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_method_that_a_job_gives_itself_is_called(kind: dict[str, Any]) -> None:
    Parcel.add_job("first")
    during_run.append(lambda job: setattr(job, "on_success", note("on_success")))
    work(callback=None, **kind)
    assert told == ["on_success"]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_methods_that_its_class_gets_while_it_runs_are_called(
    kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a module that the code of a job imports only then."""
    worker = worker_of(callback=None, max_loops=2, **kind)
    Parcel.add_job("first")
    for name in ("on_started", "on_success"):
        during_run.append(lambda _, name=name: monkeypatch.setattr(Parcel, name, note(name), raising=False))
    during_run.append(lambda job: job.identifier.hget() == "first" and Parcel.add_job("second"))
    worker.run()
    assert told.count("on_started") == 1
    assert told.count("on_success") == 2


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_method_that_some_objects_of_a_class_have_is_called_for_these(kind: dict[str, Any]) -> None:
    Odd.add_jobs(list("abcd"))
    Odd.made = 0
    work(callback=None, max_loops=4, **kind)
    assert told == ["on_started"] * 2


@pytest.mark.parametrize("name", ["job_started", "job_success", "get_job", "wait_for_job"])
def test_a_method_that_replaces_that_of_the_class_itself_is_called(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = getattr(Worker, name)

    def method(self: Worker, *args: Any) -> Any:
        told.append(name)
        return ours(self, *args)

    monkeypatch.setattr(Worker, name, method)
    Parcel.add_job("first")
    work(callback=None)
    assert set(told) == {name}
    assert statuses() == [STATUSES.SUCCESS]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_job_whose_object_cannot_be_made_is_given_back(
    kind: dict[str, Any], redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    Parcel.add_jobs(["a", "b"])
    monkeypatch.setattr(Unmakeable, "broken", False)
    lost = Unmakeable.add_job("broken")
    monkeypatch.setattr(Unmakeable, "broken", True)
    work(callback=None, max_loops=2, **kind)
    monkeypatch.setattr(Unmakeable, "broken", False)
    assert lost.status.hget() in (STATUSES.WAITING, STATUSES.DELAYED)
    assert redis_client.zcard(Queue.get_queue("queue").running.key) == 0
    assert statuses() == [STATUSES.SUCCESS] * 2
