"""Error.add_error: what is recorded of a failure, once."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import pytest
import redis
from limpyd import fields

from limpyd_jobs import Error, Job
from limpyd_jobs.records.sizes import stored_size
from limpyd_jobs.redis import calls
from limpyd_jobs.redis.scripting import Script


class Failure(Exception):
    code = 5


class WithoutCode(Exception):
    @property
    def code(self) -> int:
        raise RuntimeError("There is none")


class Described(Error):
    namespace = "described"
    notes = fields.ListField()


@pytest.fixture
def job(redis_client: redis.Redis) -> Job:
    return Job.add_job("a", "q")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KeyError("to"), ["KeyError", "'to'", None]),
        (Failure("no"), ["Failure", "no", "5"]),
        (KeyError, ["KeyError", "<class 'KeyError'>", None]),
        (Failure, ["Failure", f"<class '{__name__}.Failure'>", "5"]),
        (WithoutCode("no"), ["WithoutCode", "no", None]),
        (SystemExit, ["SystemExit", "<class 'SystemExit'>", None]),
    ],
)
def test_an_exception_or_its_class_is_recorded_as_by_version_2(job: Job, error: Any, expected: list[Any]) -> None:
    assert Error.add_error("q", job, error).hmget("type", "message", "code") == expected


class Fingerprinted(Error):
    """It has something of its own that is named as ours."""

    namespace = "fingerprinted"
    fingerprint = fields.InstanceHashField(indexable=True)


def look_for(number: int) -> None:
    raise LookupError(f"no page {number}")


def error_of(action: Callable[[], object]) -> Exception:
    with pytest.raises(LookupError) as caught:
        action()
    return caught.value


def test_errors_of_the_same_cause_have_the_same_fingerprint(job: Job) -> None:
    one, two = (Error.add_error("q", job, error_of(lambda number=i: look_for(number))) for i in (1, 2))  # type: ignore[misc]
    other = Error.add_error("q", job, LookupError("no page 3"))
    fingerprint = one.fingerprint.hget()
    assert fingerprint == two.fingerprint.hget() != other.fingerprint.hget()
    assert set(Error.collection(_fingerprint=fingerprint)) == {one.pk.get(), two.pk.get()}
    one.delete()
    assert set(Error.collection(_fingerprint=fingerprint)) == {two.pk.get()}


def test_a_fingerprint_costs_no_command_more(job: Job, commands: Callable[[], AbstractContextManager[Any]]) -> None:
    with commands() as sent:
        Error.add_error("q", job, LookupError("no page 3"))
    assert sent.names.count("EVALSHA") == 1
    assert "HSET" not in sent.names


def test_an_error_model_may_have_a_field_named_fingerprint(job: Job) -> None:
    error = Fingerprinted.add_error("q", job, LookupError("no"), fingerprint="mine")
    assert error.fingerprint.hget() == "mine"
    assert set(Fingerprinted.collection(fingerprint="mine")) == {error.pk.get()}
    assert len(Fingerprinted.collection(_fingerprint=error._fingerprint.hget())) == 1


def test_the_version_of_the_application_is_recorded_if_there_is_one(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Error.add_error("q", job, LookupError("no")).app_version.hget() is None
    monkeypatch.setenv("LIMPYD_JOBS_APP_VERSION", "2026.11")
    assert Error.add_error("q", job, LookupError("no")).app_version.hget() == "2026.11"
    assert Error.add_unresolved_error("q", "shop.jobs.SendMail:1", LookupError("no")).app_version.hget() == "2026.11"


@pytest.fixture
def losing_reply(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Have a call fail after Redis has done what it asks for last."""

    def call(action: Callable[[], Any]) -> None:
        run = calls.run

        def lose(script: Script, *args: Any) -> Any:
            reply = run(script, *args)
            if script.name != "add_error" or json.loads(reply)["outcome"] == "reserved":
                return reply
            raise redis.ConnectionError("lost")

        with monkeypatch.context() as patch:
            patch.setattr(calls, "run", lose)
            with pytest.raises(redis.ConnectionError):
                action()

    return call


@pytest.mark.parametrize("extra", [{}, {"when": datetime(2030, 1, 1)}, {"trace": "Traceback"}])
@pytest.mark.parametrize("model", [Error, Described])
def test_a_call_whose_reply_was_lost_may_be_repeated(
    losing_reply: Any, job: Job, model: type[Error], extra: dict[str, Any]
) -> None:
    if model is Described:
        extra = {**extra, "notes": ["one", "two"]}

    def add() -> Error:
        return model.add_error("q", job, ValueError("no"), **extra)

    losing_reply(add)
    losing_reply(add)
    error = add()
    assert set(model.collection()) == {error.pk.get()}
    assert set(model.collection(date_time=str(error.date_time.hget())[:19])) == {error.pk.get()}
    assert error.datetime == extra.get("when", error.datetime)
    if isinstance(error, Described):
        assert error.notes.lmembers() == ["one", "two"]


def test_the_next_failure_is_another_one(losing_reply: Any, job: Job) -> None:
    def add(**options: Any) -> Error:
        return Error.add_error("q", job, ValueError("no"), **options)

    losing_reply(add)
    assert [add().pk.get(), add().pk.get()] == ["1", "2"]
    losing_reply(lambda: add(when=datetime(2030, 1, 1)))
    assert add(when=datetime(2030, 1, 2)).pk.get() == "4"
    losing_reply(add)
    assert Error.add_error("q", job, ValueError("another")).pk.get() == "6"


class Bounded(Error):
    namespace = "bounded"
    max_error_bytes = 1_000
    notes = fields.InstanceHashField()
    steps = fields.ListField()
    tags = fields.SetField()
    settings = fields.HashField()
    ranks = fields.SortedSetField()


class Whole(Error):
    namespace = "whole"
    max_error_bytes = None


class Odd(Error):
    """It has something of its own that is named as ours."""

    namespace = "odd"
    max_error_bytes = "theirs"  # type: ignore[assignment]


class TestLongErrors:
    text = "é" * 10_000_000 + "the end"

    @pytest.mark.proof
    def test_are_cut_in_the_middle(self, job: Job) -> None:
        for model, most in ((Error, 64 * 1024), (Bounded, 1_000), (Odd, 64 * 1024)):
            more = {"notes": self.text} if model is Bounded else {}
            error = model.add_error("q", job, ValueError(self.text), trace=f"Traceback\n{self.text}", **more)
            for name in ("message", "traceback", *more):
                stored = error.get_field(name).hget()
                assert most - 10 < len(stored.encode()) <= most
                assert ("… 20.0 MB left out …" if most == 1_000 else "… 19.9 MB left out …") in stored
                assert stored.endswith("the end")

    def test_so_are_the_name_of_a_class_and_a_code(self, job: Job) -> None:
        raised = type("E" * 5_000, (Exception,), {})()
        raised.code = self.text
        error = Bounded.add_error("q", job, raised)
        assert all(900 < len(error.get_field(name).hget().encode()) <= 1_000 for name in ("type", "code"))

    def test_are_whole_if_the_model_says_so(self, job: Job) -> None:
        assert Whole.add_error("q", job, ValueError(self.text)).message.hget() == self.text
        assert Error.add_error("q", job, ValueError("x" * 65_536)).message.hget() == "x" * 65_536

    def test_of_unknown_classes_are_cut_too(self, job: Job) -> None:
        error = Error.add_unresolved_error("q", "x.Y:1", ImportError(self.text))
        assert len(error.message.hget().encode()) <= 65_536

    @pytest.mark.filterwarnings("ignore:.*hmset:DeprecationWarning")  # of limpyd
    def test_so_are_additional_fields_of_any_type(self, job: Job) -> None:
        long = {f"{number}": "x" * 100 for number in range(100)}
        error = Bounded.add_error(
            "q",
            job,
            ValueError(),
            notes=b"x" * 10_000,
            steps=[self.text, *long.values()],
            tags={*long.values(), *(f"{each:0100}" for each in range(100))},
            settings={"large": self.text, **long},
            ranks={f"{each:0100}": each for each in range(100)},
        )
        stored = {
            "notes": error.notes.hget(),
            "steps": error.steps.lmembers(),
            "tags": error.tags.smembers(),
            "settings": error.settings.hgetall(),
            "ranks": error.ranks.zmembers(),
        }
        assert [name for name, value in stored.items() if not 600 < stored_size(value) <= 1_000] == []
        assert [value for value in map(str, stored.values()) if "left out" not in value] == []
        assert stored["steps"][1] == "x" * 100
        assert stored["settings"]["0"] == "x" * 100

    @pytest.mark.filterwarnings("ignore:.*hmset:DeprecationWarning")
    def test_short_ones_are_stored_as_they_are(self, job: Job) -> None:
        error = Bounded.add_error("q", job, ValueError(), steps=["a", 1], settings={"a": 1.5}, ranks={"a": 2})
        assert (error.steps.lmembers(), error.settings.hgetall()) == (["a", "1"], {"a": "1.5"})
        assert error.ranks.zscore("a") == 2
