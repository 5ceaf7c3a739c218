"""The applications of "Coming from RQ", Celery and arq do the same before and after, and what is queued is taken over.

``scripts/coming_from_rows.sh`` runs this for each library, in a virtual environment of its own. Else it is skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
import redis
from servers import RedisServer, free_port, wait_until

LIBRARY = os.environ.get("LIMPYD_JOBS_COMING_FROM", "")
APPLICATIONS = Path(__file__).resolve().parents[2] / "docs/howto/coming_from"

pytestmark = pytest.mark.skipif(
    not (LIBRARY and find_spec(LIBRARY)), reason="scripts/coming_from_rows.sh installs the libraries"
)


class Row(NamedTuple):
    """How the workers are started, and what they print."""

    before: list[str]
    after: list[str]
    printed: set[str]
    call: str = "checkout()"


ROWS = {
    "rq": Row(["rq", "worker", "--url={url}", "mails"], [], {"Thank you to ann"}),
    "celery": Row(
        ["celery", "-A", "before", "worker", "--queues=mails", "--concurrency=1"],
        [],
        {"Thank you to ann", "Sorry to eve"},
    ),
    "arq": Row(
        ["arq", "before.WorkerSettings"],
        ["--concurrency=100"],
        {"Thank you to ann", "Sorry to eve"},
        "__import__('asyncio').run({}.checkout())",
    ),
}


class Application:
    """The application of a library, in a Redis of its own."""

    def __init__(self, server: RedisServer, library: str) -> None:
        self.row, self.folder = ROWS[library], APPLICATIONS / library
        self.url = f"redis://127.0.0.1:{server.port}/0"
        self.client = redis.Redis.from_url(self.url, decode_responses=True)
        self.environment = {
            **os.environ,
            "REDIS_URL": self.url,
            "LIMPYD_JOBS_DATABASE": self.url,
            "PYTHONPATH": str(self.folder),
            "PYTHONUNBUFFERED": "1",
        }

    def run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(Path(sys.executable).with_name(program)), *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.stdout + done.stderr

    def check_out(self, module: str) -> None:
        call = f"__import__('asyncio').run({module}.checkout())" if LIBRARY == "arq" else f"{module}.checkout()"
        assert self.run("python", "-W", "ignore", "-c", f"import {module}; {call}") == ""

    def work(self, command: list[str], log: Path) -> None:
        """Let a worker run until it has printed all that is expected."""
        words = [word.format(url=self.url) for word in command]
        with log.open("w") as file:
            words[0] = str(Path(sys.executable).with_name(words[0]))
            worker = subprocess.Popen(words, env=self.environment, cwd=self.folder, stdout=file, stderr=file)
        try:
            wait_until(lambda: all(line in log.read_text() for line in self.row.printed), f"{words} in {log}")
        finally:
            worker.terminate()
            worker.wait(60)

    def work_here(self, log: Path) -> None:
        self.work(["limpyd-jobs-worker", "--queues=mails", "--job-modules=after", *self.row.after], log)


@pytest.fixture
def application(redis_binary: str) -> Iterator[Application]:
    with RedisServer(redis_binary, port=free_port()) as server:
        yield Application(server, LIBRARY)


def test_the_applications_before_and_after_do_the_same(application: Application, tmp_path: Path) -> None:
    application.check_out("before")
    application.work(application.row.before, tmp_path / "before.log")
    application.client.flushall()
    application.check_out("after")
    application.work_here(tmp_path / "after.log")


@pytest.mark.skipif(LIBRARY == "celery", reason="what Celery has queued is not taken over")
def test_what_is_queued_is_taken_over(application: Application, tmp_path: Path) -> None:
    application.check_out("before")
    command = ("takeover", LIBRARY, "--map=moved.JOBS")
    assert "give --unpickle if only programs that you trust" in application.run("limpyd-jobs", *command, "--dry-run")
    told = application.run("limpyd-jobs", *command, "--unpickle", "--yes")
    assert f"{len(application.row.printed) + 1} " in told  # and the reminder
    assert not [key for key in application.client.scan_iter() if key.startswith((f"{LIBRARY}:job", "limpyd-jobs:take"))]
    (reminder,) = application.client.smembers(f"jobs:after.send_mail:identifier:{LIBRARY}:reminder-bob")
    assert application.client.hget(f"jobs:after.send_mail:{reminder}:hash", "status") == "d"
    application.work_here(tmp_path / "taken_over.log")
