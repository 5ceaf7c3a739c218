"""Observers that a worker is given by their names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from cases import each
from running import work, worker_of

from limpyd_jobs import ConfigurationException, Job, events
from limpyd_jobs.commandline import observers
from limpyd_jobs.contrib.opentelemetry import Tracing
from limpyd_jobs.contrib.sentry import Sentry
from limpyd_jobs.integration import Instrument
from limpyd_jobs.observing import instruments
from limpyd_jobs.workers import WorkerConfig

pytestmark = pytest.mark.usefixtures("redis_client")

told: list[str] = []


class Parcel(Job):
    namespace = "observers"
    queue_name = "queue"


def count(event: events.Event) -> None:
    told.append(type(event).__name__)


instrument = Instrument()
number = 7


@pytest.fixture(autouse=True)
def afterwards() -> Iterator[None]:
    told.clear()
    before = instruments.installed
    yield
    for observer in (*instruments.installed, count):
        if observer not in before:
            events.unsubscribe(observer)


def test_a_function_an_instrument_and_integrations_are_named_by_an_option() -> None:
    names = f"{__name__}.count,{__name__}.instrument,opentelemetry-links,sentry"
    given = ["--queues=queue", "--logger-name=limpyd-jobs.test-observers", f"--observers={names}"]
    config = WorkerConfig(["worker", "--no-title", *given])
    config.prepare_worker()
    config.prepare_worker()  # as each process of a pool does
    assert config.worker
    config.worker.stop_handling_end_signal()
    first, tracing, sentry = instruments.installed
    assert first is instrument
    assert isinstance(tracing, Tracing)
    assert (tracing.style, type(sentry)) == ("link", Sentry)
    Parcel.add_job("one")
    work(observers=[f"{__name__}.count"])
    assert told.count("JobSucceeded") == 1


def test_a_module_may_subscribe_what_it_likes(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "watching.py").write_text(
        f"from limpyd_jobs import events\nfrom {__name__} import count\nevents.subscribe(count)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    Parcel.add_job("one")
    work(observers="watching")
    assert "JobSucceeded" in told


@each(
    ("names", "why"),
    [
        (
            "opentelemtry",
            "observers: nothing is called opentelemtry: is opentelemetry meant?",
        ),
        ("nowhere.count", "observers: nowhere.count cannot be imported: ModuleNotFoundError"),
        (f"{__name__}.nothing", "observers: .*nothing cannot be imported"),
        (f"{__name__}.number", "observers: .*number is not an observer, but 7"),
        (f"{__name__}.Parcel", "observers: .*Parcel is not an observer"),
        ("my-app", "'my-app' cannot be the name of an observer"),
        (" , ", "no observer is named by ' , '"),
        (7, "observers must be names in a list or a text, not 7"),
    ],
)
def test_a_name_that_means_nothing_is_refused_in_a_line(names: Any, why: str) -> None:
    with pytest.raises(ConfigurationException, match=why) as raised:
        worker_of(observers=names)
    assert "\n" not in str(raised.value)


def test_one_whose_extra_is_missing_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    observers._made.cache_clear()
    monkeypatch.setitem(sys.modules, "sentry_sdk", None)
    monkeypatch.delitem(sys.modules, "limpyd_jobs.contrib.sentry")
    with pytest.raises(ConfigurationException, match=r"pip install 'redis-limpyd-jobs\[sentry\]'"):
        worker_of(observers="sentry")
