"""The executor of APScheduler: what is due becomes a job of a queue, once, and is run by our workers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from cases import each
from servers import RedisServer, wait_until

pytest.importorskip("apscheduler")

from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import STATE_RUNNING

from limpyd_jobs import STATUSES, Error, Queue, Worker
from limpyd_jobs.contrib.apscheduler import LimpydExecutor, LimpydJobStore, PickledRun, ScheduledRun
from limpyd_jobs.contrib.apscheduler.functions import AllowedFunctions
from limpyd_jobs.models import job_classes

pytestmark = pytest.mark.usefixtures("redis_client")

PAST = datetime.now(timezone.utc).replace(microsecond=5) - timedelta(minutes=1)
HOUR = timedelta(hours=1)
ran: list[Any] = []


def note(*args: Any, **kwargs: Any) -> None:
    ran.append((args, kwargs))


async def note_later(*args: Any) -> None:
    await asyncio.sleep(0)
    ran.append(args)


def fail() -> None:
    raise LookupError("no such thing")


class Run(ScheduledRun):
    allowed = (__name__,)


class RunOfPickles(PickledRun):
    allowed = (__name__,)


class Thing:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing)

    __hash__ = None  # type: ignore[assignment]


class Trap:
    """Notes what is asked for, and what is called."""

    @property
    def caught(self) -> None:
        ran.append("caught")

    @classmethod
    def note(cls) -> None:
        ran.append(cls.__name__)

    @staticmethod
    def note_static() -> None:
        ran.append("static")


class Sprung(Trap):
    pass


trap = Trap()

made_here: list[BackgroundScheduler] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> Iterator[None]:
    ran.clear()
    yield
    while made_here:
        made_here.pop()._jobstores["default"].shutdown()


def make(executor: LimpydExecutor | None = None, **options: Any) -> BackgroundScheduler:
    """A scheduler whose rounds are made by the test."""
    made = BackgroundScheduler(timezone="UTC", job_defaults={"misfire_grace_time": None, **options})
    made.add_jobstore(LimpydJobStore(serializer="pickle"))
    made.add_executor(executor or LimpydExecutor(job_class=Run))
    made.state, made._event = STATE_RUNNING, Event()
    made._jobstores["default"].start(made, "default")
    made._executors["default"].start(made, "default")
    made_here.append(made)
    return made


def work() -> None:
    Worker(queues="apscheduler", burst=True).run()


def test_what_is_due_is_run_by_a_worker() -> None:
    scheduler = make()
    scheduler.add_job(note, "date", run_date=PAST, id="a", args=[1, b"\xff"], kwargs={"x": None})
    scheduler._process_jobs()
    assert ran == []
    assert Queue.count_waiting_jobs("apscheduler") == 1
    work()
    assert ran == [((1, b"\xff"), {"x": None})]
    (job,) = Run.collection(scheduled="a").instances()
    assert job.identifier.hget() == f"a:{PAST:%Y-%m-%dT%H:%M:%S.%fZ}"
    assert job.status.hget() == STATUSES.SUCCESS


def test_a_grace_time_may_be_longer_than_any_time() -> None:
    scheduler = make()
    scheduler.add_job(note, "date", run_date=PAST, misfire_grace_time=10**14)
    scheduler._process_jobs()
    work()
    assert len(ran) == 1


def test_a_coroutine_is_run_to_its_end() -> None:
    scheduler = make()
    scheduler.add_job(note_later, "date", run_date=PAST, args=[5])
    scheduler._process_jobs()
    work()
    assert ran == [(5,)]


def test_each_run_that_was_missed_is_one_job_unless_they_coalesce() -> None:
    for coalesce in (False, True):
        scheduler = make(coalesce=coalesce, max_instances=5)
        job_id = f"coalesce {coalesce}"
        begun = datetime.now(timezone.utc) - 3.5 * HOUR
        scheduler.add_job(note, "interval", hours=1, next_run_time=begun, id=job_id)
        scheduler._process_jobs()
        assert len(Run.collection(scheduled=job_id)) == (1 if coalesce else 4)


def test_a_run_is_added_once_even_after_it_ended() -> None:
    scheduler = make()
    job = scheduler.add_job(note, "interval", hours=1, next_run_time=PAST, id="a")
    executor = scheduler._executors["default"]
    for _ in range(3):
        executor.submit_job(job, [PAST])
        work()
    assert len(ran) == 1
    executor.submit_job(job, [PAST + HOUR])
    work()
    assert len(ran) == 2


def test_so_many_are_queued_at_once_whatever_scheduler_added_them() -> None:
    told: list[Any] = []
    first, second = make(max_instances=2), make(max_instances=2)
    second.add_listener(told.append, EVENT_JOB_MAX_INSTANCES)
    job = first.add_job(note, "interval", seconds=1, next_run_time=PAST, id="a")
    first._executors["default"].submit_job(job, [PAST, PAST + HOUR])
    second._process_jobs()
    assert [event.job_id for event in told] == ["a"]
    work()
    assert len(ran) == 2


def test_what_is_submitted_too_late_is_missed() -> None:
    told: list[Any] = []
    scheduler = make(misfire_grace_time=5)
    scheduler.add_listener(told.append, EVENT_JOB_MISSED)
    scheduler.add_job(note, "date", run_date=PAST, id="a")
    scheduler._process_jobs()
    assert [(event.job_id, event.scheduled_run_time) for event in told] == [("a", PAST)]
    assert len(Run.collection()) == 0
    assert scheduler.get_jobs() == []


def test_what_was_added_is_run_however_long_it_waited() -> None:
    call = '{"misfire_grace_time":1,"args":["late"]}'  # earlier versions wrote the grace time with it
    values = {"scheduled": "a", "slot": "a", "run_time": PAST, "func": f"{__name__}:note", "call": call}
    Run.add_job("a", **values)
    work()
    assert ran == [(("late",), {})]


def test_what_fails_is_an_error_like_any_other() -> None:
    scheduler = make()
    scheduler.add_job(fail, "date", run_date=PAST, id="a")
    scheduler._process_jobs()
    work()
    assert [error.message.hget() for error in Error.collection().instances()] == ["no such thing"]


def test_json_takes_what_comes_back_the_same_and_a_pickle_more() -> None:
    scheduler = make()
    job = scheduler.add_job(note, "interval", hours=1, next_run_time=PAST, id="a", args=[Thing()])
    with pytest.raises(TypeError, match="argument 0 of the job 'a'"):
        scheduler._executors["default"].submit_job(job, [PAST])
    LimpydExecutor(job_class=RunOfPickles).submit_job(job, [PAST])
    work()
    assert ran == [((Thing(),), {})]


def test_what_cannot_be_stored_stays_due_until_it_can(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = make()
    scheduler.jobstore_retry_interval = 0.001
    scheduler.add_job(note, "date", run_date=PAST, id="a", args=[Thing()])
    scheduler._process_jobs()
    assert "The argument 0 of the job 'a'" in caplog.text
    assert [job.id for job in scheduler.get_jobs()] == ["a"]
    pickled = LimpydExecutor(job_class=RunOfPickles)
    pickled.start(scheduler, "default")
    scheduler._executors["default"] = pickled
    wait_until(lambda: scheduler._process_jobs() is None or scheduler.get_jobs() == [])
    work()
    assert ran == [((Thing(),), {})]


def test_a_pickle_is_not_read_by_a_class_that_does_not_say_so() -> None:
    scheduler = make()
    job = scheduler.add_job(note, "interval", hours=1, id="a", args=[Thing()])
    text = RunOfPickles.serializer.dump_call(job, misfire_grace_time=None)
    values = {"scheduled": "a", "slot": "a", "run_time": PAST, "func": f"{__name__}:note", "call": text}
    Run.add_job("a", **values)
    work()
    assert ran == []
    assert "pickle" in next(iter(Error.collection().instances())).message.hget()


@pytest.fixture
def nothing_allowed() -> Iterator[None]:
    yield
    job_classes.allow(None)


def run_of(func: str, job_class: type[ScheduledRun] = ScheduledRun) -> str:
    """Run a job that calls a function; return the message of its error, if there is one."""
    job_class.add_job("a", scheduled="a", slot="a", run_time=PAST, func=func, call='{"args":[]}')
    work()
    return "".join(error.message.hget() for error in Error.collection().instances())


def test_no_function_is_called_that_is_not_allowed() -> None:
    assert run_of(f"{__name__}:note") == (
        f"The function '{__name__}:note' is not called, because no module is allowed: name its module in `allowed` of "
        "the class limpyd_jobs.contrib.apscheduler.executor.ScheduledRun, or with --job-modules"
    )
    assert ran == []


@pytest.mark.usefixtures("nothing_allowed")
def test_functions_of_the_modules_of_jobs_of_the_worker_are_allowed() -> None:
    job_classes.allow([__name__, "limpyd_jobs.contrib.apscheduler"])
    assert run_of(f"{__name__}:note") == ""
    assert ran == [((), {})]


@pytest.mark.usefixtures("nothing_allowed")
@pytest.mark.parametrize(
    "func",
    [
        "os:system",
        f"{__name__}:wait_until",
        f"{__name__}:__main__",
        f"{__name__}.__main__:note",
        f"{__name__}:ran.append",
        "limpyd_jobs.contrib.apscheduler:RunOfPickles.serializer.load_call",
        f"{__name__}:RunOfPickles.serializer.load_call",
        f"{__name__}:trap.caught",
        f"{__name__}:Trap.caught",
        f"{__name__}:Trap.note.__call__",
        "",
        ":",
    ],
)
def test_others_are_not(func: str) -> None:
    job_classes.allow([__name__, "limpyd_jobs.contrib.apscheduler"])
    assert "is in none of the modules that are allowed" in run_of(func)
    assert ran == []


def test_methods_that_need_no_object_are_called() -> None:
    for number, name in enumerate(["Trap.note", "Trap.note_static", "Sprung.note"]):
        Run.add_job(
            f"{number}", scheduled="a", slot=f"{number}", run_time=PAST, func=f"{__name__}:{name}", call='{"args":[]}'
        )
    work()
    assert ran == ["Trap", "static", "Sprung"]


def test_neither_the_program_of_an_allowed_package_is_run_nor_what_its_modules_make_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "apscheduler_package"
    package.mkdir()
    lazy = "from importlib import import_module\ndef __getattr__(name): return import_module(f'{__name__}.{name}')"
    (package / "__init__.py").write_text(lazy)
    (package / "jobs.py").write_text("import apscheduler_package as lazy")
    for name in ("__main__", "heavy"):
        (package / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    functions = AllowedFunctions([package.name], "the job store")
    for func in ("__main__:f", "__main__.below:f", "jobs:lazy.heavy", "jobs:lazy.__main__"):
        with pytest.raises(ValueError, match="none of the modules that are allowed"):
            functions.check(f"{package.name}.{func}")
    with pytest.raises(ValueError, match="none of the modules that are allowed"):
        functions.check(f"{package.name}:__main__")
    assert {name for name in sys.modules if name.startswith(package.name)} == {package.name, f"{package.name}.jobs"}


def test_what_the_class_says_counts_more_than_the_modules_of_jobs() -> None:
    assert "none of the modules that are allowed" in run_of("os.path:join", Run)


def test_pickles_are_for_a_class_of_the_application() -> None:
    with pytest.raises(ValueError, match="PickledRun' is abstract, so there are no jobs of it"):
        job_classes.resolve("limpyd_jobs.contrib.apscheduler.executor.PickledRun")


def test_it_may_be_named_by_its_entry_point(redis_server: RedisServer) -> None:
    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.add_executor("limpyd", url=f"unix://{redis_server.socket}?db=3", queue_name="nightly", priority=5)
    executor = scheduler._executors["default"]
    assert executor.job_class.database.connection_settings["db"] == 3
    assert executor._place == {"queue_name": "nightly", "priority": 5}


@pytest.mark.parametrize("trigger", [{"trigger": "date", "run_date": PAST}, {"trigger": "interval", "hours": 1}])
def test_a_run_that_cannot_be_added_right_now_stays_due(redis_binary: str, trigger: Any) -> None:
    with RedisServer(redis_binary) as server:
        scheduler = make(LimpydExecutor(server.url, job_class=Run))
        scheduler.jobstore_retry_interval = 0.2
        first = PAST if trigger["trigger"] == "interval" else None
        scheduler.add_job(note, id="a", **trigger, **({"next_run_time": first} if first else {}))
        server.stop()
        wait = scheduler._process_jobs()
        assert wait is not None
        assert 0 < wait <= 1
        assert scheduler.get_job("a").next_run_time == PAST
        server.start()
        runs = LimpydExecutor(server.url, job_class=Run).job_class
        wait_until(lambda: scheduler._process_jobs() is None or len(runs.collection()) == 1)
        (run,) = runs.collection().instances()
        assert run.identifier.hget() == f"a:{PAST:%Y-%m-%dT%H:%M:%S.%fZ}"
        assert (scheduler.get_job("a") is None) == (trigger["trigger"] == "date")


def test_runs_of_which_some_were_added_before_redis_failed_are_all_added(
    redis_binary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RedisServer(redis_binary) as server:
        executor = LimpydExecutor(server.url, job_class=Run)
        scheduler = make(executor, coalesce=False, max_instances=1)
        scheduler.jobstore_retry_interval = 0.2
        scheduler.add_job(note, "interval", minutes=1, id="a", next_run_time=PAST - 3 * timedelta(minutes=1))
        add = executor.job_class.add_job

        def add_and_stop(*args: Any, **kwargs: Any) -> Any:
            added = add(*args, **kwargs)
            server.client().save()
            server.stop()
            return added

        monkeypatch.setattr(executor.job_class, "add_job", add_and_stop)
        scheduler._process_jobs()
        monkeypatch.undo()
        server.start()
        assert len(executor.job_class.collection()) == 1
        wait_until(lambda: scheduler._process_jobs() is None or len(executor.job_class.collection()) > 3)


@each(
    ("arguments", "wrong"),
    [
        ({"priority": "x"}, "priority must be an integer, not 'x'"),
        ({"priority": 1.5}, "priority must be an integer"),
        ({"job_class": dict}, "job_class must be a subclass of ScheduledRun"),
        ({"job_class": PickledRun}, "PickledRun is abstract: define a subclass"),
        ({"job_class": "myapp:Run"}, "job_class must be a subclass of ScheduledRun"),
        ({"queue_name": ""}, "name of a queue must be neither empty nor have a comma"),
        ({"queue_name": "a,b"}, "name of a queue must be neither empty nor have a comma"),
        ({"queu_name": "a"}, "'queu_name' is neither an argument of this class nor of redis.Redis"),
        ({"port": "abc"}, "port must be an integer of 0 or more, not 'abc'"),
    ],
)
def test_invalid_arguments_are_refused(arguments: Any, wrong: str) -> None:
    with pytest.raises((TypeError, ValueError), match=wrong):
        LimpydExecutor(**arguments)
