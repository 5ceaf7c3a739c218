"""The commands of manage.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import redis
from bookshop.jobs import Stock
from django.core.management import call_command
from django.test import override_settings
from servers import RedisServer, wait_until

from limpyd_jobs import STATUSES
from limpyd_jobs.commandline.programs import as_typed
from limpyd_jobs.contrib.django.management.commands import limpyd_jobs
from limpyd_jobs.contrib.django.management.commands.limpyd_jobs_worker import split_words
from limpyd_jobs.query import pause_queue

MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""

SETTINGS = """
from project import SETTINGS
globals().update(SETTINGS)
DEBUG = {debug}
INSTALLED_APPS = [*INSTALLED_APPS, "garden"]
LIMPYD_JOBS = {{"DATABASE": {url!r}, "QUEUES": ["beds"]}}
"""

GARDEN = """
import time
from limpyd_jobs import Job
class Dig(Job):
    namespace = "garden"
    queue_name = "beds"
    def run(self, queue):
        client = self.get_connection()
        client.rpush("dug", {plant!r})
        if self.identifier.hget() == "slow":
            client.blpop("go on", 60)
            client.rpush("dug", "the end of {plant}")
            self.add_job("next")
"""


class Manage(subprocess.Popen[bytes]):
    """A process of manage.py."""

    def __init__(self, path: Path, log: str, words: Sequence[str]) -> None:
        self.log = path / log
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "PYTHONDONTWRITEBYTECODE": "1"}
        with self.log.open("wb") as output:
            super().__init__(
                [sys.executable, "manage.py", *words], cwd=path, env=environment, stdout=output, stderr=output
            )

    def said(self) -> str:
        return self.log.read_text()


class Site:
    """A project of Django in a directory."""

    def __init__(self, path: Path, server: RedisServer) -> None:
        self.path = path
        (path / "garden").mkdir()
        (path / "garden" / "__init__.py").touch()
        self.plant("roses")
        (path / "manage.py").write_text(MANAGE)
        (path / "settings.py").write_text(SETTINGS.format(debug=False, url=server.url))
        self.started: list[Manage] = []

    def plant(self, plant: str) -> None:
        """Write the jobs of the application."""
        (self.path / "garden" / "jobs.py").write_text(GARDEN.format(plant=plant))

    def start(self, *words: str) -> Manage:
        self.started.append(Manage(self.path, f"{len(self.started)}.log", words))
        return self.started[-1]


@pytest.fixture
def site(tmp_path: Path, redis_server: RedisServer) -> Iterator[Site]:
    made = Site(tmp_path, redis_server)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.terminate()
        process.wait(60)


@pytest.mark.proof
def test_a_worker_begins_anew_when_code_has_changed_once_its_job_is_finished(
    site: Site, redis_client: redis.Redis
) -> None:
    def dug() -> list[str]:
        return redis_client.lrange("dug", 0, -1)

    def is_noticed() -> bool:
        """Change the code, and return whether the worker has said so. The reloader begins at some time after the job,
        so that it may miss a change."""
        site.plant("tulips")
        return "Code has changed" in worker.said()

    added = site.start("limpyd_jobs", "jobs", "add", "garden.jobs.Dig", "slow")
    assert (added.wait(60), added.said()) == (0, "garden.jobs.Dig:1\n")
    worker = site.start("limpyd_jobs_worker", "--reload")
    wait_until(lambda: dug() == ["roses"])
    wait_until(is_noticed)
    redis_client.rpush("go on", "1")
    wait_until(lambda: dug() == ["roses", "the end of roses", "tulips"])
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0, worker.said()


class TestTheCommandInThisProcess:
    def test_returns_if_all_is_well(self, capsys: pytest.CaptureFixture[str]) -> None:
        job = Stock.add_job("one", title="Emma")
        call_command("limpyd_jobs", "jobs", "cancel", job.ident, "--yes")
        assert job.status.hget() == STATUSES.CANCELED

    def test_ends_with_the_exit_status_of_the_program(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            call_command("limpyd_jobs", "jobs", "gather")
        assert caught.value.code == 2


class TestAHint:
    """What the command tells the user to type is what works here."""

    def test_names_the_command_of_manage_py(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            call_command("limpyd_jobs", "gather")
        error = capsys.readouterr().err
        assert error.startswith("python manage.py limpyd_jobs: error: no such command: 'gather'")
        assert "python manage.py limpyd_jobs_worker runs a worker" in error
        call_command("limpyd_jobs", "jobs", "--help")
        assert capsys.readouterr().out.startswith("Usage: python manage.py limpyd_jobs jobs ")

    def test_is_the_same_in_what_a_command_prints(
        self, capsys: pytest.CaptureFixture[str], redis_client: redis.Redis
    ) -> None:
        job = Stock.add_job("one", title="Emma")
        pause_queue("jobs:queue", "stock")
        call_command("limpyd_jobs", "jobs", "explain", job.ident)
        assert "python manage.py limpyd_jobs resume stock" in capsys.readouterr().out
        redis_client.flushall()
        redis_client.set("jobs:queue:paused", "x")
        with pytest.raises(SystemExit):
            call_command("limpyd_jobs", "pause", "stock", "--force")
        assert "which python manage.py limpyd_jobs check names" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("program", "typed"),
        [
            ("/usr/bin/django-admin", "django-admin"),
            ("/lib/django/__main__.py", "python -m django"),
            ("bin/shop.py", "python shop.py"),
        ],
    )
    def test_begins_as_the_user_began(self, program: str, typed: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            limpyd_jobs.Command().run_from_argv([program, "limpyd_jobs", "gather"])
        assert capsys.readouterr().err.startswith(f"{typed} limpyd_jobs: error: ")
        assert as_typed("limpyd-jobs check") == "limpyd-jobs check"  # afterwards


class TestTheWordsOfAWorker:
    def test_name_the_queues_of_the_settings_unless_others_are_given(self) -> None:
        with override_settings(LIMPYD_JOBS={"QUEUES": ["mails", "images"]}):
            assert split_words(["--burst"])[0] == ["--burst", "--queues=mails,images"]
            assert split_words(["--queues", "mails"])[0] == ["--queues", "mails"]
        assert split_words(["--burst"])[0] == ["--burst"]

    def test_name_the_queues_of_tasks_too(self) -> None:
        ours = "limpyd_jobs.contrib.django.tasks.LimpydBackend"
        tasks = {
            "default": {"BACKEND": ours, "QUEUES": ["letters", "mails"]},
            "slow": {"BACKEND": ours},  # which has one queue then
            "other": {"BACKEND": "django.tasks.backends.dummy.DummyBackend", "QUEUES": ["others"]},
        }
        with override_settings(TASKS=tasks):
            assert split_words([])[0] == ["--queues=letters,mails,default"]
            with override_settings(LIMPYD_JOBS={"QUEUES": ["mails"]}):
                assert split_words([])[0] == ["--queues=mails,letters,default"]

    @pytest.mark.parametrize(
        ("debug", "words", "reloads"),
        [
            (True, [], True),
            (True, ["--no-reload"], False),
            (False, [], False),
            (False, ["--reload"], True),
            (True, ["--help"], False),
        ],
    )
    def test_say_whether_it_begins_anew(self, debug: bool, words: list[str], reloads: bool) -> None:
        with override_settings(DEBUG=debug):
            rest, found = split_words([*words, "--burst"])
        assert found == reloads
        assert not {"--reload", "--no-reload"} & {*rest}
