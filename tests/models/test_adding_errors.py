"""Error.add_error: what is recorded of a failure, once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
import redis
from limpyd import fields

from limpyd_jobs import Error, Job
from limpyd_jobs.store import records


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


@pytest.fixture
def losing_reply(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Have a call fail after Redis has done what it asks for last."""

    def call(action: Callable[[], Any]) -> None:
        script = records._add_error

        def lose(*args: Any, **kwargs: Any) -> Any:
            reply = script(*args, **kwargs)
            if reply[0] == "reserved":
                return reply
            raise redis.ConnectionError("lost")

        lose.positions = script.positions  # type: ignore[attr-defined]
        with monkeypatch.context() as patch:
            patch.setattr(records, "_add_error", lose)
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
