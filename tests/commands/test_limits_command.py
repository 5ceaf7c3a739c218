"""``limpyd-jobs limits``: what keeps jobs waiting is shown, and other numbers are set."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import preloaded
import pytest
from servers import RedisServer

from limpyd_jobs import Worker

pytestmark = pytest.mark.usefixtures("redis_client")


APP = """
from limpyd import fields
from limpyd_jobs import Job, Limit


class Deal(Job):
    namespace = "deals"
    queue_name = "q"
    customer = fields.InstanceHashField()
    limits = [Limit("customer", concurrency=1, rate="300/m"), Limit("customer", concurrency=9, name="all")]

    def run(self, queue):
        pass


class Secret(Job):
    namespace = "deals"
    queue_name = "secrets"
    api_key = fields.InstanceHashField()
    limits = [Limit("api_key", concurrency=2)]

    def run(self, queue):
        pass
"""
PATH = "dealing.Deal"
COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))

Run = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of an application, which this process can import, too."""
    folder = tmp_path_factory.mktemp("app")
    (folder / "dealing.py").write_text(APP)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder
        for name in ("Deal", "Secret"):  # so that they are not among the classes of other tests
            getattr(import_module("dealing"), name).abstract = True


@pytest.fixture
def run(redis_server: RedisServer, app: Path) -> Iterator[Run]:
    """Run the command with some words; return its status, and what it printed. One job runs, and one is parked."""
    deal = import_module("dealing").Deal
    environment = {**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url, "LIMPYD_JOBS_PYTHONPATH": str(app)}

    def run(*words: str) -> tuple[int, str]:
        done = preloaded.run([COMMAND, "limits", *words], env=environment)
        return done.returncode, done.stdout + done.stderr

    jobs = [deal.add_job(customer="acme") for _ in range(2)]
    deal.add_job(customer="other")
    with jobs[0].claim():
        Worker("q", max_loops=1, logger_level=60).run()
        yield run


def test_the_keys_that_are_in_use_are_listed_and_shown_without_importing_their_class(run: Run) -> None:
    row, shared = json.loads(run("list", "--json")[1])
    assert (row["classes"], shared["classes"]) == ([PATH], [PATH])
    assert run("list")[1].count(PATH) == 2
    assert [row[name] for name in ("name", "value", "taken", "allowed", "parked")] == ["customer", "acme", 1, 1, 1]
    status, shown = run("show", "customer=acme")
    assert status == 0
    assert f"{PATH}:1" in shown
    assert run("show", "customer=none")[0] == 1


def test_other_numbers_are_set_and_unset(run: Run) -> None:
    of_acme = PATH, "customer=acme"
    assert run("set", *of_acme, "concurrency=5", "share=2") == (0, "concurrency=5 share=2\n")
    assert "concurrency=5 share=2" in run("list")[1]
    assert run("set", *of_acme, "concurrency=", "share=") == (0, "as the class says\n")
    assert run("pause", *of_acme)[0] == 0
    assert "paused" in run()[1]
    assert "is resumed" in run("resume", *of_acme)[1]
    run("pause", *of_acme)
    status, said = run("resume", PATH, "customer")
    assert (status, "no job begins yet of customer=acme (paused)" in said) == (0, True), said
    run("resume", *of_acme)
    assert run("rest", *of_acme, "30")[0] == 0
    assert "rests for" in run()[1]
    assert "customer=acme rests for 5 min" in run("rest", *of_acme, "5m")[1]


def test_the_rate_of_a_key_is_listed(run: Run) -> None:
    key, shared = json.loads(run("list", "--json")[1])
    assert (key["rate"], shared["rate"]) == ("5/s", None)
    run("set", PATH, "customer=acme", "rate=90/m")
    assert json.loads(run("list", "--json")[1])[0]["rate"] == "1.5/s"
    assert "1.5/s" in run("show", "customer=acme")[1]


def test_the_value_of_a_secret_field_is_masked(run: Run) -> None:
    secret = import_module("dealing").Secret
    with secret.add_job(api_key="K-123").claim():
        for words in (["list"], ["list", "--json"], ["show", "api_key=K-123"], ["show", "api_key=(masked)"]):
            status, told = run(*words)
            assert (status, "K-123" in told, "(masked)" in told) == (0, False, True), told
        run("pause", "dealing.Secret", "api_key=K-123")
        status, told = run("resume", "dealing.Secret", "api_key")
        assert (status, "K-123" in told, "api_key=(masked) (paused)" in told) == (0, False, True), told


def test_what_is_wrong_is_said(run: Run) -> None:
    for words in (
        ("set", PATH, "custmer=acme", "concurrency=1"),
        ("set", PATH, "customer=acme", "concurrency=-1"),
        ("set", PATH, "customer=acme", "colour=1"),
        ("rest", PATH, "customer=acme", "soon"),
        ("rest", PATH, "customer=acme", "-1m"),
        ("rest", PATH, "customer=acme", "1e9d"),
        ("show",),
    ):
        status, told = run(*words)
        assert (status, "Traceback" in told) == (2, False), told
