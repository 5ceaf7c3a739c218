"""write_metrics: what became of jobs is added to the metrics of this minute and day."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from limpyd_jobs import Job, Queue, Worker
from limpyd_jobs.records import metrics
from limpyd_jobs.records.metrics import KEY, LENGTH, Metrics
from limpyd_jobs.workers.fleet.metrics import WorkerMetrics
from limpyd_jobs.workers.run import Runs

pytestmark = pytest.mark.usefixtures("redis_client")


class Bell(Job):
    namespace = "figures"
    queue_name = "bells"

    def run(self, queue: Any) -> None:
        if self.identifier.hget() == "cracked":
            raise ValueError("on purpose")


def some(started: int = 0, succeeded: int = 0, failed: int = 0) -> Metrics:
    return Metrics([started, succeeded, failed, *[0] * (LENGTH - 3)])


def stored(client: redis.Redis, period: str = "minute") -> dict[str, str]:
    """All that is stored by a period: of one or two neighbours, as the clock goes on meanwhile."""
    keys: Any = sorted(client.keys(f"{KEY}{period}:*"))
    found: dict[str, str] = {}
    for key in keys:
        for field, text in client.hgetall(key).items():  # type: ignore[union-attr]
            before = metrics.metrics_of(found.get(field, ""))
            now = metrics.metrics_of(text)
            if before and now:
                now.add(before)
            found[field] = " ".join(map(str, now.numbers)) if now else text
    return found


@pytest.mark.parametrize("period", ["minute", "day"])
def test_metrics_are_added_up(redis_client: redis.Redis, period: str) -> None:
    for _ in range(3):
        metrics.write(redis_client, {("bells", "a.B"): some(2, 1, 1), ("b\t%", "a.C"): some(1)}, {})
    found = stored(redis_client, period)
    assert found.keys() == {"bells\na.B", "b\t%\na.C"}
    of_bells = metrics.metrics_of(found["bells\na.B"])
    assert of_bells is not None
    assert (of_bells.started, of_bells.succeeded, of_bells.failed) == (6, 3, 3)


def test_they_are_kept_for_some_time(redis_client: redis.Redis) -> None:
    metrics.write(redis_client, {("bells", "a.B"): some(1)}, {})
    for period, kept in (("minute", 2 * 86400), ("day", 366 * 86400)):
        for key in redis_client.keys(f"{KEY}{period}:*"):  # type: ignore[union-attr]
            assert kept - 100 < redis_client.ttl(key) <= kept  # type: ignore[operator]


def test_how_many_jobs_there_have_been_is_noted(redis_client: redis.Redis) -> None:
    for number in range(3):
        Bell.add_job(f"{number}")
    path = Bell.get_model_repr()
    metrics.write(redis_client, {}, {path: Bell._name, "a.B": "figures:nothing"})
    assert stored(redis_client) == {f"\n{path}": "3"}


def test_too_many_rows_are_summed_up(redis_client: redis.Redis) -> None:
    redis_client.time()
    many = {(f"queue {number}", "a.B"): some(1) for number in range(600)}
    for part in metrics.parts_of(many):
        metrics.write(redis_client, part, {})
    found = stored(redis_client)
    others = metrics.metrics_of(found["\n"])
    assert others is not None
    assert len(found) - 1 + others.started == 600
    assert len(found) <= 2 * 501


def test_large_numbers_stay_exact(redis_client: redis.Redis) -> None:
    for _ in range(2):
        metrics.write(redis_client, {("bells", "a.B"): some(2**50)}, {})
    found = metrics.metrics_of(stored(redis_client)["bells\na.B"])
    assert found is not None
    assert found.started == 2**51


def test_what_another_process_wrote_counts_as_nothing(redis_client: redis.Redis) -> None:
    metrics.write(redis_client, {("bells", "a.B"): some(1)}, {})
    for key in redis_client.keys(f"{KEY}*"):  # type: ignore[union-attr]
        redis_client.hset(key, "bells\na.B", "x y \x00")
    redis_client.set(f"{Bell._name}:max_pk", "x")
    metrics.write(redis_client, {("bells", "a.B"): some(3)}, {"a.B": Bell._name})
    found = metrics.metrics_of(stored(redis_client)["bells\na.B"])
    assert found is not None
    assert found.started == 3


def test_a_worker_writes_what_became_of_its_jobs(redis_client: redis.Redis) -> None:
    for name in ("fine", "cracked", "good"):
        Bell.add_job(name)
    Worker("bells", max_loops=3, logger_level=60).run()
    (found,) = [metrics.metrics_of(text) for name, text in stored(redis_client).items() if not name.startswith("\n")]
    assert found is not None
    assert (found.started, found.succeeded, found.failed) == (3, 2, 1)
    assert (sum(found.waited.counts), sum(found.ran.counts)) == (3, 3)
    assert found.waited.mean is not None
    assert found.ran.mean is not None


def test_a_worker_whose_metrics_cannot_be_written_goes_on(redis_client: redis.Redis) -> None:
    metrics.write(redis_client, {("bells", "a.B"): some(1)}, {})
    for key in redis_client.keys(f"{KEY}*"):  # type: ignore[union-attr]
        redis_client.set(key, "text")
    job = Bell.add_job("fine")
    Worker("bells", max_loops=1, logger_level=60).run()
    assert job.status.hget() == "s"


def test_a_key_of_a_wrong_type_makes_no_job_count_twice(redis_client: redis.Redis) -> None:
    metrics.write(redis_client, {("bells", "a.B"): some(1)}, {})
    for key in redis_client.keys(f"{KEY}day:*"):  # type: ignore[union-attr]
        redis_client.set(key, "text")
    gathered = WorkerMetrics(Runs())
    gathered._metrics[("bells", "a.B")] = some(3)
    for _ in range(3):
        gathered.write(redis_client)
    found = metrics.metrics_of(stored(redis_client)["bells\na.B"])
    assert found is not None
    assert found.started == 4


def test_a_worker_writes_once_at_its_end(redis_client: redis.Redis, commands: Any) -> None:
    for number in range(120):
        Bell.add_job(f"{number}")
    Queue.get_queue("bells")
    with commands() as sent:
        Worker("bells", max_loops=120, logger_level=60).run()
    sha = metrics._write_metrics.sha
    assert sum(sha in command for command in sent) == 1


def test_many_are_written_in_small_steps_and_counted_once_though_one_fails(
    redis_client: redis.Redis, commands: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = WorkerMetrics(Runs())
    gathered._metrics = {(f"{number}", "a.B"): some(1) for number in range(3 * metrics.MAX_ROWS)}
    failures = [redis.OutOfMemoryError("full"), None, redis.ConnectionError("lost")]

    def write(*args: Any) -> None:
        failure = failures.pop() if failures else None
        if failure:
            raise failure
        really_write(*args)

    really_write = metrics.write
    monkeypatch.setattr(metrics, "write", write)
    with commands() as sent:
        for _ in range(3):
            gathered.write(redis_client)
    written = [command for command in sent if metrics._write_metrics.sha in command or "verb: write fig" in command]
    assert max(command.count('"a.B",[') for command in written) == metrics.MAX_ROWS
    found = [metrics.metrics_of(text) for text in stored(redis_client).values()]
    assert [each.started for each in found if each] == [1] * (2 * metrics.MAX_ROWS)  # the rest may be written, or not
