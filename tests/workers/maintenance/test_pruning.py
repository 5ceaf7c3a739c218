"""What workers keep of finished jobs: as many as the user wants, and no more."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import redis
from cases import each
from invariants import violations
from limpyd import fields
from parts import parts_of
from running import fail, messages, work, worker_of

from limpyd_jobs import STATUSES, ConfigurationException, Error, Job, Queue, Worker
from limpyd_jobs.models import job_classes
from limpyd_jobs.transitions import PRUNE_LIMIT
from limpyd_jobs.workers.context import Context
from limpyd_jobs.workers.maintenance import tasks
from limpyd_jobs.workers.maintenance.tasks import Pruner

pytestmark = pytest.mark.usefixtures("jobs_database")


class Tidy(Queue):
    namespace = "pruning"


def keys_of(model: type[Queue], name: str = "queue") -> list[str]:
    return [key.removesuffix(":waiting") for key in model.get_waiting_keys(name)]


def run_jobs(number: int, model: type[Queue] = Queue, name: str = "queue", **options: Any) -> None:
    for turn in range(number):
        Job.add_job(f"{name}:{turn}", name, queue_model=model)
    work(name, queue_model=model, max_loops=number, **options)


def listed(model: type[Queue] = Queue, name: str = "queue") -> list[list[str]]:
    queue = model.get_queue(name)
    return [queue.success.lmembers(), queue.errors.lmembers()]


@pytest.mark.parametrize("prefetch", [1, 10])
class TestASuccessThatIsNotKept:
    """It is erased in the step that records it, unless somebody may look at it after that."""

    @pytest.fixture(autouse=True)
    def _never_pruned(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Pruner, "run", lambda self, context: None)

    @pytest.mark.parametrize("by", ["the worker", "the class of the queue"])
    def test_is_gone_with_its_last_step(
        self, by: str, prefetch: int, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Tidy, "keep_success", 0 if by == "the class of the queue" else None)
        run_jobs(7, Tidy, prefetch=prefetch, keep_success=0 if by == "the worker" else None)
        left = {key for key in redis_client.keys("*") if not key.startswith(("limpyd-jobs:", "pruning:tidy:"))}
        assert left == {"jobs:job:max_pk"}
        assert listed(Tidy) == [[], []]
        assert violations(redis_client, Job, Tidy, Error) == []

    def test_is_logged_as_any(self, prefetch: int, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO", "limpyd-jobs")
        run_jobs(2, prefetch=prefetch, keep_success=0)
        assert [line.message for line in caplog.records if "success, in" in line.message] != []

    def test_is_kept_by_a_timedelta_of_some_time(self, prefetch: int) -> None:
        run_jobs(2, prefetch=prefetch, keep_success=timedelta(days=1))
        assert len(listed()[0]) == 2

    def test_with_errors_of_earlier_tries_is_left_to_the_next_pruning(self, prefetch: int) -> None:
        run_jobs(2, callback=fail, requeue_times=1, requeue_priority_delta=0, requeue_delay_delta=0)
        work("queue", max_loops=2, prefetch=prefetch, keep_success=0)
        assert [len(listed()[0]), len(Error.collection())] == [2, 2]
        assert Pruner(Queue, Error, keep_success=0).prune(keys_of(Queue)).deleted == 2
        assert len(Error.collection()) == 0

    def test_is_there_for_code_of_the_application(self, prefetch: int) -> None:
        class Telling(Worker):
            def job_success_message(self, job: Job, queue: Queue, job_result: Any) -> str:
                return str(job.status.hget())

        for job_class in (TellsSuccess, KeepsResult, Deletes):
            job_class.add_job("a", "queue")
            work("queue", callback=None, prefetch=prefetch, keep_success=0)
            assert len(listed()[0]) == 1, job_class
            Queue.get_queue("queue").success.delete()
        run_jobs(1, worker_class=Telling, prefetch=prefetch, keep_success=0)
        assert len(listed()[0]) == 1

    def test_that_was_canceled_meanwhile_is_no_success(self, prefetch: int) -> None:
        run_jobs(2, callback=lambda job, queue: job.cancel(), prefetch=prefetch, keep_success=0)
        assert [job.status.hget() for job in Job.collection().instances()] == ["c", "c"]

    def test_that_the_job_deleted_itself_is_no_failure(self, prefetch: int) -> None:
        run_jobs(2, callback=lambda job, queue: job.delete(), prefetch=prefetch, keep_success=0)
        assert listed() == [[], []]
        assert len(Error.collection()) == 0
        assert Queue.get_queue("queue").running.zmembers() == []


class TellsSuccess(Job):
    namespace = "pruning"

    def run(self, queue: Queue) -> None: ...

    def on_success(self, queue: Queue, result: Any) -> None:
        assert self.status.hget() == "s"


class KeepsResult(Job):
    namespace = "pruning"
    keep_result = timedelta(hours=1)

    def run(self, queue: Queue) -> int:
        return 7


class Deletes(Job):
    namespace = "pruning"

    def run(self, queue: Queue) -> None: ...

    def delete(self) -> None:
        super().delete()


class TestARound:
    def test_does_nothing_unless_told(self, commands: Any) -> None:
        run_jobs(2)
        pruner = Pruner(Queue, Error)
        keys = keys_of(Queue)
        with commands() as sent:
            assert pruner.prune(keys) == (0, {}, {})
        assert sent == []

    def test_keeps_what_the_worker_says(self) -> None:
        run_jobs(3)
        run_jobs(3, callback=fail)
        assert Pruner(Queue, Error, keep_success=1, keep_errors=timedelta(0)).prune(keys_of(Queue)) == (5, {}, {})
        assert [len(idents) for idents in listed()] == [1, 0]
        assert len(Job.collection()) == 1
        assert len(Error.collection()) == 0

    def test_keeps_what_the_queue_model_says_if_the_worker_says_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        run_jobs(3, Tidy)
        run_jobs(3, Tidy, callback=fail)
        monkeypatch.setattr(Tidy, "keep_success", 1)
        monkeypatch.setattr(Tidy, "keep_errors", 1)
        assert Pruner(Tidy, Error, keep_errors=2).prune(keys_of(Tidy)).deleted == 2 + 1
        assert [len(idents) for idents in listed(Tidy)] == [1, 2]

    def test_is_about_the_queues_it_is_given(self) -> None:
        run_jobs(2, name="queue")
        run_jobs(2, name="other")
        assert Pruner(Queue, Error, keep_success=0).prune(keys_of(Queue)).deleted == 2
        assert len(listed(name="other")[0]) == 2

    def test_is_bounded_and_the_next_one_goes_on_soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tasks, "MAX_STEPS", 1)
        run_jobs(PRUNE_LIMIT + 10)
        pruner = Pruner(Queue, Error, keep_success=0)
        context = parts_of(worker_of()).context
        monkeypatch.setattr(Context, "queue_keys", keys_of(Queue))
        assert pruner.run(context) < 1
        assert len(Job.collection(status=STATUSES.SUCCESS)) == 10
        assert pruner.run(context) > 1
        assert len(Job.collection(status=STATUSES.SUCCESS)) == 0

    def test_comes_past_jobs_of_unknown_classes_however_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tasks, "MAX_STEPS", 1)
        strange = [f"no.such.Job:{number}" for number in range(PRUNE_LIMIT * 2)]
        Queue.get_queue("queue").success.rpush(*strange)
        run_jobs(2)
        pruner = Pruner(Queue, Error, keep_success=0)
        assert sum(pruner.prune(keys_of(Queue)).deleted for _ in range(3)) == 2
        assert listed() == [strange, []]

    def test_says_what_could_not_be_deleted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Stubborn(Job):
            namespace = "pruning"

            def delete(self) -> None:
                raise ValueError("not me")

        monkeypatch.setattr(job_classes, "_resolved", {Stubborn.get_model_repr(): Stubborn})
        job = Stubborn.add_job("a", "queue")
        work("queue")
        found = Pruner(Queue, Error, keep_success=0).prune(keys_of(Queue))
        assert found.failures == {job.ident: "not me"}


class TestWhatIsRefused:
    @pytest.mark.parametrize("keep", [True, -1, 2.5, "7d", timedelta(seconds=-1)])
    def test_as_a_parameter(self, keep: Any) -> None:
        with pytest.raises(ConfigurationException, match="keep_success"):
            Pruner(Queue, Error, keep_success=keep)
        with pytest.raises(ConfigurationException, match="keep_errors"):
            Pruner(Queue, Error, keep_errors=keep)

    def test_as_an_attribute_of_the_queue_model(self) -> None:
        class Wrong(Queue):
            namespace = "pruning"
            keep_errors = -1

        with pytest.raises(ConfigurationException, match="keep_errors"):
            Pruner(Wrong, Error)

    def test_errors_that_cannot_be_found_by_their_job_only_if_they_are_to_be_pruned(self) -> None:
        class Lost(Error):
            namespace = "pruning"
            job_model_repr = fields.InstanceHashField()

        Pruner(Queue, Lost)
        with pytest.raises(ConfigurationException, match="'job_model_repr' of Lost"):
            Pruner(Queue, Lost, keep_success=1)


class TestTheOptions:
    @each("name", ["success", "errors"])
    @each(
        ("text", "value"),
        [
            ("1000", 1000),
            ("0", 0),
            ("7d", timedelta(days=7)),
            ("36h", timedelta(hours=36)),
            ("90m", timedelta(minutes=90)),
            ("30s", timedelta(seconds=30)),
        ],
    )
    def test_take_a_number_or_a_duration(self, parser: Any, name: str, text: str, value: Any) -> None:
        options, _ = parser.parse_args([f"--keep-{name}={text}"])
        assert getattr(options, f"keep_{name}") == value

    @each("text", ["7x", "-1", "1.5d", "", " 7", "d", "7 d", "nan", "\u0667", "9" * 30, "9" * 18 + "d"])
    def test_refuse_anything_else_in_one_line(self, parser: Any, capsys: Any, text: str) -> None:
        with pytest.raises(SystemExit) as exit_:
            parser.parse_args([f"--keep-success={text}"])
        error = capsys.readouterr().err
        assert exit_.value.code == 2
        assert error.count("\n") == 1
        assert "option --keep-success" in error


class TestWhatIsKeptForEver:
    """A worker that begins says so once that is much, unless it or the class of its queues limits it."""

    @pytest.fixture(autouse=True)
    def _many(self, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO", "limpyd-jobs")
        queue = Queue.get_queue("queue")
        redis_client.rpush(queue.success.key, *map(str, range(999)))
        redis_client.rpush(queue.errors.key, "1")

    def told(self, log: pytest.LogCaptureFixture, **options: Any) -> list[str]:
        log.clear()
        work(burst=True, **options)
        return [line for line in messages(log) if "are kept for ever" in line]

    def test_is_said_with_its_number_and_with_what_limits_it(self, caplog: pytest.LogCaptureFixture) -> None:
        assert self.told(caplog) == [
            "Finished jobs are kept for ever in these queues, 999 in success, 1 in errors so far: --keep-success and "
            "--keep-errors of workers limit that"
        ]

    def test_is_what_nothing_limits(self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
        Queue.get_queue("queue").success.rpush("another")
        monkeypatch.setattr(Queue, "keep_errors", timedelta(days=30))
        assert self.told(caplog) == [
            "Finished jobs are kept for ever in these queues, 1,000 in success so far: --keep-success of workers "
            "limits that"
        ]
        assert self.told(caplog, keep_success=10_000) == []

    def test_says_so_if_not_all_queues_were_counted(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("limpyd_jobs.workers.start.MAX_COUNTED", 1)
        Queue.get_queue("queue", 1)
        Queue.get_queue("queue", 2).success.rpush("another")  # the first one in turn
        monkeypatch.setattr("limpyd_jobs.workers.start.MANY_KEPT", 1)
        (line,) = self.told(caplog)
        assert "are kept for ever in the first 1 of these 3 queues, 1 in success, 0 in errors so far" in line

    def test_is_not_said_of_a_few(self, caplog: pytest.LogCaptureFixture) -> None:
        Queue.get_queue("queue").errors.lpop()
        assert self.told(caplog) == []
