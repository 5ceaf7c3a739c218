"""Names that are new in the models: an application may have fields, methods and attributes of the same names."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
import redis
from invariants import violations
from limpyd import fields
from parts import run_task
from running import delayed_and_due, work, worker_of
from test_surface import ROWS

from limpyd_jobs import STATUSES, Error, Job, Queue, Retry, Schedule, Worker
from limpyd_jobs.check import check
from limpyd_jobs.commands.pause import Pause, Resume
from limpyd_jobs.models import BaseJobsModel, datetime_to_score, defer_unresolved
from limpyd_jobs.transitions import MAX_DEFERRALS
from limpyd_jobs.workers.claiming.claimer import Claimer
from limpyd_jobs.workers.maintenance.tasks import Pruner

pytestmark = pytest.mark.usefixtures("redis_client")

LONG_AGO = datetime(2020, 1, 1)
MODELS = {Job: "Work", Queue: "Shelf", Error: "Mishap"}
HOOKS = {"on_rescued", "on_released", "on_scheduled"}


def new_names(model: type) -> set[str]:
    """The names that version 2 does not have, those of limpyd aside."""
    documented = {row.item.rpartition(".")[2] for row in ROWS if row.item.partition(".")[0] == model.__name__}
    names = {*dir(model), *model._fields} - {*dir(BaseJobsModel)} - documented - {"pk", "_get_queue_name"}
    ours = {name for name in names if not name.startswith(("__", "_redis_attr_")) and name not in model._fields}
    return (ours | ({"error"} if model is Queue else set())) - {"_creation_source", "_name"}


NEW = {model: new_names(model) for model in MODELS}


def odd(self: Any, here: Any, there: Any, *, why: Any) -> tuple[Any, ...]:
    """A method that nobody but the application can call."""
    return here, there, why


def as_hash_field(name: str) -> Any:
    return fields.InstanceHashField(indexable=True, default="theirs")


def as_list_field(name: str) -> Any:
    return fields.ListField()


def as_method(name: str) -> Any:
    return odd


def as_attribute(name: str) -> Any:
    return f"their {name}"


class Family:
    """The models of an application that has something of its own under every new name."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.queue = self._make(Queue)
        self.error = self._make(Error)
        self.job = self._make(Job, queue_model=self.queue, queue_name="queue")
        self.all = (self.job, self.queue, self.error)

    def _make(self, base: type, **attributes: Any) -> Any:
        names = NEW[base] | (HOOKS if base is Job and self.kind is not as_method else set())
        name = f"{MODELS[base]}{self.kind.__name__.title().replace('_', '')}"
        theirs = {each: self.kind(each) for each in names}
        model = type(base)(name, (base,), {"__module__": __name__, "namespace": "names", **theirs, **attributes})
        globals()[name] = model
        return model

    def fill(self, record: Any) -> None:
        """Give a record values of its own."""
        if self.kind is as_list_field:
            for name in names_of(record):
                record.get_field(name).rpush("theirs")

    def check(self, record: Any) -> None:
        """What is theirs is as they left it."""
        for name in names_of(record):
            found = getattr(record, name)
            if self.kind is as_hash_field:
                assert found.hget() == "theirs", name
                assert record.pk.get() in list(type(record).collection(**{name: "theirs"})), name
            elif self.kind is as_list_field:
                assert found.lmembers() == ["theirs"], name
            elif self.kind is as_method:
                assert found(1, 2, why=3) == (1, 2, 3), name
            else:
                assert found == f"their {name}"


FAMILIES = {kind.__name__: Family(kind) for kind in (as_hash_field, as_list_field, as_method, as_attribute)}


def names_of(record: Any) -> set[str]:
    return next(names for model, names in NEW.items() if isinstance(record, model))


class WithAHook(Worker):
    """Has a hook, so that a job that failed is put back step by step."""

    def job_error_message(self, *args: Any, **kwargs: Any) -> str:
        return super().job_error_message(*args, **kwargs)


def callback(job: Job, queue: Queue) -> None:
    if job._cached_identifier.startswith("fails"):
        raise ValueError(job._cached_identifier)


def run(family: Family, number: int, worker_class: type[Worker] = Worker, **options: Any) -> None:
    """Run some jobs, in order."""
    models = {"queue_model": family.queue, "error_model": family.error}
    work(callback=callback, worker_class=worker_class, max_loops=number, **models, **options)


def test_the_names_are_found() -> None:
    assert {"job_timeout", "cancel", "schedules", "rescues"} <= NEW[Job]
    assert {"iterate", "step", "attempt_token", "cursor", "max_run_time", "start_within", "retry_for"} <= NEW[Job]
    assert {"running", "quarantine", "deferrals", "prune", "pause", "error", "keep_success"} <= NEW[Queue]
    ours = {"add_unresolved_error", "app_version", "fingerprint", "max_error_bytes", "message_pattern", "raised_in"}
    assert NEW[Error] == ours
    assert [name for names in NEW.values() for name in names if name.startswith("_")] == []


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
class TestAnApplicationOfItsOwnNames:
    @pytest.mark.matrix(1)
    def test_lives_as_before(self, redis_client: redis.Redis, family: Family) -> None:
        jobs = [family.job.add_job(identifier) for identifier in ("a", "fails", "fails again", "up")]
        records = [*jobs, family.queue.get_queue("queue")]
        for record in records:
            family.fill(record)
        assert family.job.add_job("up", priority=2).pk.get() == jobs[3].pk.get()
        run(family, 4, requeue_times=1, requeue_priority_delta=-1, requeue_delay_delta=None)
        assert [job.status.hget() for job in jobs] == ["s", "w", "w", "s"]
        run(family, 2, WithAHook)
        assert [job.status.hget() for job in jobs] == ["s", "e", "e", "s"]
        jobs[1].requeue()
        jobs[2].requeue(delayed_for=1000)
        assert [jobs[number].status.hget() for number in (1, 2)] == ["w", "d"]
        for error in family.error.collection().instances():
            family.fill(error)
            family.check(error)
        for record in records:
            family.check(record)
        assert len(list(family.error.collection_for_job(jobs[1]))) == 2
        assert violations(redis_client, *family.all) == []
        assert check(pause=0, queue_models=[family.queue], error_models=[family.error]).findings == []

    def test_is_delayed_and_rescued_and_deleted(self, redis_client: redis.Redis, family: Family) -> None:
        due = delayed_and_due(family.job, "due")
        run(family, 1)
        assert due.status.hget() == STATUSES.SUCCESS

        lapsed = family.job.add_job("lapsed")
        worker = worker_of(queue_model=family.queue, error_model=family.error)
        worker.update_keys()
        key = lapsed.hmget("_queue_key")[0]
        assert Claimer(family.queue, 60).next(worker.keys).ident == lapsed.ident
        redis_client.zadd(f"{key}:_running", {lapsed.ident: 1})
        run_task(worker, "rescuer")
        assert lapsed.status.hget() == STATUSES.WAITING
        run(family, 1, keep_success=timedelta(0))
        Pruner(family.queue, family.error).prune([key])
        assert violations(redis_client, *family.all) == []

    def test_is_paused_and_deferred(
        self, redis_client: redis.Redis, family: Family, capsys: pytest.CaptureFixture[str]
    ) -> None:
        family.job.add_job("a")
        model = f"--queue-model={__name__}.{family.queue.__name__}"
        for command in (Pause, Resume):
            assert command("limpyd-jobs", [model, "queue"]).execute() == 0
        assert capsys.readouterr().out == "queue: paused\nqueue: resumed\n"
        key = family.queue.get_queue("queue").waiting.key
        redis_client.rpush(key, "not_here.Job:7")
        for _ in range(MAX_DEFERRALS + 1):
            defer_unresolved(family.queue, key, "not_here.Job:7", ImportError("gone"), family.error)
        assert [error.type.hget() for error in family.error.collection().instances()] == ["ImportError"]
        assert family.queue.count_waiting_jobs("queue") == 1

    def test_may_have_schedules(self, redis_client: redis.Redis, family: Family) -> None:
        schedule = Schedule.add("often", family.job, interval=3600, **given(family))
        schedule.next_run.hset(str(LONG_AGO))
        redis_client.zadd(f"{Schedule._name}:due", {schedule.pk.get(): datetime_to_score(LONG_AGO)})
        worker = worker_of(queue_model=family.queue, error_model=family.error)
        run_task(worker, "scheduler")
        (job,) = family.job.collection().instances()
        run(family, 1)
        assert job.status.hget() == STATUSES.SUCCESS
        if family.kind is as_hash_field:
            assert job.job_timeout.hget() == "theirs, too"


def given(family: Family) -> Mapping[str, Any]:
    return {"job_timeout": "theirs, too"} if family.kind is as_hash_field else {}


class Partly(Job):
    """Has one of the names only."""

    namespace = "names"
    queue_name = "queue"
    rescues = fields.InstanceHashField()

    def cancel(self, why: str) -> str:
        return why


def test_the_other_names_mean_what_they_do(redis_client: redis.Redis) -> None:
    job = Partly.add_job("a", rescues="many", job_timeout=7, retry_policy=Retry(times=2, delay=3))
    assert redis_client.hget(job.key, "rescues") == "many" == job.rescues.hget()
    assert (job.cancel("why"), job.job_timeout.hget(), job.retry_policy.hget()[:7]) == ("why", "7", "delay=3")
    assert redis_client.hget(job.key, "_job_timeout") == "7"
    job.job_timeout.hset(8)
    assert Partly.get(job.pk.get()).job_timeout.hget() == "8"


def test_what_the_application_made_of_a_name_is_given_to_add_job() -> None:
    family = FAMILIES["as_hash_field"]
    job = family.job.add_job("a", job_timeout="soon", retry_policy="never")
    assert job.hmget("job_timeout", "_job_timeout", "retry_policy", "_retry_policy") == ["soon", None, "never", None]
    with pytest.raises(AttributeError, match="job_timeout"):
        FAMILIES["as_method"].job.add_job("b", job_timeout=7)


@pytest.mark.parametrize("name", ["claim_token", "_claim_token", "_job_timeout"])
def test_what_only_the_library_writes_is_no_field_of_a_new_job(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        Partly.add_job("a", **{name: "x"})
