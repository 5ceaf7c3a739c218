"""What can be stored of a job of APScheduler, and where."""

from __future__ import annotations

import json
import pickle
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import redis
from cases import each
from servers import RedisServer

pytest.importorskip("apscheduler")
from appointments import FUTURE, NOW, PARIS, PAST, TO_DO, Meanwhile, note, ran, round_of, store_of, stored
from apscheduler.jobstores.redis import RedisJobStore as TheirStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

from limpyd_jobs.contrib.apscheduler import LimpydExecutor, LimpydJobStore, RedisJobStore, ScheduledJob
from limpyd_jobs.models import job_classes
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.schedules.triggers import describe_trigger

pytestmark = pytest.mark.usefixtures("redis_client")


class TestWhatCanBeStored:
    @pytest.mark.parametrize(
        ("options", "wrong"),
        [
            ({"args": [1, object()]}, "argument 1 of the job 'a'"),
            ({"args": [(1, 2)]}, "argument 0 of the job 'a'"),
            ({"kwargs": {"when": NOW}}, "argument 'when' of the job 'a'"),
            ({"kwargs": {"what": {1: 2}}}, "argument 'what' of the job 'a'"),
        ],
    )
    def test_as_json_is_what_comes_back_the_same(self, scheduler: Any, options: Any, wrong: str) -> None:
        with pytest.raises(TypeError, match=wrong):
            scheduler().add_job(note, "date", run_date=FUTURE, id="a", **options)
        assert stored("a") == {}

    @pytest.mark.parametrize(
        ("options", "wrong"),
        [
            ({"args": [1, "\ud800"]}, "argument 1 of the job 'a' has half of a character"),
            ({"kwargs": {"what": {"deep": ["\udfff"]}}}, "argument 'what' of the job 'a' has half of a character"),
        ],
    )
    def test_has_whole_characters(self, scheduler: Any, options: Any, wrong: str) -> None:
        with pytest.raises(ValueError, match=wrong):
            scheduler().add_job(note, "date", run_date=FUTURE, id="a", **options)
        assert stored("a") == {}

    @pytest.mark.parametrize(
        "trigger",
        [
            IntervalTrigger(hours=2, start_date=PAST, end_date=FUTURE, timezone="UTC"),
            IntervalTrigger(seconds=0.5, start_date=datetime(1960, 1, 1, 0, 0, 0, 5, timezone.utc), timezone="UTC"),
            IntervalTrigger(days=1, start_date=PAST.astimezone(PARIS), end_date=FUTURE, timezone="Europe/Paris"),
            IntervalTrigger(days=1, start_date=datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=PARIS), timezone=PARIS),
            IntervalTrigger(days=1, start_date=PAST.astimezone(PARIS), timezone="UTC"),
            IntervalTrigger(days=1, start_date=PAST, timezone=timezone(timedelta(hours=-5))),
            CronTrigger(hour=3, start_date=PAST, timezone="UTC"),
            CronTrigger(hour="*/2", jitter=5, end_date=FUTURE, timezone="Europe/Paris"),
            CalendarIntervalTrigger(months=1, start_date=FUTURE.date(), timezone="UTC"),
            DateTrigger(FUTURE, timezone="UTC"),
            OrTrigger([IntervalTrigger(hours=2, start_date=PAST, timezone="Europe/Paris"), DateTrigger(FUTURE)]),
        ],
    )
    def test_of_a_trigger_is_all(self, scheduler: Any, trigger: Any) -> None:
        scheduler().add_job(note, trigger, id="a")
        assert describe_trigger(scheduler().get_job("a").trigger) == describe_trigger(trigger)

    @pytest.mark.parametrize("zone", ["UTC", "Europe/Paris"])
    def test_takes_little_room(self, scheduler: Any, redis_client: redis.Redis, zone: str) -> None:
        start = PAST.astimezone(ZoneInfo(zone))
        scheduler().add_job(note, "interval", hours=1, start_date=start, timezone=zone, args=[1, "text"], id="a")
        assert redis_client.object("encoding", "apscheduler:scheduledjob:a:hash") in ("listpack", "ziplist")

    def test_was_stored_at_greater_length_before(self, scheduler: Any) -> None:
        made = scheduler()
        made.add_job(note, "interval", hours=1, start_date=PAST, next_run_time=PAST, id="a")
        trigger = {"interval": {"start_date": PAST.isoformat(), "timezone": "Europe/Paris", "seconds": 3600.0}}
        ScheduledJob.change(
            "a", {"trigger": json.dumps(trigger), "state": '{"misfire_grace_time":null,"args":["old"],"kwargs":{}}'}
        )
        assert describe_trigger(made.get_job("a").trigger) == trigger
        assert (round_of(made) or 0) > 20
        assert ran == [(("old",), {})]

    def test_as_a_pickle_is_more(self, scheduler: Any) -> None:
        made = scheduler(LimpydJobStore(serializer="pickle"))
        made.add_job(note, "date", run_date=PAST, id="a", args=[(1, 2), NOW])
        round_of(made)
        assert ran == [(((1, 2), NOW), {})]

    @pytest.mark.parametrize(
        ("args", "is_json"),
        [([1, "text", None], True), ([1.5, [True]], True), ([(1,)], False), (["\ud800"], False), ([{1: 2}], False)],
    )
    def test_as_a_pickle_only_if_json_cannot_hold_it(self, scheduler: Any, args: list[Any], is_json: bool) -> None:
        made = scheduler(LimpydJobStore(serializer="pickle"))
        made.add_job(note, "date", run_date=PAST, id="a", args=args, misfire_grace_time=3600, max_instances=3)
        assert stored("a")["state"].startswith("{") is is_json
        assert stored("a")["trigger"].startswith("{")
        found = made.get_job("a")
        assert (found.args, found.misfire_grace_time, found.max_instances) == (tuple(args), 3600, 3)
        round_of(made)
        assert ran == [(tuple(args), {})]

    def test_a_pickle_is_not_read_by_who_reads_json(self, scheduler: Any, redis_client: redis.Redis) -> None:
        made = scheduler(LimpydJobStore(serializer="pickle"))
        for name in "ab":
            made.add_job(note, "date", run_date=PAST, id=name, args=[Bomb()])
        redis_client.hset("apscheduler:scheduledjob:b:hash", "state", "[]")
        assert store_of(scheduler()).get_due_jobs(NOW) == []
        assert "it is stored as a pickle" in stored("a")["reason"]
        assert "it is neither a JSON object nor a pickle: []" in stored("b")["reason"]
        assert ran == []

    def test_no_function_is_called_that_is_not_allowed(self, scheduler: Any) -> None:
        with pytest.raises(ValueError, match="no module is allowed: name its module in `allowed` of the job"):
            scheduler(LimpydJobStore()).add_job(note, "date", run_date=PAST, id="a")
        scheduler().add_job(note, "date", run_date=PAST, id="a", args=["true"])
        ScheduledJob.get("a").func.hset("os:system")
        assert store_of(scheduler(LimpydJobStore())).get_due_jobs(NOW) == []
        assert "name its module in `allowed` of the job store, or with --job-modules" in stored("a")["reason"]

    def test_functions_of_the_modules_of_jobs_are_allowed(self, scheduler: Any) -> None:
        job_classes.allow("appointments")
        try:
            made = scheduler(LimpydJobStore())
            made.add_job(note, "date", run_date=PAST, id="a")
            round_of(made)
        finally:
            job_classes.allow(None)
        assert ran == [((), {})]

    def test_functions_may_be_limited_to_some_modules(self, scheduler: Any) -> None:
        with pytest.raises(ValueError, match="none of the modules that are allowed"):
            scheduler(LimpydJobStore(allowed=["shop"])).add_job(note, "date", run_date=PAST, id="a")
        scheduler().add_job(note, "date", run_date=PAST, id="a")
        assert store_of(scheduler(LimpydJobStore(allowed=["shop"]))).get_due_jobs(NOW) == []
        assert "none of the modules" in stored("a")["reason"]
        assert scheduler(LimpydJobStore(allowed=[__name__, "appointments"])).get_job("a").id == "a"

    @pytest.mark.parametrize("func", ["os:system", "posix:system", f"{__name__}:pytest.skip", "appointments:timedelta"])
    def test_what_an_allowed_module_imports_is_not_allowed(
        self, scheduler: Any, redis_client: redis.Redis, func: str
    ) -> None:
        made = scheduler(LimpydJobStore(allowed=[__name__, "appointments"]))
        with pytest.raises(ValueError, match="none of the modules that are allowed"):
            made.add_job(func, "date", run_date=PAST, id="a", args=["true"])
        made.add_job(note, "date", run_date=PAST, id="b", args=["true"])
        ScheduledJob.get("b").func.hset(func)
        round_of(made)
        assert "none of the modules" in stored("b")["reason"]


class Bomb:
    def __reduce__(self) -> Any:
        return note, ("boom",)


class TestBadArguments:
    @each(
        "arguments",
        [
            {"db": None},
            {"jobs_key": ""},
            {"run_times_key": ""},
            {"lease": 0},
            {"lease": -1},
            {"lease": float("nan")},
            {"look_again": 0},
        ],
    )
    def test_of_the_store_that_takes_over_are_refused(self, arguments: Any) -> None:
        with pytest.raises(ValueError, match="must"):
            RedisJobStore(**arguments)

    @each("arguments", [{"lease": True}, {"lease": "x"}, {"namespace": ""}, {"serializer": "yaml"}, {"lease": None}])
    def test_are_refused(self, arguments: Any) -> None:
        with pytest.raises(ValueError, match="must"):
            LimpydJobStore(**arguments)

    @each(
        ("arguments", "told"),
        [
            ({"nonsense": 5}, "'nonsense' is neither an argument of this class nor of redis.Redis"),
            ({"allowed": 5}, r"allowed must be a list of modules, as \['myapp.jobs'\], not 5"),
            ({"allowed": [3]}, r"allowed must be a list of modules, as \['myapp.jobs'\], not \[3\]"),
            ({"url": 5}, "url must be a text"),
            ({"url": "redis://x", "client": redis.Redis()}, "Say once where Redis is: give url or client"),
            ({"client": redis.Redis(), "port": 5}, "'port' is a setting of the client: give one of them"),
            ({"pickle_protocol": "x"}, "pickle_protocol must be from 0 to"),
            ({"pickle_protocol": 99}, "pickle_protocol must be from 0 to"),
        ],
    )
    @each("store_class", [LimpydJobStore, RedisJobStore])
    def test_are_named_if_they_are_wrong(self, store_class: Any, arguments: Any, told: str) -> None:
        with pytest.raises((TypeError, ValueError), match=told):
            store_class(**arguments)

    @each("db", [None, "x", -1, True, 1.5, ""])
    @each("host_class", [LimpydJobStore, LimpydExecutor, RedisJobStore])
    def test_a_database_is_a_number(self, host_class: Any, db: Any) -> None:
        with pytest.raises(ValueError, match=r"^(The \"db\" parameter|db) must"):
            host_class(db=db)

    def test_a_database_may_be_text_as_in_a_file_of_settings(self, redis_server: RedisServer) -> None:
        store = LimpydJobStore(unix_socket_path=redis_server.socket, db="3")
        assert [*store.jobs] == []
        assert store.model.get_connection().connection_pool.connection_kwargs["db"] in (3, "3")

    def test_a_namespace_is_that_of_another_store(self) -> None:
        with pytest.raises(TypeError, match="has no namespace: its jobs_key"):
            RedisJobStore(namespace="x")

    def test_another_serializer_is_that_of_another_store(self) -> None:
        with pytest.raises(TypeError, match=r"take LimpydJobStore, and its import_jobs\(\)"):
            RedisJobStore(serializer="json")

    def test_one_module_for_a_list_of_them_is_refused(self) -> None:
        with pytest.raises(TypeError, match=r"as \['shop'\]"):
            LimpydJobStore(allowed="shop")

    def test_seconds_may_be_text_as_in_a_file_of_settings(self) -> None:
        store = LimpydJobStore(lease="2.5", look_again="60")
        assert (store.lease, store.look_again) == (2.5, 60)


class TestWhereItIs:
    def test_is_for_the_user_to_say(self, redis_server: RedisServer) -> None:
        socket = redis_server.socket
        stores = [
            LimpydJobStore(f"unix://{socket}?db=7"),
            LimpydJobStore(unix_socket_path=socket, db=7),
            LimpydJobStore(client=redis.Redis(unix_socket_path=socket, db=7)),
            LimpydJobStore(database=JobsDatabase(unix_socket_path=socket, db=7)),
        ]
        assert all(store.model.database.connection_settings["db"] == 7 for store in stores)
        assert LimpydJobStore().model is ScheduledJob

    def test_is_the_one_of_a_url_a_client_or_a_pool_also_in_the_place_of_theirs(
        self, redis_server: RedisServer
    ) -> None:
        where = {"unix_socket_path": redis_server.socket, "db": 7}
        stores = [
            RedisJobStore(url=f"unix://{redis_server.socket}?db=7"),
            RedisJobStore(client=redis.Redis(**where)),
            RedisJobStore(database=JobsDatabase(**where)),
            RedisJobStore(connection_pool=redis.Redis(**where).connection_pool),
            RedisJobStore(db=7, url=f"unix://{redis_server.socket}?db=5"),
        ]
        assert [store.model.database.connection_settings["db"] for store in stores] == [7] * 5
        assert stores[3].get_all_jobs() == []
        assert RedisJobStore().model.database.connection_settings["db"] == 0

    def test_may_be_named_by_its_entry_point(self, redis_server: RedisServer) -> None:
        made = BackgroundScheduler(timezone="UTC")
        made.add_jobstore("limpyd", url=f"unix://{redis_server.socket}", namespace="shop")
        assert made._jobstores["default"].model._name == "shop:scheduledjob"


class TestTheirJobs:
    def test_are_taken_over(self, scheduler: Any, redis_server: RedisServer, redis_client: redis.Redis) -> None:
        where = {"unix_socket_path": redis_server.socket, "db": 0}
        theirs = scheduler(TheirStore(**where))
        theirs.add_job(note, "interval", hours=1, id="a", args=[(1, NOW)])
        theirs.add_job(note, "date", run_date=FUTURE, id="b")
        redis_client.hset("apscheduler.jobs", "c", pickle.dumps({"version": 9}))
        ours = scheduler(RedisJobStore(**where))
        assert sorted(job.id for job in ours.get_jobs()) == ["a", "b"]
        assert ours.get_job("a").args == ((1, NOW),)
        assert redis_client.hkeys("apscheduler.jobs") == ["c"]
        assert redis_client.zcard("apscheduler.run_times") == 0

    def test_are_not_added_again_once_another_process_took_them_over_and_ran_them(
        self, scheduler: Any, redis_server: RedisServer, redis_client: redis.Redis
    ) -> None:
        where = {"unix_socket_path": redis_server.socket, "db": 0}
        theirs = scheduler(TheirStore(**where))
        for name in "ab":
            theirs.add_job(note, "date", run_date=PAST, id=name, args=[Meanwhile()])
        TO_DO.append(lambda: round_of(scheduler(RedisJobStore(**where))))
        ours = scheduler(RedisJobStore(**where))
        assert len(ran) == 2
        assert ours.get_jobs() == []
